"""``pipeline prune``: keys, answers, refusals."""

from collections.abc import Callable

import pytest
from sqlalchemy import text

from tests.conftest import SCHEMA
from tests.doors.scene import Door, Said
from tests.factories import ACTOR, Factory

pytestmark = pytest.mark.guarantee("R28")

KEYS = {"site", "passes", "assemblies", "attempts", "events", "findings"}
OLD = (
    "UPDATE jobs SET finished_at = finished_at - interval '100 days' WHERE finished_at IS NOT NULL",
    "UPDATE events SET at = at - interval '100 days'",
)


@pytest.fixture
def past(door: Door, make: Factory) -> Door:
    """A topic whose first pass was skipped a hundred days ago, and whose second one waits."""
    make.services.operate.skip(make.plan(), actor=ACTOR)
    make.services.planning.plan(make.site_id, [make.row("lane", 1, input_hash="another")])
    with make.engine.begin() as connection:
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        for statement in OLD:
            connection.execute(text(statement))
    return door


def test_what_is_old_is_counted_then_deleted_then_gone(past: Door, inside: Callable[[str], Said]) -> None:
    """The dry run tells what the run takes; the second run finds nothing."""
    would = inside("prune --dry-run")
    gone = inside("prune --site acme --reason room --json").json
    none = inside("prune")

    assert (would.code, would.out, would.err) == (0, "acme: 1 pass (1 event) would go\n", "")
    assert set(gone) == {"older_than_days", "dry_run", "sites"}
    assert (gone["older_than_days"], gone["dry_run"]) == (90, False)
    (site,) = gone["sites"]
    assert set(site) == KEYS
    assert site == {"site": "acme", "passes": 1, "assemblies": 0, "attempts": 0, "events": 1, "findings": 0}
    assert none.out == "acme: 0 passes pruned\n"


def test_age_is_in_days_or_weeks(past: Door, inside: Callable[[str], Said]) -> None:
    """What is younger than that stays."""
    assert inside("prune --older-than 20w").out == "acme: 0 passes pruned\n"
    assert inside("prune --older-than 14w").out == "acme: 1 pass (1 event) pruned\n"


def test_long_work_says_how_far_it_came(
    past: Door, inside: Callable[[str], Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, and not for every batch."""
    monkeypatch.setattr("pipeline.cli.prune.QUIET", 0.0)

    said = inside("prune")

    assert (said.out, said.err) == ("acme: 1 pass (1 event) pruned\n", "acme: 1 pass (1 event) so far\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("prune --site acne", 2, "no site 'acne' in the database; did you mean 'acme'?"),
        ("prune --older-than 90", 2, "--older-than '90' is no age; write days or weeks"),
        ("prune --older-than 0d", 2, "at least a day"),
        ("prune --older-than \x1b[2J", 2, r"--older-than '\x1b[2J' is no age"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    past: Door, inside: Callable[[str], Said], words: str, code: int, message: str
) -> None:
    """Nothing is deleted."""
    said = inside(words)

    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert message in said.err


def test_nobody_starts_a_server_to_prune_nothing(homeless: Door, inside: Callable[[str], Said]) -> None:
    said = inside("prune")

    assert (said.code, said.err) == (1, "error: nothing here yet; run: pipeline run --site demo\n")
