"""Drafts from templates: the same input gives the same bytes, and a mistake is named with file and line."""

import pytest

from pipeline import Repair
from pipeline.content import fingerprint, generate
from pipeline.errors import ProjectError
from stages import Generate

from .fakes import Context, World, make_site, make_topic


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path)


@pytest.fixture
def template(site):
    def template(text: str, name: str = "city.md.j2") -> None:
        folder = site.folder / "templates"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    return template


def refusal(site, topic=None) -> str:
    with pytest.raises(ProjectError) as caught:
        generate(site, topic or make_topic())
    return str(caught.value)


def test_a_template_sees_row_topic_site_and_filters(site, template):
    template(
        "{% for sight in sights|split %}\n- {{ sight }}\n{% endfor %}\n"
        "{{ people|number }} {{ title }} {{ slug }} {{ type }} {{ lane }} {{ position }} {{ site.name }}"
        " {{ site.locale }} {{ 'Ōsaka Castle'|slugify }}\n"
    )
    topic = make_topic(brief={"sights": "a; b;;", "people": "1460000"}, title="Kyoto")

    draft = generate(site, topic)

    assert draft.body == "- a\n- b\n1,460,000 Kyoto kyoto city japan 2 Acme & Sons en osaka-castle\n"


def test_the_same_input_gives_the_same_draft(site, template):
    template("{{ ['a', 'b', 'c', 'd']|pick('opening') }} {{ note }}")
    topic = make_topic(brief={"note": "x"})

    assert generate(site, topic) == generate(site, topic)


def test_pick_differs_by_page_and_key(site, template):
    template("{% for key in 'abcdefgh' %}{{ [1, 2, 3]|pick(key) }}{% endfor %}")

    bodies = {generate(site, make_topic(f"city-{n}")).body for n in range(8)}

    assert len(bodies) > 4
    assert all(len(set(body)) > 2 for body in bodies)


def test_data_is_never_a_template(site, template):
    template("{{ note }}")

    assert generate(site, make_topic(brief={"note": "{{ 7 * 7 }} {% raw %}"})).body == "{{ 7 * 7 }} {% raw %}\n"


def test_a_row_cannot_take_the_names_of_the_topic(site, template):
    template("{{ slug }} {{ site.name }}")

    assert generate(site, make_topic(brief={"slug": "x", "site": "y"})).body == "kyoto Acme & Sons\n"


def test_the_description_is_the_column_or_the_first_paragraph(site, template):
    template("## Head\n\nSome *marked* words.\n")

    assert generate(site, make_topic(brief={"description": " given \n here "})).description == "given here"
    assert generate(site, make_topic()).description == "Some marked words."


def test_a_derived_description_ends_with_a_word(site, template):
    template("word " * 100)

    description = generate(site, make_topic()).description

    assert len(description) <= 156
    assert description.endswith("word…")


def test_lineage_names_template_and_inputs(site, template):
    template("{{ note }}")

    one, other = (generate(site, make_topic(brief={"note": note})).lineage for note in "ab")

    assert one["template"] == "city.md.j2"
    assert one["template_hash"] == other["template_hash"]
    assert one["input_hash"] != other["input_hash"]


def test_the_fingerprint_follows_template_partials_and_site(site, template):
    template("{% include '_end.j2' %}")
    template("one", "_end.j2")
    before = fingerprint(site, "city")

    template("two", "_end.j2")

    assert before not in ("", fingerprint(site, "city"))
    assert fingerprint(site, "city") != fingerprint(site.model_copy(update={"locale": "de"}), "city")
    assert fingerprint(site, "nothing") == ""


@pytest.mark.parametrize(
    ("text", "place", "fact"),
    [
        ("one\n\n{{ missing }}", ":3: ", "'missing' is undefined"),
        ("one\n{% if %}", ":2: ", "Expected an expression"),
        ("one\n{{ people|number }}", ":2: ", "'many' is no number"),
        ("{{ 1 / 0 }}", ":1: ", "division by zero"),
        ("{{ []|pick('x') }}", ":1: ", "nothing to pick from"),
        ("{% include 'country.md.j2' %}", ":1: ", "no country.md.j2"),
        ("{% include '../../site.toml' %}", ":1: ", "no ../../site.toml"),
        ("{{ site.folder }}", ":1: ", "has no attribute 'folder'"),
        ("{{ 'x' * 100000000 }}", ":1: ", "would give too much"),
        ("{{ 9 ** 99999999 }}", ":1: ", "would give too much"),
        ("{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}", "", "gives more than"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(site, template, text, place, fact):
    template(text)

    message = refusal(site, make_topic(brief={"people": "many"}))

    assert message.startswith(f"sites/acme/templates/city.md.j2{place}")
    assert fact in message


def test_a_mistake_in_a_partial_is_named_there(site, template):
    template("{% import '_m.j2' as m %}\n{{ m.f(1) }}")
    template("{% macro f(x) %}\n{{ x.y.z }}{% endmacro %}", "_m.j2")

    assert refusal(site).startswith("sites/acme/templates/_m.j2:2: ")


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ joiner.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ lipsum.__globals__['os'].popen('id') }}",
        "{{ range.__class__ }}",
        "{{ title.format.__globals__ }}",
        "{{ title|attr('__class__') }}",
        "{{ title|map(attribute='__class__')|first }}",
        "{{ ['']|map(attribute='__class__.__mro__')|list }}",
        "{{ '{0.__class__}'.format(title) }}",
        "{{ '{0.__class__.__mro__}'.format_map({'0': title}) }}",
        "{{ title['__class__'] }}",
        "{{ [].append(1) }}",
        "{{ site.update({'name': 'x'}) }}",
        "{{ site.clear() }}",
        "{% set site.name = 'x' %}",
        "{{ (title|string).__init__ }}",
        "{{ config }}",
        "{{ get_flashed_messages.__globals__ }}",
        "{{ url_for.__globals__ }}",
    ],
)
def test_the_sandbox_holds(site, template, text):
    """No template reaches what Python hides, nor changes what it is given."""
    template(text)

    with pytest.raises(ProjectError):
        generate(site, make_topic())


@pytest.mark.parametrize("type", ["", "nothing", "../city", "a/b", "city\n", "."])
def test_a_type_without_template_is_named(site, template, type):
    template("x")

    assert "is missing; write it" in refusal(site, make_topic(type=type))


def test_a_template_that_is_not_utf_8_is_named_by_line(site, template):
    template("x")
    (site.folder / "templates" / "city.md.j2").write_bytes(b"one\ncaf\xe9")

    assert refusal(site).startswith("sites/acme/templates/city.md.j2:2: not UTF-8")


def test_the_stage_asks_for_repair(site, template):
    template("{{ missing }}")
    topic = make_topic()

    outcome = Generate().run(topic, Context(World(site, [topic]), topic))

    assert isinstance(outcome, Repair)
    assert "city.md.j2:1" in outcome.reason
