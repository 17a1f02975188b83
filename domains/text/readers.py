"""From files of text to records: blocks of text with what the file says about them."""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeAlias

from domains.text.canonical import replace_surrogates
from domains.text.lines import LONGEST_LINE, lines
from domains.text.markup import Block, HtmlPage, markdown_blocks
from domains.text.sentences import split_paragraphs
from seqbert.domain import Report
from seqbert.errors import DataError, nearest

Division: TypeAlias = Literal["blank_line", "line", "file"]
"""What separates the documents of a plain text file."""

LONGEST_DOCUMENT = 1 << 22
"""Characters after which a text, page or article is cut into documents; War and Peace has 3.2 million."""

LONGEST_RECORD = 1 << 26
"""Characters of the longest line of JSON, and of the longest cell of a table, that is read."""


@dataclasses.dataclass(slots=True)
class Record:
    """One document as its file gives it.

    Attributes:
        id: A name within the file.
        blocks: Its text, in order.
        source: ``file`` or ``file:line`` or ``file:row``.
        metadata: What the file says of it, as it says it.
    """

    id: str
    blocks: list[Block]
    source: str
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


def text_records(
    path: Path, documents: Division, sentence_per_line: bool, report: Report, encoding: str = "utf-8"
) -> Iterator[Record]:
    """The documents of a plain text file.

    Args:
        path: The file.
        documents: What separates them: blank lines, each line's end, or nothing.
        sentence_per_line: Whether each line is a sentence; otherwise line breaks are those of a typesetter, and mean
            a space.
        report: Told where a document longer than :data:`LONGEST_DOCUMENT` is cut.
        encoding: The file's.
    """
    record: Record | None = None
    size = 0
    for number, texts in _paragraphs(path, encoding, by_line=documents == "line"):
        paragraph = [Block(text, whole=True) for text in texts] if sentence_per_line else [Block("\n".join(texts))]
        length = sum(map(len, texts))
        cut = record is not None and size + length > LONGEST_DOCUMENT
        if record is not None and (cut or documents != "file"):
            yield record
            record, size = None, 0
        if record is None:
            record = Record(f"{path.name}:{number}", [], f"{path}:{number}")
        if cut or "." in number:
            report.tally(_CUT, source=record.source)
        record.blocks += paragraph
        size += length
    if record is not None:
        yield record


def markdown_records(path: Path, report: Report, encoding: str = "utf-8") -> Iterator[Record]:
    """A Markdown file as one document; one longer than :data:`LONGEST_DOCUMENT` is cut at a line's end."""
    for number, text in _stretches(path, encoding):
        record = _of_whole_file(path, number, report)
        record.blocks = markdown_blocks(text)
        yield record


def html_records(path: Path, report: Report, encoding: str = "utf-8") -> Iterator[Record]:
    """An HTML page as one document, with its ``lang`` attribute as the metadata "language".

    A page of more than :data:`LONGEST_DOCUMENT` characters is cut where a block ends.
    """
    page = HtmlPage()
    record: Record | None = None
    for number, text in _stretches(path, encoding):
        if record is not None and record.blocks:
            yield record
        page.feed(text)
        record = _of_whole_file(path, number, report)
        record.blocks = page.take_blocks(LONGEST_LINE)
        record.metadata = {"language": page.language} if page.language else {}
    if record is not None:
        page.close()
        record.blocks += page.take_blocks()
        if page.left_out:
            report.repaired(record.source, "text within an element that is never closed left out")
        yield record


def wikipedia_records(path: Path, report: Report, encoding: str = "utf-8") -> Iterator[Record]:
    """The articles of a Wikipedia extract: what ``<doc id= url= title=>`` and ``</doc>`` enclose.

    This is what WikiExtractor (https://github.com/attardi/wikiextractor) writes without ``--json``. Each line is a
    paragraph; the first, which repeats the title, is a heading. The attributes become metadata, and "id" the
    document's.
    """
    record: Record | None = None
    size = 0
    for number, line in lines(path, encoding):
        text = line.strip()
        if text.startswith("<doc ") and text.endswith(">"):
            if record is not None:
                yield _unclosed(record, report)
            metadata = _attributes(text)
            record = Record(metadata.pop("id", str(number)), [], f"{path}:{number}", metadata)
            size = 0
        elif text == "</doc>" and record is not None:
            yield record
            record = None
        elif text and record is None:
            report.tally("lines outside <doc> elements left out", source=f"{path}:{number}")
        elif text and record is not None:
            text = html.unescape(text)
            if size and size + len(text) > LONGEST_DOCUMENT:
                yield record
                record = dataclasses.replace(record, blocks=[], source=f"{path}:{number}", metadata={**record.metadata})
                report.tally(_CUT, source=record.source)
                size = 0
            record.blocks.append(Block(text, whole=not record.blocks and text == record.metadata.get("title")))
            size += len(text)
    if record is not None:
        yield _unclosed(record, report)


def json_records(path: Path, field: str, report: Report, encoding: str = "utf-8") -> Iterator[Record]:
    """The documents of a JSON Lines file: one object a line.

    The text is a string, in which blank lines separate paragraphs, or a list of sentences. The object's other
    strings, numbers and truth values become metadata, and its "id" the document's. WikiExtractor's ``--json`` form,
    which has "url" and "title", has a paragraph on each line.

    Args:
        path: The file.
        field: The field that holds the text.
        report: Told of each line that is left out, and why.
        encoding: The file's.

    Raises:
        DataError: No object of the file has the field.
    """
    fields = _Fields(path, field)
    for number, group in groupby(lines(path, encoding), key=lambda numbered: numbered[0]):
        source = f"{path}:{number}"
        line = _joined([text for _, text in _within_limit(group)])
        if line is None:
            report.skipped(source, f"the line is longer than {LONGEST_RECORD:,} characters")
            continue
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            report.skipped(source, "the line is not valid JSON")
            continue
        if not isinstance(value, dict):
            report.skipped(source, "the line is not a JSON object")
            continue
        record = fields.record(value, str(number), source, report)
        if record is not None:
            yield record
    fields.check()


def table_records(path: Path, field: str, separator: str, report: Report, encoding: str = "utf-8") -> Iterator[Record]:
    """The documents of a CSV or TSV file with a header: one row each; the other cells become metadata, as in JSON.

    Raises:
        DataError: The header lacks the column, or there is none.
    """
    csv.field_size_limit(max(LONGEST_RECORD, csv.field_size_limit()))
    rows = csv.reader(_whole_lines(path, encoding), delimiter=separator)
    header = next(rows, None)
    if header is None:
        return
    fields = _Fields(path, field)
    if field not in header:
        fields.known.update(dict.fromkeys(header))
        fields.check()
    row = 1
    while True:
        row += 1
        source = f"{path}:row {row}"
        try:
            cells = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            report.skipped(source, "the row cannot be read", str(error))
            continue
        if not cells:
            row -= 1  # a blank line is no row
        elif len(cells) != len(header):
            report.skipped(source, "the row has not as many cells as the header", f"{len(cells)} of {len(header)}")
        else:
            record = fields.record(dict(zip(header, cells, strict=True)), str(row), source, report)
            if record is not None:
                yield record


def parquet_records(path: Path, field: str, report: Report) -> Iterator[Record]:
    """The documents of a Parquet file: one row each; the other plain columns become metadata, as in JSON.

    A part of a row group is in memory at a time.

    Raises:
        DataError: The file is damaged or compressed as a whole, or lacks the column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            schema = file.schema_arrow
            fields = _Fields(path, field)
            fields.known.update(dict.fromkeys(schema.names))
            if field not in schema.names:
                fields.check()
            plain = [column.name for column in schema if _is_plain(column.type) or column.name == field]
            row = 0
            for batch in file.iter_batches(batch_size=256, columns=plain):
                for values in _rows(batch):
                    row += 1
                    record = fields.record(values, str(row), f"{path}:row {row}", report)
                    if record is not None:
                        yield record
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read as Parquet: {' '.join(str(error).split())[:300]}. If it is compressed as a whole, "
            "decompress it: Parquet is compressed within."
        ) from error


_CUT = f"documents cut after {LONGEST_DOCUMENT:,} characters"


def _paragraphs(path: Path, encoding: str, by_line: bool) -> Iterator[tuple[str, list[str]]]:
    """The lines between blank lines, or each line, with the number of the first; none longer than a document may be.

    What follows where one was cut has a number such as "7.2".
    """
    gathered: list[str] = []
    first, part, size, before = 0, 1, 0, 0
    for number, text in lines(path, encoding):
        same = number == before
        before = number
        if gathered and not same and (by_line or not text.strip()):
            yield _number(first, part), gathered
            gathered, part = [], 1
        if not same and not text.strip():
            continue
        if gathered and size + len(text) > LONGEST_DOCUMENT:
            yield _number(first, part), gathered
            gathered, part = [], part + 1
        if not gathered:
            size = 0
            first = first if part > 1 else number
        if same and gathered:
            gathered[-1] += text
        else:
            gathered.append(text)
        size += len(text)
    if gathered:
        yield _number(first, part), gathered


def _number(line: int, part: int) -> str:
    return str(line) if part == 1 else f"{line}.{part}"


def _stretches(path: Path, encoding: str) -> Iterator[tuple[str, str]]:
    """A file in stretches of about the length that a document may have, with the number of the first line of each.

    It is cut at a blank line if there is one in time, else at a line's end or within a long line.
    """
    gathered: list[str] = []
    first, size, before = "1", 0, 0
    for number, text in lines(path, encoding):
        enough = size > LONGEST_DOCUMENT and (not text.strip() or size > LONGEST_DOCUMENT + LONGEST_LINE)
        if enough:
            yield first, "".join(gathered)
            gathered, size = [], 0
            first = str(number) if number != before else f"{number}.{first.count('.') + 2}"
        if number != before and gathered:
            gathered.append("\n")
        gathered.append(text)
        size += len(text) + 1
        before = number
    yield first, "".join(gathered)


def _of_whole_file(path: Path, number: str, report: Report) -> Record:
    """A record for a stretch of a file, without its blocks."""
    if number == "1":
        return Record(path.name, [], str(path))
    record = Record(f"{path.name}:{number}", [], f"{path}:{number}")
    report.tally(_CUT, source=record.source)
    return record


def _unclosed(record: Record, report: Report) -> Record:
    report.repaired(record.source, "the article has no </doc>: it ends where the next begins, or the file")
    return record


_ATTRIBUTE = re.compile(r'([\w:-]+)="([^"]*)"')


def _attributes(tag: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(tag)}


def _within_limit(pieces: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The pieces of one line up to the first that lies beyond :data:`LONGEST_RECORD`; the rest is passed over."""
    size = 0
    for number, text in pieces:
        size += len(text)
        if size - len(text) <= LONGEST_RECORD:
            yield number, text


def _joined(pieces: list[str]) -> str | None:
    """A line of its pieces; None where it is longer than :data:`LONGEST_RECORD`."""
    return "".join(pieces) if sum(map(len, pieces)) <= LONGEST_RECORD else None


def _whole_lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines with their ends, as the csv module wants them."""
    for number, group in groupby(lines(path, encoding), key=lambda numbered: numbered[0]):
        line = _joined([text for _, text in _within_limit(group)])
        if line is None:
            raise DataError(f"{path}, line {number}, is longer than {LONGEST_RECORD:,} characters: this is no table.")
        yield line + "\n"


class _Fields:
    """Makes records of what has named fields, and says which there are where none is the text."""

    def __init__(self, path: Path, field: str) -> None:
        self.known: dict[str, None] = {}
        self._path = path
        self._field = field
        self._found = False

    def record(self, values: dict[str, Any], name: str, source: str, report: Report) -> Record | None:
        """The record; None where the object has no text, which the report is told."""
        if self._field not in values:
            self.known.update(dict.fromkeys(values))
            report.skipped(source, f'the object has no field "{self._field}"')
            return None
        self._found = True
        extract = {"url", "title"} <= values.keys()
        blocks = _blocks_of(values.pop(self._field), extract)
        if blocks is None:
            report.skipped(source, f'the field "{self._field}" is neither a string nor a list of strings')
            return None
        repaired = [block._replace(text=replace_surrogates(block.text)) for block in blocks]
        if repaired != blocks:
            report.repaired(source, "halves of surrogate pairs replaced by U+FFFD")
        metadata = {key: _plain(item) for key, item in values.items() if isinstance(item, str | int | float)}
        return Record(metadata.pop("id", name), repaired, source, metadata)

    def check(self) -> None:
        """Raises DataError where no object had the field."""
        if self.known and not self._found:
            raise DataError(
                f'{self._path} has no field "{self._field}": it has {", ".join(sorted(self.known)[:20])}. '
                f"Name the one that holds the text with the option text_field.{nearest(self._field, self.known)}"
            )


def _blocks_of(text: Any, lines_are_paragraphs: bool) -> list[Block] | None:
    if isinstance(text, str):
        paragraphs = text.splitlines() if lines_are_paragraphs else split_paragraphs(text)
        return [Block(paragraph) for paragraph in paragraphs]
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        return [Block(sentence, whole=True) for sentence in text]
    return None


def _plain(value: str | int | float) -> str:
    return replace_surrogates(value) if isinstance(value, str) else json.dumps(value)


def _is_plain(kind: Any) -> bool:
    import pyarrow.types as types

    tests = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    return any(test(kind) for test in tests)


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a record batch; a cell that is not UTF-8 is None."""
    columns = []
    for column in batch.columns:
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            columns.append([_value(cell) for cell in column])
    for cells in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, cells, strict=True))


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        return None
