"""What a project wants of the database: its stages, and its topics as they are planned; engine room."""

from collections import Counter
from collections.abc import Sequence

from pipeline.project.loading import Stages
from pipeline.project.site import Site
from pipeline.project.texts import texts
from pipeline.service.append import input_hash
from pipeline.service.order import StageSpec
from pipeline.stages import stage_name
from pipeline.views import TopicRow, content_hash


def longest_first(topics: Sequence[TopicRow]) -> list[TopicRow]:
    """The topics, those first behind which most others of their lane come: the longest lane decides when all is done.

    Within each lane the order stays.
    """
    sizes = Counter(topic.lane for topic in topics)
    behind = []
    for topic in topics:
        sizes[topic.lane] -= 1
        behind.append(sizes[topic.lane])
    return [topics[n] for n in sorted(range(len(topics)), key=lambda n: -behind[n])]


def specs(stages: Stages) -> list[StageSpec]:
    """What the database is told of the project's stages."""
    return [StageSpec(stage_name(type(stage)), stage.width, stage.retry.attempts) for stage in stages.pipeline.values()]


def hashed(site: Site, stages: Stages, topics: Sequence[TopicRow]) -> list[TopicRow]:
    """The topics with the hash of all that their content depends on: the row, what the stages add to it, and the text
    that is there already, if there is one. Raises ProjectError for texts that cannot be read."""
    added, there = fingerprints(site, stages, topics), texts(site)
    found = []
    for t in topics:
        hash, text = input_hash(t.title, t.type, t.brief, added[t.type]), there.get(t.slug)
        if text is not None:
            hash = content_hash([hash, text.hash])
        found.append(TopicRow(t.lane, t.slug, t.title, t.type, t.path, t.order, t.brief, t.line, hash, text))
    return found


def fingerprints(site: Site, stages: Stages, topics: Sequence[TopicRow]) -> dict[str, dict[str, str]]:
    """By type of page, what each stage adds to a topic's hash: of these topics, and those with a path."""
    # By name, and only those that say something: another stage in PIPELINE is by itself no reason to begin anew.
    added: dict[str, dict[str, str]] = {}
    for kind in sorted({t.type for t in topics} | site.paths.keys()):
        prints = {name: stage.fingerprint(site, kind) for name, stage in stages.pipeline.items()}
        added[kind] = {name: text for name, text in prints.items() if text}
    return added
