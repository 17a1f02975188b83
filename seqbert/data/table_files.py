"""Files of labelled data as lines or bytes, whatever they are compressed with, and what format they are in."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path

from seqbert.data.compressed import DAMAGE, open_decompressed, without_compression
from seqbert.data.table_options import Format, Task
from seqbert.domain import Domain
from seqbert.errors import DataError

HEAD = 1 << 16
"""Bytes at a file's beginning from which its format is told."""

_FEW_NULS, _MOST_NULS = 8, 0.01  # a damaged table has some, UTF-16 and binary files have many
_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conllu": "conllu",
    ".conll": "columns",
    ".bio": "columns",
    ".iob": "columns",
    ".iob2": "columns",
}
_CONLLU = re.compile(r"(#[^\n]*\n)*1(-\d+)?(\t[^\t\n]*){9}\n")
_SEPARATED: dict[str, Format] = {"\t": "tsv", ",": "csv"}
_NAME = re.compile(r"[^\W\d][\w .:-]{0,39}")  # of a column; it begins with no ">", "@", "#" or "**"
_TELLING_NOTHING = ("", ".txt")


def ending(path: Path) -> str:
    """The ending that says what a file holds, in lower case, past those that name a compression.

    >>> ending(Path("train.CSV.gz")), ending(Path("train"))
    ('.csv', '')
    """
    return without_compression(path).suffix.lower()


def is_table(path: Path) -> bool:
    """Whether a file is labelled data in a general format by its ending."""
    return ending(path) in _ENDINGS


def format_of(path: Path, task: Task, domain: Domain) -> Format:
    """The format of a file: by its ending where that is one of a table's, else by how it begins.

    Raises:
        DataError: It cannot be opened, is empty, or is in no format that is known here or to ``domain``.
    """
    head = read_head(path)
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    suffix = ending(path)
    by_ending = _ENDINGS.get(suffix)
    if by_ending == "csv":
        first = text.partition("\n")[0]
        return "tsv" if "\t" in first and "," not in first else "csv"
    if by_ending == "json":
        return _kind_of_json(text)
    if by_ending == "columns":
        return "conllu" if _CONLLU.match(text) else "columns"
    if by_ending:
        return by_ending
    whole = text if len(head) < HEAD else text.rpartition("\n")[0]
    table = None if b"\0" in head or suffix in domain.formats else _certain_table(whole, task)
    if table is None and (suffix not in _TELLING_NOTHING or b"\0" in head) and domain.reads(path):
        return "records"
    check_is_text(path, head)
    return table or _by_content(path, whole, task, domain)


def read_head(path: Path) -> bytes:
    """The first bytes of a file, decompressed; at least one.

    Raises:
        DataError: The file cannot be opened, is a folder, or is empty.
    """
    try:
        with open_decompressed(path) as stream:
            head = stream.read(HEAD)
    except DAMAGE as error:
        raise _unreadable(path, error) from error
    if not head:
        raise DataError(f"{path} is empty.")
    return head


def read_bytes(path: Path) -> bytes:
    """All of a file, decompressed.

    Raises:
        DataError: It cannot be read to its end.
    """
    try:
        with open_decompressed(path) as stream:
            return stream.read()
    except DAMAGE as error:
        raise _unreadable(path, error) from error


def read_text(path: Path) -> str:
    """All of a UTF-8 file, without a byte-order mark.

    Raises:
        DataError: It cannot be read to its end, is binary, or is not UTF-8 (the line is named).
    """
    return "\n".join(line for _, line in numbered_lines(path))


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, numbered from 1, without their ends (LF, CRLF or CR) and a byte-order mark.

    Raises:
        DataError: The file cannot be read to its end, is empty or binary, or a line is not UTF-8.
    """
    check_is_text(path, read_head(path))
    number = 0
    try:
        with open_decompressed(path) as stream:
            for raw in stream:
                if not number:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                try:
                    line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{path}, line {number + 1}, is not UTF-8: byte {error.start + 1} of it is "
                        f"0x{raw[error.start]:02x}. Convert the file to UTF-8, or mend that line."
                    ) from error
                for part in line.split("\r"):
                    number += 1
                    yield number, part
    except DAMAGE as error:
        raise _unreadable(path, error, number) from error


def check_is_text(path: Path, head: bytes) -> None:
    """Raises DataError where a file's beginning is that of a binary file, or of text in UTF-16."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16 text. Convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8.")
    if head.startswith(b"PK\x03\x04"):
        raise DataError(f"{path} is a ZIP archive or an Excel workbook: unpack it, or save the sheet as CSV.")
    if head.count(b"\0") > max(_FEW_NULS, _MOST_NULS * len(head)):
        raise DataError(f"{path} is a binary file, and no table: it is full of NUL bytes.")


def _by_content(path: Path, text: str, task: Task, domain: Domain) -> Format:
    filled = [line for line in text.split("\n") if line.strip()]
    if general := _general_format(text, task):
        return general
    if _evenly(filled, "\t"):
        return "tsv"
    if domain.reads(path):
        return "records"
    if _evenly(filled, ","):
        return "csv"
    formats = ", ".join(dict.fromkeys([*_ENDINGS, *domain.formats]))
    raise DataError(
        f"{path} is in no format that is known here: neither a table, nor a file that the domain "
        f'"{domain.name}" reads ({formats}). Say with data.format what it is, or convert it.'
    )


def _certain_table(text: str, task: Task) -> Format | None:
    """The format of what is a table whatever a domain thinks of it, as one with a header is for the text domain."""
    if general := _general_format(text, task):
        return general
    filled = [line for line in text.split("\n") if line.strip()]
    for separator, kind in _SEPARATED.items():
        if len(filled) > 1 and _evenly(filled, separator) and _is_header(filled[0].split(separator)):
            return kind
    return None


def _general_format(text: str, task: Task) -> Format | None:
    """JSON, CoNLL-U and, for tagging, columns."""
    if text.lstrip()[:1] in ("{", "["):
        return _kind_of_json(text)
    if _CONLLU.match(text):
        return "conllu"
    return "columns" if task == "tagging" and _looks_like_columns(text.split("\n")) else None


def _looks_like_columns(lines: list[str]) -> bool:
    """Words with labels: lines of as many cells each, in sentences with blank lines between."""
    words = [line.split() for line in lines if line.strip() and not line.startswith(("# ", "-DOCSTART-"))]
    inside = "\n".join(lines).strip("\n")
    return bool(words) and "\n\n" in inside and len(words[0]) > 1 and all(len(row) == len(words[0]) for row in words)


def _evenly(lines: list[str], separator: str) -> bool:
    counts = {line.count(separator) for line in lines}
    return len(counts) == 1 and counts != {0}


def _is_header(cells: list[str]) -> bool:
    """Whether cells can be the names of columns: short, different, and neither numbers nor a domain's own marks."""
    names = [cell.strip().strip('"') for cell in cells]
    return len(set(names)) == len(names) and all(_NAME.fullmatch(name) for name in names)


def _kind_of_json(text: str) -> Format:
    """Jsonl where the first line is a whole object and another follows."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        whole = isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        whole = False
    return "jsonl" if whole and rest.lstrip().startswith("{") else "json"


def _unreadable(path: Path, error: BaseException, line: int = 0) -> DataError:
    after = f" after line {line}" if line else ""
    match error:
        case FileNotFoundError():
            return DataError(f'There is no file "{path}".')
        case IsADirectoryError():
            return DataError(f"{path} is a folder, and a file is expected.")
        case OSError(strerror=str(reason)):
            return DataError(f"{path} cannot be read{after}: {reason}.")
    return DataError(
        f"{path} cannot be read{after}: its compressed data is damaged or was cut off. Copy or download it again."
    )
