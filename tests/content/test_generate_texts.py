"""A topic whose text somebody wrote has nothing to be generated."""

from pathlib import Path

from pipeline import Done, Repair
from stages import Generate

from .fakes import Context, World, make_draft, make_site, make_topic


def test_a_text_in_the_sites_folder_is_the_draft_and_what_became_of_it_stays(tmp_path: Path) -> None:
    site, topic = make_site(tmp_path), make_topic()
    world = World(site, [topic])
    (site.folder / "texts").mkdir(parents=True)
    (site.folder / "texts/kyoto.md").write_text("Words.\n")

    outcome = Generate().run(topic, Context(world, topic))

    assert isinstance(outcome, Done)
    assert outcome.draft is not None
    assert (outcome.draft.title, outcome.draft.body) == (topic.title, "Words.\n")
    world.drafts[topic.id] = outcome.draft
    assert Generate().run(topic, Context(world, topic)) == Done()
    world.drafts[topic.id] = make_draft(topic, "Edited.\n", lineage={"actor": "me"})
    assert Generate().run(topic, Context(world, topic)) == Done()


def test_a_text_that_changed_is_the_draft_again(tmp_path: Path) -> None:
    site, topic = make_site(tmp_path), make_topic()
    world = World(site, [topic])
    (site.folder / "texts").mkdir(parents=True)
    (site.folder / "texts/kyoto.md").write_text("New words.\n")
    world.drafts[topic.id] = make_draft(topic, "Old words.\n", lineage={"bytes": "old"})

    outcome = Generate().run(topic, Context(world, topic))

    assert isinstance(outcome, Done)
    assert outcome.draft is not None
    assert outcome.draft.body == "New words.\n"


def test_a_broken_text_waits_for_a_person(tmp_path: Path) -> None:
    site, topic = make_site(tmp_path), make_topic()
    (site.folder / "texts").mkdir(parents=True)
    (site.folder / "texts/kyoto.md").write_text("+++\n")

    outcome = Generate().run(topic, Context(World(site, [topic]), topic))

    assert isinstance(outcome, Repair)
    assert "sites/acme/texts/kyoto.md" in outcome.reason
