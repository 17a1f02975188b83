"""From files of text to records: blocks of text with what the file says about them."""

from __future__ import annotations

import codecs
import dataclasses
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from domains.text.canonical import replace_surrogates
from domains.text.markup import Block, html_blocks, markdown_blocks
from domains.text.sentences import split_paragraphs
from seqbert.data.compressed import DAMAGE, Stream, open_decompressed, without_compression
from seqbert.domain import Report
from seqbert.errors import DataError, nearest


@dataclasses.dataclass(slots=True)
class Record:
    """One document as its file gives it.

    Attributes:
        id: A name within the file.
        blocks: Its text, in order.
        source: ``file`` or ``file:line``.
        metadata: What the file says of it, as it says it.
    """

    id: str
    blocks: list[Block]
    source: str
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


def ending(path: Path) -> str:
    """The ending that says what a file holds, in lower case: the last that does not name a compression."""
    return without_compression(path).suffix.lower()


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a UTF-8 file, without their ends and without a byte-order mark.

    Lines end with LF, CRLF or CR. gzip (all members), bzip2, xz and zstd are told from the first bytes.

    Raises:
        DataError: The file cannot be opened, is binary, is not UTF-8 (the line is named), or its
            compressed data is damaged or cut off.
    """
    number = 0
    try:
        with open_decompressed(path) as file:
            _check_beginning(path, file)
            for raw in file:
                if number == 0:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                for line in _decoded(path, number + 1, raw).split("\r"):
                    number += 1
                    yield number, line
    except EOFError as error:
        raise DataError(
            f"{path} ends in the middle of its compressed data, after line {number}: it was cut off. "
            "Copy or download it again."
        ) from error
    except DAMAGE as error:
        raise DataError(f"{path} cannot be read after line {number}: {error}.") from error


def text_records(path: Path, sentence_per_line: bool) -> Iterator[Record]:
    """The documents of a plain text file: what blank lines separate.

    Args:
        path: The file.
        sentence_per_line: Whether each line is a sentence; otherwise line breaks are those of a
            typesetter, and mean a space.
    """
    for blank, group in groupby(lines(path), key=lambda numbered: not numbered[1].strip()):
        if blank:
            continue
        numbers, texts = zip(*group, strict=True)
        blocks = [Block(text, whole=True) for text in texts]
        if not sentence_per_line:
            blocks = [Block("\n".join(texts))]
        yield Record(f"{path.name}:{numbers[0]}", blocks, f"{path}:{numbers[0]}")


def markdown_record(path: Path) -> Record:
    """A Markdown file as one document."""
    text = "\n".join(line for _, line in lines(path))
    return Record(path.name, markdown_blocks(text), str(path))


def html_record(path: Path) -> Record:
    """An HTML page as one document, with its ``lang`` attribute as the metadata "language"."""
    blocks, language = html_blocks(line + "\n" for _, line in lines(path))
    return Record(path.name, blocks, str(path), {"language": language} if language else {})


def json_records(path: Path, field: str, report: Report) -> Iterator[Record]:
    """The documents of a JSON Lines file: one object a line.

    The text is a string, in which blank lines separate paragraphs, or a list of sentences. The object's other
    strings, numbers and truth values become metadata, and its "id" the document's.

    Args:
        path: The file.
        field: The field that holds the text.
        report: Told of each line that is left out, and why.

    Raises:
        DataError: No object of the file has the field.
    """
    known_fields: dict[str, None] = {}
    has_field = False
    for number, line in lines(path):
        if not line.strip():
            continue
        source = f"{path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            report.skipped(source, "the line is not valid JSON")
            continue
        if not isinstance(value, dict):
            report.skipped(source, "the line is not a JSON object")
            continue
        if field not in value:
            known_fields.update(dict.fromkeys(value))
            report.skipped(source, f'the object has no field "{field}"')
            continue
        has_field = True
        blocks = _json_blocks(value.pop(field))
        if blocks is None:
            report.skipped(source, f'the field "{field}" is neither a string nor a list of strings')
            continue
        repaired = [block._replace(text=replace_surrogates(block.text)) for block in blocks]
        if repaired != blocks:
            report.repaired(source, "halves of surrogate pairs replaced by U+FFFD")
        metadata = {key: _plain(item) for key, item in value.items() if isinstance(item, str | int | float)}
        yield Record(metadata.pop("id", str(number)), repaired, source, metadata)
    if known_fields and not has_field:
        raise DataError(
            f'{path} has no field "{field}": its objects have {", ".join(sorted(known_fields)[:20])}. '
            f"Name the field that holds the text with the option text_field.{nearest(field, known_fields)}"
        )


def _check_beginning(path: Path, file: Stream) -> None:
    """Tells a binary file before a "line" of it, which may be all of it, is in memory."""
    start = file.peek(4096)[:4096]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16 text. Convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8.")
    if b"\0" in start:
        raise DataError(f"{path} holds NUL bytes: it is a binary file, or text that is not UTF-8, and is not read.")


def _decoded(path: Path, number: int, raw: bytes) -> str:
    if b"\0" in raw:
        raise DataError(f"{path}, line {number}, holds NUL bytes: the file is damaged or is not text.")
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}, is not UTF-8: byte {error.start + 1} of it is 0x{raw[error.start]:02x}. "
            "Convert the file to UTF-8, for example with iconv, or mend that line."
        ) from error


def _json_blocks(text: Any) -> list[Block] | None:
    if isinstance(text, str):
        return [Block(paragraph) for paragraph in split_paragraphs(text)]
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        return [Block(sentence, whole=True) for sentence in text]
    return None


def _plain(value: str | int | float) -> str:
    return replace_surrogates(value) if isinstance(value, str) else json.dumps(value)
