"""What format a file of text is in: told from its content, with its ending as a hint."""

from __future__ import annotations

import codecs
import csv
import json
import re
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from domains.text.lines import decoded_head, read_head
from seqbert.data.compressed import without_compression
from seqbert.data.content import describe
from seqbert.errors import DataError

Format: TypeAlias = Literal["text", "markdown", "html", "jsonl", "csv", "tsv", "parquet", "wikipedia"]

FORMATS: dict[str, str] = {
    ".txt": "plain text; see the option documents",
    ".md": "Markdown, one document a file",
    ".markdown": "Markdown, one document a file",
    ".html": "HTML, one document a file",
    ".htm": "HTML, one document a file",
    ".jsonl": "JSON Lines, one document a line",
    ".ndjson": "JSON Lines, one document a line",
    ".csv": "a table with a header, one document a row",
    ".tsv": "a table with tabs and a header, one document a row",
    ".parquet": "Parquet, one document a row",
    ".wiki": "a Wikipedia extract as WikiExtractor writes it; its own files, wiki_00 and so on, have no ending",
}

_HINTS: dict[str, Format] = {
    ".txt": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".wiki": "wikipedia",
}
_PLAIN = ("plain text", "blank lines", "an empty file", "a table with commas", "a table with semicolons")
_DOC = re.compile(r'\s*<doc\s[^>\n]*\bid="')
_HTML = re.compile(r"\s*(<\?xml[^>]*>\s*|<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_MARKDOWN = re.compile(r"---\n|\s*#{1,6}[ ]\S")


def ending(path: Path) -> str:
    """The ending that says what a file holds, in lower case: the last that does not name a compression."""
    return without_compression(path).suffix.lower()


def format_of(path: Path, text_field: str, encoding: str) -> Format:
    """The format to read a file in.

    Raises:
        DataError: The file cannot be opened, or neither its ending nor its content is that of a text.
    """
    head = read_head(path)
    hint = _HINTS.get(ending(path))
    certain = _certain(head, text_field, encoding)
    if certain in ("csv", "tsv") and hint not in (None, "csv", "tsv"):
        certain = None  # the first line of a text may look like a header
    if certain or hint:
        return certain or hint or "text"
    text = decoded_head(head, encoding)
    looks = describe(head if codecs.lookup(encoding).name == "utf-8" else text.encode("utf-8", "replace"))
    if _MARKDOWN.match(text):
        return "markdown"
    if looks not in _PLAIN:
        raise DataError(
            f"{path} looks like {describe(head)}, which is not read as text. If it is text, set the option format to "
            f"one of {', '.join(get_args(Format))}; the endings that are known are {', '.join(FORMATS)}."
        )
    return "text"


def is_certain(path: Path, text_field: str, encoding: str) -> bool:
    """Whether the content alone tells the format, as it does in all but plain text and Markdown.

    Raises:
        DataError: The file cannot be opened.
    """
    return _certain(read_head(path), text_field, encoding) is not None


def _certain(head: bytes, text_field: str, encoding: str) -> Format | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    text = decoded_head(head, encoding)
    if _DOC.match(text):
        return "wikipedia"
    if _HTML.match(text):
        return "html"
    first = text.lstrip().partition("\n")[0]
    if first.startswith("{"):
        return "jsonl" if _is_object(first) else None
    for separator, kind in (("\t", "tsv"), (",", "csv")):
        if separator in first and text_field in next(csv.reader([first], delimiter=separator), ()):
            return kind  # type: ignore[return-value]
    return None


def _is_object(line: str) -> bool:
    """Whether a line is a JSON object, or the beginning of a long one."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return len(line) > 4096 and re.match(r'\{\s*"', line) is not None
