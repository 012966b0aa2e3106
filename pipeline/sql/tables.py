"""The tables as Core sees them; floor 1. Statements are built from these, so nothing of the ORM is in their way."""

from typing import cast

from sqlalchemy import Table

from pipeline import models


def _table(model: type[models.Base]) -> Table:
    return cast(Table, model.__table__)


sites = _table(models.Site)
lanes = _table(models.Lane)
stages = _table(models.Stage)
gates = _table(models.Gate)
topics = _table(models.Topic)
jobs = _table(models.Job)
attempts = _table(models.Attempt)
revisions = _table(models.Revision)
findings = _table(models.Finding)
publications = _table(models.Publication)
events = _table(models.Event)
workers = _table(models.Worker)
