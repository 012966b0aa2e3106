"""A WordPress export: posts and pages with their status, their HTML as Markdown."""

from pathlib import Path

import pytest

from pipeline.intake.found import Named
from pipeline.intake.html import to_markdown
from tests.intake.scene import found_in, in_file, items, real, refused, said, titles

HEAD = (
    '<?xml version="1.0"?>\n<!-- a comment -->\n<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"'
    ' xmlns:excerpt="http://wordpress.org/export/1.2/excerpt/" xmlns:wp="http://wordpress.org/export/1.2/"><channel>'
    "<title>Old</title>\n"
)


def post(
    title: str, name: str = "", *, body: str = "Text", status: str = "publish", kind: str = "post", more: str = ""
) -> str:
    return (
        f"<item><title>{title}</title><content:encoded><![CDATA[{body}]]></content:encoded><wp:post_id>7</wp:post_id>"
        f"<wp:post_date><![CDATA[2014-03-12 10:00:00]]></wp:post_date><wp:post_name>{name}</wp:post_name>"
        f"<wp:status>{status}</wp:status><wp:post_type>{kind}</wp:post_type>{more}</item>\n"
    )


def export(*posts: str) -> str:
    return HEAD + "".join(posts) + "</channel></rss>"


def test_posts_and_pages_are_topics_and_nothing_else_is(tmp_path: Path) -> None:
    given = export(
        post("One &amp; all", "one"),
        post("Two", "two", kind="page"),
        post("m", kind="nav_menu_item"),
        post("p", kind="attachment", status="inherit"),
    )
    found = in_file(tmp_path, "a.xml", given)

    assert [(one.title, one.type, one.name) for one in items(found)] == [
        ("One & all", "post", "one"),
        ("Two", "page", "two"),
    ]
    assert sorted(said(found)) == [
        "1 of type attachment: no posts and no pages",
        "1 of type nav_menu_item: no posts and no pages",
    ]


def test_status_is_respected(tmp_path: Path) -> None:
    """Only what readers may see there is taken, unless it is asked for; a password keeps its post."""
    states = ("draft", "future", "private", "pending", "trash")
    given = export(*(post(s, s, status=s) for s in states), post("x", more="<wp:post_password>p</wp:post_password>"))

    found = in_file(tmp_path, "a.xml", given)

    assert items(found) == []
    assert len(said(found)) == 6
    asked = Named(statuses=frozenset({"publish", "draft"}))
    assert titles(in_file(tmp_path, "a.xml", given, asked)) == ["draft"]


def test_terms_dates_and_percent_signs(tmp_path: Path) -> None:
    more = (
        '<category domain="category" nicename="c"><![CDATA[Cats]]></category><category domain="post_tag" nicename="t"/>'
    )
    (found,) = items(in_file(tmp_path, "a.xml", export(post("A", "%ce%b1%CE%B2", more=more))))

    assert found.name == "αβ"
    assert found.cells["category"] == "Cats"
    assert found.cells["date"] == "2014-03-12T10:00:00"
    assert found.text is not None
    assert found.text.fields["tags"] == ["t"]


@pytest.mark.parametrize(
    "data",
    [
        export(post("A"))[:-30],
        export(post("A"), "<item>&nbsp;</item>"),
        export(post("A"), "\x0b"),
        HEAD + "<x>" * 100,
        '<!DOCTYPE a [<!ENTITY b "c">]>\n' + export(post("A")),
        '<?xml version="1.0" encoding="nope"?><rss/>',
    ],
)
def test_a_broken_export_is_refused_whole_with_its_line(tmp_path: Path, data: str) -> None:
    """O-66: never a part of it without a word."""
    path = tmp_path / "a.xml"
    path.write_text(data)
    from pipeline.intake.found import Unreadable
    from pipeline.intake.sources import Source, read

    with pytest.raises(Unreadable):
        list(read(Source("a.xml", path), Named()))


def test_an_entity_bomb_is_no_document(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    data = f'<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY a0 "lol">{entities}]><rss>&a11;</rss>'

    ((_, why),) = refused(in_file(tmp_path, "a.xml", data))

    assert "document type" in why


def test_other_documents_are_refused(tmp_path: Path) -> None:
    assert "neither" in refused(in_file(tmp_path, "a.xml", "<html/>"))[0][1]


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("One\nline\n\nTwo", "One\nline\n\nTwo\n"),
        (
            "<p>A <strong>bold</strong> and <em>fine</em> <a href='/x y/'>link</a></p>",
            "A **bold** and *fine* [link](/x%20y/)\n",
        ),
        ("<h1>Top</h1>text<h3>Sub</h3>", "## Top\n\ntext\n\n### Sub\n"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>", "- a\n\n  - b\n\n- c\n"),
        ("<ol start='3'><li>a</li><li>b</li></ol>", "3. a\n\n4. b\n"),
        ("<blockquote><p>a</p><p>b</p></blockquote>", "> a\n\n> b\n"),
        ("<pre><code>x &lt; y\n\n* z</code></pre>", "```\nx < y\n\n* z\n```\n"),
        ("use <code>a*b</code> here", "use `a*b` here\n"),
        ("<img src='a.png' alt='A b'>", "![A b](a.png)\n"),
        (
            "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2|3</td></tr></table>",
            "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |\n",
        ),
        ("<script>alert(1)</script>a<style>b</style>", "a\n"),
        ("<a href='javascript:alert(1)'>a</a><img src='data:x'>", "a\n"),
        ("# 5 * 3_4 [x] <!-- wp --> 1 < 2", "\\# 5 \\* 3\\_4 \\[x\\]  1 \\< 2\n"),
        ("a<br/>b", "a\\\nb\n"),
        ("a<br/> <br>b<br>", "a\n\nb\n"),
        ("<strong> a </strong>b<em></em>", "**a** b\n"),
        ("", ""),
    ],
)
def test_html_becomes_markdown(html: str, markdown: str) -> None:
    assert to_markdown(html) == markdown


def test_html_nested_without_end_is_read_all_the_same() -> None:
    assert "end" in to_markdown("<blockquote>" * 5000 + "end")
    assert "end" in to_markdown("<ul><li>" * 5000 + "end" + "</li></ul>" * 9000)


@pytest.mark.skipif(real("wordpress-theme-test.wxr.xml") is None, reason="the export is not here")
def test_the_theme_test_data() -> None:
    path = real("wordpress-theme-test.wxr.xml")
    assert path is not None

    found = found_in(path)

    assert len(items(found)) == 76
    assert refused(found) == []
    assert {one.type for one in items(found)} == {"post", "page"}
    assert "επίπεδο-2" in {one.name for one in items(found)}
    assert sum("status is" in text for text in said(found)) == 2
    assert sum("protected" in text for text in said(found)) == 1
