"""Each rule hits what it is for, and leaves alone what only looks like it."""

import time

import pytest

from pipeline import Done, Finding, Reject, Severity
from pipeline.content import check
from stages import Validate

from .fakes import Context, World, make_draft, make_site, make_topic

LONG = "A page about Kyoto that says what there is to see, to eat and to do, and when to go."


@pytest.fixture
def findings(tmp_path):
    def findings(body: str = "Words.\n", others=(), **changes) -> list[Finding]:
        topic = make_topic()
        world = World(make_site(tmp_path, base_url="https://acme.example/blog"), [topic, *others])
        for other in others:
            world.write(other, make_draft(other))
        return check(world.site, topic, make_draft(topic, body, **changes), Context(world, topic))

    return findings


def test_a_good_page_has_no_findings(findings):
    body = "Some [words](#more) and [more](/japan/kyoto/).\n\n## More\n\n![A gate](https://img.example/gate.png)\n"
    body += "\n### Yet more\n\nText.\n"

    assert findings(body) == []


HITS = [
    ("# One\n\nx", "one-h1", 1, None),
    ("x\n\nOne\n===\n", "one-h1", 3, None),
    ("x\n\n### Three\n", "heading-order", 3, None),
    ("## Two\n\n#### Four\n", "heading-order", 3, None),
    ("## \n\nx", "heading-empty", 1, None),
    ("", "empty-body", 1, None),
    (" \n\n\t\n", "empty-body", 1, None),
    ("---\n", "empty-body", 1, None),
    ("```\n## Text\n```\n", "fenced-body", 1, None),
    ("x\n\nsee [a](/japan/nowhere/) b", "links-resolve", 3, 9),
    ("see [a](/japan/kyoto)", "links-resolve", 1, 9),
    ("see [a](/japan/nowhere/#x)", "links-resolve", 1, 9),
    ("see [a](../nowhere/)", "links-resolve", 1, 9),
    ("see [a](https://acme.example/blog/nowhere/)", "links-resolve", 1, 9),
    ("see ![a](/nowhere.png)", "links-resolve", 1, 10),
    ("see [a](#nowhere)\n\n## Here", "links-resolve", 1, 9),
    ("see [a](/japan/kyoto/#nowhere)", "links-resolve", 1, 22),
    ("see [a]()", "link-empty", 1, 8),
    ("see ![](https://x.example/a.png)", "image-alt", 1, 5),
    ("x\n\ny {{ name }}", "template-marks", 3, 3),
    ("x {% if %}", "template-marks", 1, 3),
    ("x {# note #}", "template-marks", 1, 3),
    ("x [TODO]", "template-marks", 1, 3),
    ("x [TODO: the price]", "template-marks", 1, 3),
    ("TODO: more", "template-marks", 1, 1),
    ("x [insert name here] y", "template-marks", 1, 3),
    ("since XXXX-XX-XX", "template-marks", 1, 7),
    ("Lorem ipsum dolor", "template-marks", 1, 1),
    ("so it is【4†source】", "template-marks", 1, 9),
    ("x :contentReference[oaicite:1]", "template-marks", 1, 3),
    ("As an AI language model, I", "template-marks", 1, 1),
    ("Certainly! Here is the page", "template-marks", 1, 1),
    ("x\ny\x07z", "control-characters", 2, 2),
    ("x\x00", "control-characters", 1, 2),
    ("x\ud800", "control-characters", 1, 2),
    ("x\u200by", "invisible-characters", 1, 2),
    ("x\u202ey", "invisible-characters", 1, 2),
    ("\ufeffx", "invisible-characters", 1, 1),
]


@pytest.mark.parametrize(("body", "rule", "line", "column"), HITS)
def test_a_rule_hits_with_its_place(findings, body, rule, line, column):
    assert (rule, line, column) in [(each.rule, each.line, each.column) for each in findings(body)]


NEAR = [
    "## Two\n\n### Three\n\n## Two again\n\n### Three\n",
    "x\n\n    # code\n",
    "\\# One",
    "`# One`",
    "text before\n\n```\n# One {{ x }} [TODO] /nowhere/\n```\n",
    "the mark `{{ name }}` and ``{% a `b` %}`` in code, [TODO](/japan/kyoto/)",
    "a { b } c, 100 % {sic}, # 5",
    "a list of to-dos; mastodon; Todo Island; the cell says TODO: Formula",
    "XXL-XX, XXXX, 2026-01-31",
    "the lorem of it",
    "[your guide](/japan/kyoto/) and [insert][a]\n\n[a]: /japan/kyoto/",
    "it answers as an AI language model would",
    "Sure, here we are",
    "[top](#more)\n\n## More",
    "[twice](#more-2)\n\n## More\n\n## More",
    "[umlaut](#über-uns)\n\n## Über uns",
    "[home](/), [feed](/feed.xml), [self](/japan/kyoto/), [file](/japan/kyoto/index.html)",
    "[out](https://other.example/nowhere/), [mail](mailto:a@b.example), [host](//other.example/x)",
    "[outside](https://acme.example/nowhere/), [beside](https://acme.example/blogger/)",
    "[query](/japan/kyoto/?a=b#more)\n\n## More",
    "family 👨‍👩‍👧, Persian می‌خواهم, tab\there",
    "windows line\r\nends\r\n",
    "[broken](https://[bad/)",
]


@pytest.mark.parametrize("body", NEAR)
def test_near_misses_are_left_alone(findings, body):
    assert findings(body) == []


@pytest.mark.parametrize(
    ("changes", "rule", "severity"),
    [
        ({"title": " "}, "title-present", Severity.ERROR),
        ({"title": "x" * 29}, "title-length", Severity.WARNING),
        ({"title": "x" * 71}, "title-length", Severity.WARNING),
        ({"title": "A title with {{ name }} in it, left"}, "template-marks", Severity.ERROR),
        ({"title": "A title with a \x1b escape in its text"}, "control-characters", Severity.ERROR),
        ({"description": ""}, "description-present", Severity.WARNING),
        ({"description": "x" * 69}, "description-length", Severity.WARNING),
        ({"description": "x" * 161}, "description-length", Severity.WARNING),
        ({"description": LONG + " [TODO]"}, "template-marks", Severity.ERROR),
    ],
)
def test_title_and_description_are_checked(findings, changes, rule, severity):
    assert [(each.rule, each.severity) for each in findings(**changes)] == [(rule, severity)]


@pytest.mark.parametrize("length", [30, 70])
def test_titles_of_a_good_length_pass(findings, length):
    assert findings(title="x" * length) == []


@pytest.mark.parametrize("length", [70, 160])
def test_descriptions_of_a_good_length_pass(findings, length):
    assert findings(description="x" * length) == []


def test_twins_are_named(findings):
    """Case and blanks make no difference between titles."""
    others = [make_topic(f"other-{n}", n, title="KYOTO  travel guide: temples and gardens") for n in range(3, 8)]

    (found,) = findings(others=others)

    assert (found.rule, found.severity) == ("title-unique", Severity.ERROR)
    assert "other-3, other-4, other-5 and 2 more" in found.message


def test_equal_descriptions_are_a_warning(findings):
    other = make_topic("other", 3)

    (found,) = findings(others=[other], description=make_draft(other).description)

    assert (found.rule, found.severity) == ("description-unique", Severity.WARNING)


def test_a_link_to_a_planned_page_resolves(findings):
    assert findings("[a](/japan/other/), [b](../other/#x)", others=[make_topic("other", 3)]) == []


def test_errors_come_first(findings):
    ranks = [each.severity for each in findings("#### x\n\n[TODO]\n", title="short")]

    assert ranks == sorted(ranks, key=list(Severity).index)
    assert len(set(ranks)) == 2


@pytest.mark.parametrize(("body", "outcome"), [("# x\n", Reject), ("#### x\n", Done)])
def test_errors_reject_and_warnings_stay(tmp_path, body, outcome):
    topic = make_topic()
    world = World(make_site(tmp_path), [topic])
    world.write(topic, make_draft(topic, body))

    result = Validate().run(topic, Context(world, topic))

    assert isinstance(result, outcome)
    assert len(result.findings) == 1


@pytest.mark.parametrize(
    "body",
    [
        "## a\n\n" * 9_000,
        "{#" * 50_000,
        "【" * 100_000,
        "`a` " + "".join("`" * n + "a" for n in range(2, 450)),
        "[a]" * 11_000 + "\n\n[a]: /x\n",
    ],
    ids=["headings", "comments", "citations", "backticks", "references"],
)
def test_a_hostile_text_takes_no_long_time(findings, body):
    """Texts that patterns and counters of another making took half a minute for, or worse."""
    began = time.monotonic()

    assert len(findings(body)) <= 100
    assert time.monotonic() - began < 5
