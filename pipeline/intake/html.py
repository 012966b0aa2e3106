"""HTML, as a blog's editor leaves it, to Markdown; ground floor.

It keeps what Markdown can say: paragraphs, headings, emphasis, links, pictures, lists, quotes, code, plain tables.
Other tags go and their words stay; scripts, styles and frames go whole. Blank lines part paragraphs, as that editor has
it.
"""

import re
from html.parser import HTMLParser

GONE = frozenset({"script", "style", "iframe", "object", "embed", "noscript", "template", "svg", "form"})
BLOCKS = frozenset({"p", "div", "section", "article", "header", "footer", "figure", "figcaption", "address", "table",
                    "center", "dl", "dt", "dd", "aside", "main", "tbody", "thead", "caption", "details",
                    "summary"})  # fmt: skip
STRONG, EM, BREAK = "\x03", "\x04", "\x05"  # until the block is whole
MARKS = {"strong": STRONG, "b": STRONG, "em": EM, "i": EM, "cite": EM}
SPECIAL = re.compile(r"([\\`*_\[\]<])")
AT_START = re.compile(r"^(\s*)([#>+-]|\d+[.)])(?=\s|$)", re.MULTILINE)
MAX_DEPTH = 64


def to_markdown(html: str) -> str:
    """The text as Markdown."""
    maker = _Maker()
    maker.feed(html)
    maker.close()
    return maker.done()


class _Maker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._blocks: list[tuple[str, str]] = []  # what stands before each line, and the text
        self._text: list[str] = []
        self._prefix: list[str] = []  # of quotes and lists, outermost first
        self._bullet = ""  # of a list item that has not begun its text
        self._lists: list[int | None] = []  # the next number; None: bullets
        self._links: list[str] = []
        self._gone = 0
        self._pre = False
        self._code = 0
        self._cells: list[str] | None = None
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in GONE:
            self._gone += 1
        if self._gone:
            return
        match tag:
            case "br":
                self._text.append("\n" if self._pre else BREAK if self._cells is None else " ")
            case "hr":
                self._break()
                self._add("---")
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._break()
                self._text.append("#" * max(2, int(tag[1])) + " ")
            case "blockquote":
                self._break()
                self._nest("> ")
            case "ul" | "ol":
                self._break()
                start = given.get("start", "1")
                self._lists.append(None if tag == "ul" else int(start) if start.isdigit() and len(start) < 9 else 1)
            case "li":
                self._break()
                number = self._lists[-1] if self._lists else None
                self._bullet = "- " if number is None else f"{number}. "
                if number is not None:
                    self._lists[-1] = number + 1
                self._nest(" " * len(self._bullet))
            case "pre":
                self._break()
                self._pre = True
            case "code" | "tt" | "kbd" | "samp":
                if not self._pre:
                    self._code += 1
                    self._text.append("\x01")
            case "a":
                self._links.append(_address(given.get("href", "")))
                self._text.append("[" if self._links[-1] else "")
            case "img":
                if source := _address(given.get("src", "")):
                    self._text.append(f"![{_escaped(' '.join(given.get('alt', '').split()))}]({source})")
            case "tr":
                self._break()
                self._row()
                self._cells = []
            case "td" | "th":
                self._cell()
            case _ if tag in MARKS and not self._pre:
                self._text.append(MARKS[tag])
            case _ if tag in BLOCKS and self._cells is None:
                self._break()

    def handle_endtag(self, tag: str) -> None:
        if tag in GONE:
            self._gone = max(0, self._gone - 1)
            return
        if self._gone:
            return
        match tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" | "div":
                if self._cells is None:
                    self._break()
            case "blockquote" | "li":
                self._break()
                self._bullet = ""
                if self._prefix:
                    self._prefix.pop()
            case "ul" | "ol":
                self._break()
                if self._lists:
                    self._lists.pop()
            case "pre" if self._pre:
                code = "".join(self._text).strip("\n")
                self._text.clear()
                self._pre = False
                fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", code)), default=0))
                self._add(f"{fence}\n{code}\n{fence}")
            case "code" | "tt" | "kbd" | "samp":
                if self._code:
                    self._code -= 1
                    self._text.append("\x02")
            case "a":
                if self._links and (address := self._links.pop()):
                    self._text.append(f"]({address})")
            case "td" | "th":
                self._cell()
            case "table":
                self._row()
                self._table()
            case _ if tag in MARKS and not self._pre:
                self._text.append(MARKS[tag])
            case _ if tag in BLOCKS and self._cells is None:
                self._break()

    def handle_data(self, data: str) -> None:
        if self._gone:
            return
        if self._pre:
            self._text.append(data)
            return
        if self._cells is not None:
            self._text.append(_escaped(" ".join(data.split("\n"))).replace("|", "\\|"))
            return
        for number, part in enumerate(re.split(r"\n[ \t\r]*\n\s*", data)):
            if number:
                self._break()
            self._text.append(part if self._code else _escaped(part))

    def done(self) -> str:
        self._row()
        self._table()
        self._break()
        lines: list[str] = []
        for prefix, block in self._blocks:
            if lines:
                lines.append("")
            first, *rest = block.split("\n")
            mark, inner = prefix.split("\0")
            lines.append((mark + first).rstrip())
            lines += [(inner + line).rstrip() if line else inner.rstrip() for line in rest]
        return "\n".join(lines).strip("\n") + "\n" if lines else ""

    def _nest(self, prefix: str) -> None:
        if len(self._prefix) >= MAX_DEPTH:
            prefix = ""
        self._prefix.append(prefix)

    def _break(self) -> None:
        """End the block that is being written."""
        if self._pre or self._cells is not None:
            return
        text = "".join(self._text)
        self._text.clear()
        while self._code:
            self._code -= 1
            text += "\x02"
        text = re.sub("\x01([^\x01\x02]*)\x02", _code, text).replace("\x01", "").replace("\x02", "")
        text = "\n".join(line.strip(" \t") for line in text.split("\n"))
        text = re.sub(r"\[\s*\]\([^)]*\)", "", text)
        for part in re.split(f"(?:{BREAK}\\s*){{2,}}", text):
            self._paragraph(part.strip(f"{BREAK} \t\n"))

    def _paragraph(self, text: str) -> None:
        for mark, written in ((STRONG, "**"), (EM, "*")):
            text = re.sub(f"{mark}(\\s*){mark}", r"\1", text)
            text = re.sub(f"{mark}(\\s*)([^{mark}]*?)(\\s*){mark}", rf"\1{mark}\2{mark}\3", text)
            text = (text.replace(mark, "") if text.count(mark) % 2 else text).replace(mark, written)
        if re.match(r"#{2,6} ", text):
            text = " ".join(text.replace(BREAK, " ").split())
        else:
            text = re.sub(f"[ \\t]*{BREAK}\\s*", "\\\\\n", AT_START.sub(r"\1\\\2", text.strip()))
        if text.strip("# "):
            self._add(text)

    def _add(self, text: str) -> None:
        inner = "".join(self._prefix)
        mark = inner
        if self._bullet:
            mark = "".join(self._prefix[:-1]) + self._bullet
            self._bullet = ""
        self._blocks.append((f"{mark}\0{inner}", text))

    def _cell(self) -> None:
        if self._cells is not None and (text := " ".join("".join(self._text).split())):
            self._cells.append(
                re.sub("[\x01\x02]", "`", text).replace(STRONG, "**").replace(EM, "*").replace(BREAK, " ")
            )
        self._text.clear()

    def _row(self) -> None:
        if self._cells is not None:
            self._cell()
            if self._cells:
                self._rows.append(self._cells)
            self._cells = None

    def _table(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        width = max(map(len, rows))
        head, *rest = [row + [""] * (width - len(row)) for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * width, *rest)]
        self._add("\n".join(lines))


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _code(found: re.Match[str]) -> str:
    inner = found[1]
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", inner)), default=0))
    space = " " if inner.startswith("`") or inner.endswith("`") else ""
    return f"{fence}{space}{inner}{space}{fence}" if inner.strip() else inner


def _address(text: str) -> str:
    """An address as Markdown takes it; nothing when it leads nowhere that a page may link to."""
    said = re.sub(r"\s", "%20", text.strip())
    if re.match(r"(?i)[a-z][a-z0-9+.-]*:", said) and not re.match(r"(?i)(https?|mailto):", said):
        return ""
    return said.replace("(", "%28").replace(")", "%29").replace("<", "%3C").replace(">", "%3E")
