"""The rows of a table in CSV, TSV, JSON, JSON Lines or Parquet, with the cells that a record is made of.

Delimited files are read with Python's ``csv`` or cut at tabs rather than with pandas, which fills up rows that are too
short without a word, takes the first cells of too long ones for an index, and does not say in which line a row is.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from seqbert.data.table_columns import Places, find_columns, is_header
from seqbert.data.table_files import numbered_lines, read_bytes, read_text
from seqbert.data.table_options import TableOptions, Task
from seqbert.domain import Report
from seqbert.errors import DataError

_SPELLED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PEEKED = 100  # objects from whose keys the columns of JSON are known
_BATCH = 4096  # rows of Parquet that are held at once
_LONGEST_CELL = 2**31 - 1  # csv refuses cells of more than 131,072 characters unless told otherwise


@dataclasses.dataclass(slots=True)
class Row:
    """What a file says of one record, before the domain has seen it.

    Attributes:
        id: The record's name.
        source: ``file:line``, or ``file:record`` counted from 1 where lines mean nothing.
        sequence: The cell of the first text, a list of words in tagging; None where it is empty.
        pair: The cell of the second text; "" where it is empty, None where there is no such column.
        label: The cell of the label; "" where it is empty, None where there is no such column.
        start: The cell of the place where the answer begins.
        choices: The cells of the choices.
        metadata: What else is known.
        ready: Whether the sequence is canonical text already.
    """

    id: str
    source: str
    sequence: Any = None
    pair: Any = None
    label: Any = None
    start: Any = None
    choices: Sequence[Any] = ()
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    ready: bool = False


@dataclasses.dataclass(slots=True)
class Reading:
    """How a file is read.

    Attributes:
        path: The file.
        task: What its records are for.
        options: What the user says about it.
        labelled: Whether records must have labels.
        report: Is told of what is skipped.
    """

    path: Path
    task: Task
    options: TableOptions
    labelled: bool
    report: Report

    def places(self, columns: Sequence[str]) -> Places:
        """Finds the columns; raises DataError where that cannot be done."""
        return find_columns(self.path, columns, self.task, self.options, self.labelled)


def delimited_rows(reading: Reading, separator: str, quoted: bool) -> Iterator[Row]:
    """The rows of a CSV or TSV file; one with another number of cells than the header is skipped and told.

    Raises:
        DataError: The file has no rows, lacks a column, is binary or not UTF-8, or a quote in it is never closed.
    """
    lines = _quoted_lines(reading, separator) if quoted else _plain_lines(reading, separator)
    first = next(lines, None)
    if first is None:
        raise DataError(f"{reading.path} has no rows: all its lines are blank.")
    columns = [cell.strip() for cell in first[1] or ()]
    names = reading.options.names
    if names is not None and not is_header(columns, reading.task, reading.options):
        columns, lines = names, chain([first], lines)
    places = reading.places(columns)
    for number, (line, cells) in enumerate(lines):
        source = f"{reading.path}:{line}"
        if cells is None:
            reading.report.skipped(source, "a quote inside a quoted cell that is not doubled")
        elif len(cells) != len(columns):
            reading.report.skipped(source, f"{len(cells)} cells in a row of a table with {len(columns)} columns")
        elif any("\0" in cell for cell in cells):
            reading.report.skipped(source, "a NUL byte in the row")
        else:
            yield _row(cells, places, number, source)


def json_lines_rows(reading: Reading) -> Iterator[Row]:
    """The objects of a JSON Lines file, one a line; a line that is none is skipped and told.

    Raises:
        DataError: No line is an object, or the objects lack a column.
    """
    yield from _object_rows(reading, _json_lines(reading))


def json_rows(reading: Reading, value: Any) -> Iterator[Row]:
    """The rows of a JSON file's value: a list of objects, alone or under "data", or an object of columns.

    Raises:
        DataError: The value is nothing of this kind, or lacks a column.
    """
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    if isinstance(value, dict):
        value = _from_columns(value)
    if not isinstance(value, list) or not value or not any(isinstance(item, dict) for item in value):
        raise DataError(
            f"{reading.path} holds no table: a list of objects with the same keys, or an object with a list for each "
            "column, is expected. Where each line is an object of its own, set data.format to jsonl."
        )
    yield from _object_rows(reading, ((number, item) for number, item in enumerate(value, 1)))


def load_json(reading: Reading) -> Any:
    """The value of a JSON file.

    Raises:
        DataError: It is not valid JSON; the line is named.
    """
    path = reading.path
    try:
        return _parsed(read_text(path), reading.report)
    except json.JSONDecodeError as error:
        lines = " If each line is an object of its own, set data.format to jsonl." if error.msg == "Extra data" else ""
        raise DataError(f"{path}, line {error.lineno}, is not valid JSON: {error.msg}.{lines}") from error
    except RecursionError as error:
        raise DataError(f"{path} is nested too deeply to be a table.") from error


def parquet_rows(reading: Reading) -> Iterator[Row]:
    """The rows of a Parquet file, of which only the columns in use are read, some thousand rows at once.

    Raises:
        DataError: The file cannot be read as Parquet, or lacks a column.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    path = reading.path
    number = 0
    try:
        with path.open("rb") as stream:
            plain = stream.read(4) == b"PAR1"
        with ParquetFile(path if plain else pyarrow.BufferReader(read_bytes(path))) as file:
            columns = file.schema_arrow.names
            places = reading.places(columns)
            for batch in file.iter_batches(_BATCH, columns=[columns[place] for place in places.used]):
                read = {place: batch.column(columns[place]).to_pylist() for place in places.used}
                for row in range(batch.num_rows):
                    cells = {place: values[row] for place, values in read.items()}
                    yield _row(cells, places, number, f"{path}:{number + 1}")
                    number += 1
    except (OSError, EOFError, KeyError, ValueError, pyarrow.ArrowException) as error:
        after = f" after record {number}" if number else ""
        raise DataError(
            f"{path} cannot be read as Parquet{after}: {' '.join(str(error).split())[:200].rstrip('.')}."
        ) from error


def is_missing(cell: Any) -> bool:
    """Whether a cell is truly empty: no text, null, or the NaN that stands for it. Words such as "NA" are text."""
    return cell is None or cell == "" or (isinstance(cell, float) and cell != cell)


def _row(cells: Mapping[int, Any] | Sequence[Any], places: Places, number: int, source: str) -> Row:
    def cell(place: int | None) -> Any:
        return None if place is None or is_missing(cells[place]) else cells[place]

    metadata = {
        key: str(value).strip()
        for key, place in (("group", places.group), ("title", places.title))
        if (value := cell(place)) is not None
    }

    def cell_if_any(place: int | None) -> Any:
        return None if place is None else "" if is_missing(cells[place]) else cells[place]

    name = cell(places.id)
    return Row(
        str(number) if name is None else str(name).strip(),
        source,
        cell(places.sequence),
        cell_if_any(places.pair),
        cell_if_any(places.label),
        cell(places.start),
        [cell(place) for place in places.choices],
        metadata,
    )


def _plain_lines(reading: Reading, separator: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in numbered_lines(reading.path):
        if line:
            yield number, line.split(separator)


def _quoted_lines(reading: Reading, separator: str) -> Iterator[tuple[int, list[str] | None]]:
    """Line and cells of each row; None for cells where the quotes are wrong."""
    ended = False

    def feed() -> Iterator[str]:
        nonlocal ended
        for _, line in numbered_lines(reading.path):
            yield line + "\n"
        ended = True

    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(feed(), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if ended:
                raise DataError(
                    f"{reading.path}, line {line}: a quoted cell begins in this row and is never closed, so the rows "
                    "after it cannot be told apart. Close it, or set data.quoted to false if quotes are ordinary "
                    "characters in this file."
                ) from error
            yield line, None
        else:
            if cells:
                yield line, cells


def _json_lines(reading: Reading) -> Iterator[tuple[int, Any]]:
    for number, line in numbered_lines(reading.path):
        if not line.strip():
            continue
        try:
            yield number, _parsed(line, reading.report)
        except (ValueError, RecursionError):
            reading.report.skipped(f"{reading.path}:{number}", "the line is not valid JSON")


def _parsed(text: str, report: Report) -> Any:
    """The value of JSON; half of a surrogate pair, which JSON can spell and UTF-8 cannot, becomes U+FFFD."""
    value = json.loads(text)
    if not _SPELLED_SURROGATE.search(text):
        return value

    def mended(value: Any) -> Any:
        if isinstance(value, str):
            value, count = _SURROGATE.subn("\N{REPLACEMENT CHARACTER}", value)
            report.tally("halves of surrogate pairs replaced by U+FFFD", count)
        elif isinstance(value, list):
            value = [mended(item) for item in value]
        elif isinstance(value, dict):
            value = {mended(key): mended(item) for key, item in value.items()}
        return value

    return mended(value)


def _object_rows(reading: Reading, numbered: Iterator[tuple[int, Any]]) -> Iterator[Row]:
    beginning = list(islice(numbered, _PEEKED))
    columns = list(dict.fromkeys(key for _, value in beginning if isinstance(value, dict) for key in value))
    if not columns:
        raise DataError(
            f"{reading.path} holds no JSON objects with keys, which are the columns of a table. Set data.format if "
            "the file is something else."
        )
    places = reading.places(columns)
    for number, (line, value) in enumerate(chain(beginning, numbered)):
        source = f"{reading.path}:{line}"
        if isinstance(value, dict):
            yield _row({place: value.get(columns[place]) for place in places.used}, places, number, source)
        else:
            reading.report.skipped(source, "not a JSON object")


def _from_columns(columns: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Objects of an object of columns, which are lists, or objects by row as pandas writes them; or of one record."""
    lists = [list(values.values()) if isinstance(values, dict) else values for values in columns.values()]
    if columns and all(isinstance(values, list) for values in lists) and len({len(values) for values in lists}) == 1:
        return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
    if columns and not any(isinstance(value, dict) for value in columns.values()):
        return [columns]
    return None
