"""What scenes share."""

import pipeline
from pipeline import Topic
from pipeline.service.order import StageSpec
from pipeline.views import Claim
from tests.factories import STAGES, Factory
from tests.interleavings.orders import LEVELS

WIDE = (StageSpec("generate", None, 5), StageSpec("publish", 3, 5))
OPEN = (StageSpec("generate", None, 5), StageSpec("publish", None, 5))
LIMITED = (StageSpec("generate", 1, 5), StageSpec("publish", 1, 5))
TRANSLATED = (*STAGES[:2], StageSpec("translate", 1, 3), STAGES[2])
CHECKED = (StageSpec("generate", None, 5), StageSpec("publish", 1, 5), StageSpec("check", None, 5))

RESENDS = {level: frozenset({"40001"} if level != LEVELS[0] else ()) for level in LEVELS}
"""A caller who plans at a stronger level may be refused, and repeats his transaction."""


def over(make: Factory, stage: str = "publish", count: int = 2) -> Claim:
    """The head's reservation, whose lease is over."""
    make.advance_to(stage, count=count)
    (claim,) = make.claim(stage)
    make.expire(claim.job_id)
    return claim


def planned(make: Factory, *topics: Topic) -> None:
    """Topics that a caller planned in a transaction of his own: nobody has promoted them yet."""
    with make.engine.begin() as connection:
        pipeline.plan(connection, "acme", topics)
