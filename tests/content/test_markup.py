"""Markdown becomes clean HTML with steady heading ids."""

import pytest

from pipeline.content.markup import clean, slugify, to_html, tokens


@pytest.mark.parametrize(
    ("body", "html"),
    [
        ("*a* **b** `c`", "<p><em>a</em> <strong>b</strong> <code>c</code></p>"),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
        ("[a](https://x.example)", '<p><a href="https://x.example">a</a></p>'),
        ("[a](mailto:a@b.example)", '<p><a href="mailto:a@b.example">a</a></p>'),
        ("[a](ftp://x.example)", "<p><a>a</a></p>"),
        ("[a](/x/)", '<p><a href="/blog/x/">a</a></p>'),
        ("[a](//x.example/)", '<p><a href="//x.example/">a</a></p>'),
        ("[a](../x/)", '<p><a href="../x/">a</a></p>'),
        ("[a](#x)", '<p><a href="#x">a</a></p>'),
        ("![a](/x.png)", '<p><img src="/blog/x.png" alt="a"></p>'),
        ("![a](data:image/png;base64,AA)", '<p><img alt="a"></p>'),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>'),
    ],
)
def test_html(body, html):
    assert to_html(body, "/blog").strip() == html


def test_tables_are_made():
    assert "<th>a</th>" in to_html("| a |\n|---|\n| b |\n")


def test_heading_ids_are_unique_and_readable():
    ids = [token.attrGet("id") for token in tokens("## A b\n\n## A b\n\n## A b-2\n\n## Über!\n\n## ?\n\n## Content\n")]

    assert [id for id in ids if id] == ["a-b", "a-b-2", "a-b-2-2", "über", "section", "content-2"]


@pytest.mark.parametrize(
    ("text", "slug"), [("Kyōto & Ōsaka", "kyoto-osaka"), ("it's", "its"), ("日本", ""), ("--a__b--", "a-b"), (7, "7")]
)
def test_slugify(text, slug):
    assert slugify(text) == slug


def test_clean_keeps_text_and_drops_what_xml_forbids():
    assert clean("a\t\n\r é😀\x00\x0b\x1f\x7f\x85\ud800\ufffe\uffff") == "a\t\n\r é😀"
