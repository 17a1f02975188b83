"""Labelled data: files in general formats, or in a domain's own, as examples of a task."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from seqbert.data.cache import cache_folder
from seqbert.data.conll import column_rows, conllu_rows
from seqbert.data.fetching import STANDARD_INPUT, fetch, is_address, keep_standard_input
from seqbert.data.files import files_inside
from seqbert.data.squad import is_squad, squad_rows
from seqbert.data.table_examples import ExampleMaker
from seqbert.data.table_files import format_of, is_table, read_head
from seqbert.data.table_options import Columns, Format, TableOptions, Task
from seqbert.data.table_rows import (
    Reading,
    Row,
    delimited_rows,
    json_lines_rows,
    json_rows,
    load_json,
    parquet_rows,
)
from seqbert.domain import Document, Domain, Example, Report
from seqbert.errors import DataError

__all__ = ["Columns", "TableOptions", "find_tables", "read_examples"]


def find_tables(entries: str | list[str], folder: str | None = None, domain: Domain | None = None) -> list[Path]:
    """Resolves what a user names as labelled data into files, each once, sorted within a folder or glob.

    Args:
        entries: Files, folders, globs, addresses, or "-" for standard input; ``~`` is the home folder.
        folder: Put before those that are relative.
        domain: Where it is given, only files that are tables by their endings, or that it reads, are taken from
            folders; else all that are not hidden.

    Raises:
        DataError: An entry is not there, matches nothing, or is a folder with nothing to read in it.
    """
    found: dict[Path, None] = {}
    for entry in [entries] if isinstance(entries, str) else entries:
        path = Path(folder or "").expanduser() / Path(entry).expanduser()
        if entry == STANDARD_INPUT:
            paths = [keep_standard_input(cache_folder())]
        elif is_address(entry):
            paths = fetch(entry, cache_folder())
        elif path.is_dir():
            paths = _inside(path, domain)
        elif path.exists():
            paths = [path]
        elif glob.has_magic(entry):
            matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
            paths = [file for match in matches for file in (_inside(match, domain) if match.is_dir() else [match])]
            if not paths:
                raise DataError(f'Nothing matches "{path}".')
        else:
            raise DataError(f'There is no file or folder "{path}".')
        found.update(dict.fromkeys(paths))
    if not found:
        raise DataError("No labelled data is named: give files, folders, globs or addresses.")
    return list(found)


def read_examples(
    paths: Sequence[Path],
    task: str,
    options: TableOptions,
    domain: Domain,
    report: Report,
    *,
    labelled: bool = True,
    multilabel: bool = False,
) -> Iterator[Example]:
    """Yields the examples of files in their order, for training, evaluation and prediction alike.

    Memory is bounded by the largest record, except in ``.json`` files, which are read whole.

    Args:
        paths: The files.
        task: classification, regression, tagging, span or choice; see :class:`~seqbert.domain.Example`.
        options: What the user says about the files.
        domain: Says what canonical text is, and reads files in its own formats.
        report: Is told of the files, of the records, and of each that is skipped or repaired, with the reason.
        labelled: Whether each record must have a label. Otherwise one that is not there, or is none, is None.
        multilabel: Whether a record has any number of classes: a list, or names with ``|`` between. An empty cell
            is a record with no class.

    Raises:
        DataError: A file cannot be read, lacks a column, or has no record that can be used; or the label of a
            classification is a fraction.
    """
    for path in paths:
        read, skipped = report.yielded, report.skips.copy()
        report.place = str(path)
        maker = ExampleMaker(cast(Task, task), options, domain, report, labelled, multilabel)
        try:
            for example in _examples(path, maker):
                report.yielded += 1
                yield example
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        report.files.append(str(path))
        if report.yielded == read:
            raise _nothing_left(path, maker, report.skips - skipped)


def _examples(path: Path, maker: ExampleMaker) -> Iterator[Example]:
    given = None
    if maker.options.format == "auto":
        read_head(path)
        given = None if is_table(path) else maker.domain.examples(path, maker.report)
    if given is not None:
        made = (maker.from_domain(example, path) for example in given)
    else:
        made = (maker.from_row(row, path) for row in _rows(path, maker))
    yield from (example for example in made if example is not None)


def _rows(path: Path, maker: ExampleMaker) -> Iterator[Row]:
    options = maker.options
    reading = Reading(path, maker.task, options, maker.labelled, maker.report)
    chosen: Format = format_of(path, maker.task, maker.domain) if options.format == "auto" else options.format
    match chosen:
        case "csv" | "tsv":
            quoted = chosen == "csv" if options.quoted is None else options.quoted
            rows = delimited_rows(reading, "," if chosen == "csv" else "\t", quoted)
        case "jsonl":
            rows = json_lines_rows(reading)
        case "json" | "squad":
            value = load_json(reading)
            rows = squad_rows(reading, value) if chosen == "squad" or is_squad(value) else json_rows(reading, value)
        case "parquet":
            rows = parquet_rows(reading)
        case "conllu":
            rows = conllu_rows(reading)
        case "columns":
            rows = column_rows(reading)
        case "records":
            yield from _records(reading, maker.domain)
            return
    yield from _with_files(rows, path.parent, maker) if options.cells == "path" else rows


def _records(reading: Reading, domain: Domain) -> Iterator[Row]:
    """The documents of a file in one of the domain's own formats."""
    if reading.task in ("span", "choice"):
        raise DataError(
            f'{reading.path} holds the plain records of the domain "{domain.name}", and the task {reading.task} needs '
            "a table."
        )
    if reading.labelled and reading.options.label_from == "column":
        raise DataError(
            f'{reading.path} holds the plain records of the domain "{domain.name}", which have no column of labels: '
            "set data.label_from to file, folder or metadata, or name a table."
        )
    for document in domain.read(reading.path, reading.report):
        source = document.source or str(reading.path)
        yield Row(document.id, source, _text_of(document, domain), metadata=document.metadata, ready=True)


def _with_files(rows: Iterator[Row], folder: Path, maker: ExampleMaker) -> Iterator[Row]:
    """Rows whose sequence is the name of a file, with what the domain reads from that file in its place."""
    for row in rows:
        name = str(row.sequence or "").strip()
        if not name:
            maker.report.skipped(row.source, "an empty cell")
            continue
        inner = Report()
        try:
            documents = list(maker.domain.read(folder / Path(name).expanduser(), inner))
        except (DataError, OSError) as error:
            maker.first_detail = maker.first_detail or str(error)
            maker.report.skipped(row.source, "a file that the domain cannot read")
            continue
        if len(documents) == 1:
            row.sequence, row.ready = _text_of(documents[0], maker.domain), True
            yield row
        else:
            reason = "a file with several records, where one is expected" if documents else "a file without a record"
            maker.report.skipped(row.source, reason)


def _text_of(document: Document, domain: Domain) -> str:
    if len(document.segments) == 1:
        return document.segments[0]
    return domain.canonical(" ".join(document.segments))


def _inside(folder: Path, domain: Domain | None) -> list[Path]:
    files = files_inside(folder)
    known = [path for path in files if domain is None or is_table(path) or domain.reads(path)]
    if not known:
        found = f"none of its {len(files)} files is a table or of a kind that is read" if files else "it is empty"
        raise DataError(f'The folder "{folder}" has no labelled data: {found}.')
    return known


def _nothing_left(path: Path, maker: ExampleMaker, skips: dict[str, int]) -> DataError:
    if not skips:
        return DataError(f"{path} has no records below its header.")
    reasons = "; ".join(f"{reason} ({count})" for reason, count in sorted(skips.items(), key=lambda item: -item[1])[:5])
    first = f" The first: {maker.first_detail}" if maker.first_detail else ""
    return DataError(f"{path} has no record that can be used: {reasons}.{first}")
