"""Hostile titles, bodies and rows come out as words, never as script."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from pipeline import Done, Draft
from pipeline.content import article, card_of, check, lane_of, model, render
from pipeline.content.markup import ATTRIBUTES, TAGS, to_html
from stages import Generate, Publish

from .fakes import Context, Reader, World, make_lane, make_site

ELEMENTS = [
    "<script>alert(1)</script>", "<ScRiPt src=//x.example/a.js></sCrIpT>", "<script/x>alert(1)</script >",
    "<img src=x onerror=alert(1)>", "<img/src=`x`onerror=alert(1)>", "<img src=x onerror=alert(1)//",
    "<svg onload=alert(1)>", "<svg><script>alert(1)</script></svg>",
    "<svg><a xlink:href=javascript:alert(1)>x</a></svg>", "<svg><animate onbegin=alert(1) attributeName=x>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>", "<body onload=alert(1)>",
    "<iframe src=javascript:alert(1)>", "<iframe srcdoc='<script>alert(1)</script>'>",
    "<object data=javascript:alert(1)>", "<embed src=javascript:alert(1)>",
    "<form action=javascript:alert(1)><button>", "<button formaction=javascript:alert(1)>x</button>",
    "<input autofocus onfocus=alert(1)>", "<details open ontoggle=alert(1)>", "<video><source onerror=alert(1)>",
    "<audio src=x onerror=alert(1)>", "<marquee onstart=alert(1)>", "<isindex action=javascript:alert(1) type=image>",
    "<base href=//x.example/>", "<link rel=stylesheet href=//x.example/a.css>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<style>*{background:url(javascript:alert(1))}</style>", "<div style='x:expression(alert(1))'>x</div>",
    "<template><script>alert(1)</script></template>", "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<textarea><script>alert(1)</script>", "<title></title><script>alert(1)</script>",
    "<xmp><script>alert(1)</script></xmp>", "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>", "<?xml <script>alert(1)</script>?>", "</title><script>alert(1)</script>",
    "</script><script>alert(1)</script>", "</style><script>alert(1)</script>",
    "</p></article></main><script>alert(1)</script>", '"><script>alert(1)</script>', "'><img src=x onerror=alert(1)>",
    '" onmouseover=alert(1) x="', "' onfocus='alert(1)' autofocus='", "` onclick=alert(1) `",
    "<<script>alert(1)//<</script>", "<scr<script>ipt>alert(1)</scr</script>ipt>", "<\x00script>alert(1)</script>",
    "<script\x0b>alert(1)</script>", "\u2028<script>alert(1)</script>", "＜script＞alert(1)＜/script＞",
    "&lt;script&gt;alert(1)&lt;/script&gt;", "&#60;script&#62;alert(1)&#60;/script&#62;",
    "%3Cscript%3Ealert(1)%3C/script%3E", "\\u003cscript\\u003ealert(1)", "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}", "#{7*7}", "<%= 7*7 %>", "<a href=javascript:alert(1)>x</a>",
    "<a href='jav&#x09;ascript:alert(1)'>x</a>", "<a href=data:text/html,x>x</a>",
]  # fmt: skip
MARKDOWN = [
    "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](java&#115;cript:alert(1))",
    "[x](javascript&colon;alert(1))", "[x](&#x6A;avascript:alert(1))", "[x](java\\script:alert(1))",
    "[x](<javascript:alert(1)>)", "[x]( javascript:alert(1))", "[x](<\tjavascript:alert(1)>)",
    "[x](\x01javascript:alert(1))", "[x](vbscript:msgbox(1))", "[x](data:text/html;base64,PHM+)",
    "[x](file:///etc/passwd)", "[x](%6Aavascript:alert(1))", "[x](javascript%3Aalert(1))",
    "[x](//x.example/%0ajavascript:)", "![x](javascript:alert(1))", "![x](data:image/svg+xml,<svg/onload=alert(1)>)",
    '![x" onerror="alert(1)](a.png)', '![x](a.png "y" onerror=alert(1))', '![x](a.png \'" onerror="alert(1)\')',
    '[x](a "\\" onclick=\\"alert(1)")', "<javascript:alert(1)>", "<data:text/html,x>",
    "[x][a]\n\n[a]: javascript:alert(1)", "[a]: javascript:alert(1)\n\n[a]", '[x](http://a"onclick=alert(1))',
    "[x](http://a'onclick='alert(1))", '<http://a"onclick=alert(1)>', '```"><script>alert(1)</script>\nx\n```',
    "```html onload=alert(1)\n<script>alert(1)</script>\n```", "    <script>alert(1)</script>",
    "`<script>alert(1)</script>`", "## <script>alert(1)</script>", '## x" onclick="alert(1)',
    "## [x](javascript:alert(1))", "| <script>alert(1)</script> |\n|---|\n| x |",
    '| [x](javascript:alert(1)) |\n|:-:" onclick=alert(1)|\n| x |', "> <script>alert(1)</script>",
    "- <img src=x onerror=alert(1)>", "1. [x](javascript:alert(1))", "[<script>alert(1)</script>](a)",
    "[x](a)<script>alert(1)</script>", "*<script>alert(1)</script>*",
    "[![x](javascript:alert(1))](javascript:alert(1))",
]  # fmt: skip
VECTORS = ELEMENTS + MARKDOWN
# A browser drops these before it looks for a scheme, and only such words are a scheme.
IGNORED = re.compile(r"[\x00-\x20]")
SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)


def is_plain(address: str) -> bool:
    scheme = SCHEME.match(IGNORED.sub("", address))
    return scheme is None or scheme.group(1).lower() in ("http", "https", "mailto")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """For each vector the bytes of a site that holds it everywhere a source can put it.

    Validation is left out: rendering must be safe even for a draft that a person forced through.
    """
    made = {}

    def pages(vector: str) -> dict[str, bytes]:
        if vector not in made:
            site = make_site(tmp_path_factory.mktemp("hostile"), name=f"A {vector}", tagline=vector, description=vector)
            site = site.model_copy(update={"lanes": {"japan": f"Japan {vector}"}})
            folder = site.folder / "templates"
            folder.mkdir(parents=True)
            for type in ("city", "country"):
                (folder / f"{type}.md.j2").write_text("{{ note }}\n\nText {{ note }} text.\n")
            world = World(site, [replace(t, title=f"T {vector}", brief={"note": vector}) for t in make_lane(2)])
            for topic in world.topics:
                assert isinstance(world.stage(Generate, topic), Done)
                world.write(topic, replace(world.drafts[topic.id], description=f"D {vector}"))
                assert isinstance(world.stage(Publish, topic), Done)
            assert isinstance(world.assemble(), Done)
            made[vector] = world.files()
        return made[vector]

    return pages


def test_there_are_enough_vectors():
    assert len(set(VECTORS)) >= 100


@pytest.mark.parametrize("vector", VECTORS)
def test_a_hostile_text_stays_text(pages, vector):
    """No script, no handler, no address but plain ones; and no second title, heading or head."""
    plain = pages("plain")
    for name, data in pages(vector).items():
        if name.endswith(".xml"):
            ElementTree.fromstring(data)
        if not name.endswith(".html"):
            continue
        reader = Reader(data)
        for tag, attrs in reader.tags:
            assert tag not in {"iframe", "object", "embed", "form", "input", "button", "base", "style", "svg", "math"}
            if tag == "script":
                assert attrs == {"type": "application/ld+json"}
            assert not [key for key in attrs if key.startswith("on") or key in ("style", "srcdoc", "formaction")]
            for key in ("href", "src", "action", "xlink:href"):
                assert is_plain(attrs.get(key) or ""), (tag, attrs)
        structure = [tag for tag, _ in Reader(plain[name]).tags]
        for tag in ("script", "title", "h1", "main", "article", "meta", "link", "body", "head"):
            assert [tag for tag, _ in reader.tags].count(tag) == structure.count(tag)


def test_hostile_texts_are_still_readable(pages):
    """What was neutralised is shown, not lost."""
    reader = Reader(pages("<script>alert(1)</script>")["japan/index.html"])

    assert "<script>alert(1)</script>" in "".join(reader.text)


PIECES = [*"<>[]()\"'`|#*_-!&;:/=\n\t \\a1", "javascript:", "onerror=", "script", "](", "\n\n", "&#", "http://"]


@settings(max_examples=150, deadline=None)
@given(body=st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_markdown_comes_out_clean(body):
    """Whatever is written: tags of the allow-list only, plain addresses only; and the same each time."""
    html = to_html(body)

    assert html == to_html(body)
    for tag, attrs in Reader(html.encode()).tags:
        assert tag in TAGS
        assert set(attrs) <= ATTRIBUTES.get(tag, set())
        assert is_plain(attrs.get("href") or attrs.get("src") or "")


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=200), title=st.text(max_size=80))
def test_any_draft_gets_findings_and_a_page(tmp_path_factory, text, title):
    """No text, however strange, makes rules or rendering fail."""
    site = make_site(tmp_path_factory.getbasetemp())
    topics = make_lane(1)
    world = World(site, topics)
    draft = Draft(title, text, text)

    findings = check(site, topics[1], draft, Context(world, topics[1]))
    page = model(site, card_of(topics[1], draft), lane_of([]))

    assert all(finding.rule and (finding.line or 1) >= 1 for finding in findings)
    assert [tag for tag, _ in Reader(render(site, page, article(site, draft))).tags].count("title") == 1
