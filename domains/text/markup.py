"""Taking the markup off Markdown and HTML: what is left are blocks of plain text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it.token import Token


_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCK_NAMES = """
    address article aside blockquote body caption center dd details dialog dir div dl dt fieldset
    figcaption figure footer form header hgroup hr html legend li main menu nav ol optgroup option p
    pre search section select summary table tbody tfoot thead tr ul
"""
_BLOCKS = _HEADINGS.union(_BLOCK_NAMES.split())
_SPACES = frozenset({"br", "td", "th"})
_NO_TEXT = frozenset({"math", "noscript", "script", "style", "svg", "template", "textarea", "title"})


class Block(NamedTuple):
    """A stretch of text that no sentence crosses the ends of.

    Attributes:
        text: Plain text; line breaks in it are spaces.
        whole: Whether it is one segment as it stands (a heading, a given sentence) or is to be cut into
            sentences.
    """

    text: str
    whole: bool = False


def markdown_blocks(text: str) -> list[Block]:
    """Paragraphs, list items, table rows, code and headings of a CommonMark text, in order.

    Links and pictures leave their text, code stays as it is written, a YAML preamble between ``---``
    lines goes, and embedded HTML is taken off by :func:`html_blocks`.
    """
    from markdown_it import MarkdownIt

    blocks: list[Block] = []
    row: list[str] = []
    within: list[str] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(_without_preamble(text)):
        if token.nesting > 0:
            within.append(token.type)
        elif token.nesting < 0:
            within.pop()
            if token.type == "tr_close":
                blocks.append(Block(" ".join(row)))
                row = []
        elif token.type == "inline":
            content = _inline_text(token.children or [])
            if "tr_open" in within:
                row.append(content)
            else:
                blocks.append(Block(content, whole=within[-1] == "heading_open"))
        elif token.type in ("code_block", "fence"):
            blocks.append(Block(token.content))
        elif token.type == "html_block":
            blocks += html_blocks(token.content)
    return blocks


def html_blocks(text: str) -> list[Block]:
    """The text of a piece of HTML, as :class:`HtmlPage` gives it."""
    page = HtmlPage()
    page.feed(text)
    page.close()
    return page.take_blocks()


class HtmlPage(HTMLParser):
    """The text of an HTML page, cut where its block elements begin and end.

    Scripts, styles, titles and drawings are no text of the page. Headings are whole; a table's row is one
    block. The standard library's parser is enough for this: it is fed piece by piece, so that a page of any
    size is read in little memory, forgives what browsers forgive, and where blocks end at both tags it makes
    no difference which end tags a page leaves out. Menus and advertisements are text like any other.

    Attributes:
        language: The ``lang`` attribute of the page as it writes it, "" where it says none.
        left_out: Whether there was text within an element without text that was open at the page's end.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.language = ""
        self.left_out = False
        self._blocks: list[Block] = []
        self._text: list[str] = []
        self._heading = False
        self._hidden: list[str] = []

    def take_blocks(self, longest: int | None = None) -> list[Block]:
        """The blocks that have ended since the last call, in order.

        Args:
            longest: Characters above which a block that has not ended is taken too; what follows is another.
        """
        if longest is not None and sum(map(len, self._text)) > longest:
            self._end_block()
        taken, self._blocks = self._blocks, []
        return taken

    def close(self) -> None:
        """Ends the page, and with it its last block."""
        super().close()
        left_out = self.left_out or bool(self.rawdata.strip())  # an open script stays there
        self.left_out = left_out and bool(self._hidden)
        self._end_block()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Takes the language off a page's outer elements, and ends a block or begins a hidden element."""
        if tag in ("html", "body") and not self.language:
            given = dict(attrs)
            self.language = given.get("lang") or given.get("xml:lang") or ""
        if tag in _NO_TEXT:
            self._hidden.append(tag)
        self._break(tag)
        self._heading = self._heading or tag in _HEADINGS

    def handle_endtag(self, tag: str) -> None:
        """Ends a block, or a hidden element with those that are open within it."""
        if tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
            self.left_out = False
        self._break(tag)

    def handle_data(self, data: str) -> None:
        """Adds text to the block."""
        if not self._hidden:
            self._text.append(data)
        elif not data.isspace():
            self.left_out = True

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end_block()
        elif tag in _SPACES:
            self._text.append(" ")

    def _end_block(self) -> None:
        text = "".join(self._text)
        if text and not text.isspace():
            self._blocks.append(Block(text, self._heading))
        self._text = []
        self._heading = False


def _without_preamble(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    _, end, rest = text.partition("\n---\n")
    return rest if end else text


def _inline_text(tokens: list[Token]) -> str:
    parts = []
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(_inline_text(token.children or []))
        elif token.type != "html_inline":
            parts.append(token.content)
        elif token.content.lower().startswith("<br"):
            parts.append(" ")
    return "".join(parts)
