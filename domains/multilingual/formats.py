"""Formats of multilingual work that plain text has not: parallel tables and lines, CoNLL-U, columns of words."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal

from domains.multilingual.languages import file_kind, placed, read_tag, wikipedia_tag
from domains.multilingual.words import join_words
from domains.text.canonical import replace_surrogates
from domains.text.markup import Block
from domains.text.readers import Record
from domains.text.sentences import split_paragraphs
from seqbert.data.compressed import DAMAGE, open_decompressed, without_compression
from seqbert.domain import Report
from seqbert.errors import DataError, nearest

Kind = Literal["conllu", "words", "table", "lines"]

HEAD = 1 << 16
"""Bytes at a file's beginning from which its format is told."""

TRANSLATION = "translation"
"""The field that holds a text in several languages by tag, as data sets of translations have it."""

_LONGEST_LINE = 1 << 22  # bytes; a longer one is no sentence, and would have to be in memory whole
_LONGEST_SENTENCE = 10_000  # lines
_WORD_OF_CONLLU = re.compile(r"^\d+(?:\t[^\t\n]+){9}$", re.MULTILINE)
_CONLLU = re.compile(r"(?:#[^\n]*\n)*[1-9]\d*(?:-\d+)?(?:\t[^\t\n]*){9}(?:\n|$)")
_COMMENT = re.compile(r"#\s*([\w:.-]+(?: id)?)\s*=\s*(.*?)\s*")
_LABEL = re.compile(r"O|[BIESLU]-\S+")
_PREFIX = re.compile(r"([a-z][a-z-]+):(?=.)", re.DOTALL)
_DELIMITED = (".csv", ".tsv", ".tab", ".txt", "")
_IDS = frozenset({"id", "idx", "alignment"})


def kind_of(path: Path, head: bytes, columns: Mapping[str, str | int], lines_align: bool) -> Kind | None:
    """Which of the formats here a file has, by how it begins; None: none of them.

    Args:
        path: The file; its ending tells only which separator a table has, and what is not taken for lines.
        head: Its first bytes, decompressed.
        columns: What the option ``columns`` says; a table is parallel where it says anything, or where its
            header does (:func:`header_languages`).
        lines_align: Whether lines of plain text are aligned by their number.
    """
    if head.startswith(b"PAR1"):
        return "table" if columns or header_languages(_parquet_names(path)) else None
    if b"\0" in head:
        return None
    text = head.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if len(head) >= HEAD:
        text = text.rpartition("\n")[0]
    suffix = without_compression(path).suffix.lower()
    begins = text.lstrip()[:1]
    if _CONLLU.match(text.lstrip("\n")) or (suffix == ".conllu" and _WORD_OF_CONLLU.search(text)):
        return "conllu"
    if begins == "{":
        return "table" if columns or f'"{TRANSLATION}"' in text else None
    if begins in ("[", "<"):
        return None
    if _is_words(text):
        return "words"
    if suffix in (".md", ".markdown"):
        return None
    separator = _separator(suffix, text)
    if separator and (columns or header_languages(_names(text.partition("\n")[0], separator))):
        return "table"
    if lines_align and (suffix in _DELIMITED or placed(path) is not None):
        return "lines"
    return None


def read_head(path: Path) -> bytes:
    """The first bytes of a file, decompressed; none where it cannot be read, which its reader says better."""
    try:
        with open_decompressed(path) as stream:
            return stream.read(HEAD)
    except DAMAGE:
        return b""


def header_languages(names: Sequence[str]) -> dict[str, str | int]:
    """The columns whose names are language tags, where they are two or more and the others are an id or none.

    ``id`` is taken for an identifier, not for Indonesian, and so is every column whose name stands for no
    language: with one of those, a table counts as parallel only if the option ``columns`` says so.

    >>> header_languages(["id", "en", "pt-BR"]), header_languages(["text", "en", "de"]), header_languages(["en"])
    ({'en': 'en', 'pt-BR': 'pt-BR'}, {}, {})
    """
    wanted = [name for name in names if name.lower() not in _IDS]
    if TRANSLATION in names:
        return {TRANSLATION: TRANSLATION}
    tags = [name for name in wanted if re.match(r"[A-Za-z]{2,3}(?![A-Za-z0-9])", name) and read_tag(name)[1:] == ("",)]
    return {name: name for name in tags} if len(tags) == len(wanted) >= 2 else {}


def aligned_lines(path: Path, rest: str, encoding: str, whole: bool, report: Report) -> Iterator[Record]:
    """The lines of a file whose translations stand on the same lines of other files, each a document.

    Lines end with LF or CRLF alone, so that a stray CR shifts no line. Empty lines are skipped and counted.

    Raises:
        DataError: The next file of the same name in another language has another number of lines.
    """
    _check_number_of_lines(path, rest)
    for number, line in numbered_lines(path, encoding, report):
        source = f"{path}:{number}"
        if line.strip():
            yield Record(str(number), [Block(line, whole)], source, {"alignment": f"{rest}:{number}"})
        else:
            report.skipped(source, "an empty line")


def siblings(path: Path, rest: str) -> list[Path]:
    """The files that differ from one only in the language that their path names, and the file itself, sorted."""
    found = placed(path)
    if found is None:
        return [path]
    near = path.parent.parent.glob("*/*") if found.in_folder else path.parent.iterdir()
    kept = {
        other
        for other in near
        if (its := placed(other)) is not None
        and (its.rest, its.in_folder, file_kind(other)) == (rest, found.in_folder, file_kind(path))
        and other.is_file()
    }
    return sorted(kept | {path})


def parallel_rows(
    path: Path, options: Mapping[str, str | int], rest: str, encoding: str, whole: bool, report: Report
) -> Iterator[Record]:
    """The cells of a table with a language a column, each a document; cells of one row have one alignment id.

    Tables are Parquet, JSON Lines, or lines of cells with tabs (taken as they are), commas or semicolons
    (with quotes, RFC 4180). The id is the row's ``alignment`` or ``id`` where it has one, else its number.

    Raises:
        DataError: A column is not there, or the file cannot be read.
    """
    columns: dict[str, str | int] = {}
    for number, (source, row) in enumerate(_rows(path, options, encoding, report), 1):
        if TRANSLATION in row and not options:
            cells = row[TRANSLATION]
            if not isinstance(cells, Mapping):
                report.skipped(source, f'the field "{TRANSLATION}" holds no texts by language')
                continue
            named = {str(tag): text for tag, text in cells.items()}
        else:
            columns = columns or _located(path, options, row)
            named = {tag: row.get(place) for tag, place in columns.items()}
        fields = {str(key): _plain(value) for key, value in row.items() if _is_plain(value) and isinstance(key, str)}
        key = fields.get("alignment") or fields.get("id") or str(number)
        texts = {*columns.values(), TRANSLATION}
        others = {name: value for name, value in fields.items() if name not in texts}
        for tag, text in named.items():
            if text is None or (isinstance(text, str) and not text.strip()):
                report.skipped(source, "an empty cell of a parallel table", tag)
            elif not isinstance(text, str):
                report.skipped(source, "a cell of a parallel table that is no text", tag)
            else:
                kept = replace_surrogates(text)
                if kept != text:
                    report.repaired(f"{source}:{tag}", "halves of surrogate pairs replaced by U+FFFD")
                blocks = [Block(part, whole) for part in ([kept] if whole else split_paragraphs(kept))]
                metadata = {**others, "language": tag, "alignment": f"{rest}:{key}"}
                yield Record(f"{key}-{tag}", blocks, f"{source}:{tag}", metadata)


def conllu_records(path: Path, encoding: str, by_sentence: bool, report: Report) -> Iterator[Record]:
    """The sentences of a CoNLL-U file, each a segment as its ``# text`` has it.

    A sentence with a ``parallel_id`` is a document of its own, with that as its alignment id, as in the
    parallel treebanks (PUD); other sentences are documents as ``newdoc`` cuts them, or one a sentence where
    nothing does, or where ``by_sentence`` is true. Where ``# text`` is missing, the words are put together by
    ``SpaceAfter``. Other comments of a sentence that is a document become metadata, and the id of its
    ``newdoc`` the metadata "document".
    """
    within: Record | None = None
    document = ""
    for lines in _paragraphs(path, encoding, report):
        source = f"{path}:{lines[0][0]}"
        comments = [line for _, line in lines if line.startswith("#")]
        said = {match[1]: match[2] for line in comments if (match := _COMMENT.fullmatch(line))}
        begins = any(re.match(r"#\s*newdoc\b", line) for line in comments)
        text = said.pop("text", "") or _conllu_text([line for _, line in lines if not line.startswith("#")])
        document = said.pop("newdoc id", "" if begins else document)
        if begins and within:
            yield within
            within = None
        if not text:
            report.skipped(source, "a sentence without text and without the ten cells a word of CoNLL-U")
            continue
        name = said.get("sent_id") or str(lines[0][0])
        block = Block(replace_surrogates(text), whole=True)
        parallel = said.get("parallel_id")
        if parallel is None and not by_sentence and (begins or within):
            within = within or Record(document or name, [], source)
            within.blocks.append(block)
            continue
        metadata = {key: value for key, value in said.items() if not key.startswith(("translit", "text_"))}
        if document:
            metadata["document"] = document
        if parallel is not None:
            metadata["alignment"] = parallel
        yield Record(name, [block], source, metadata)
    if within:
        yield within


def word_records(path: Path, encoding: str, report: Report) -> Iterator[Record]:
    """The sentences of a file of words and their tags, a word a line, as plain sentences: one a document.

    The tags go, and so does a Wikipedia's code before every word of a sentence (``de:Berlin``, as WikiANN
    has it), which tells the language. ``-DOCSTART-`` and comments are no words. Words are put together as
    their script and marks ask: see :func:`~domains.multilingual.words.join_words`.
    """
    for lines in _paragraphs(path, encoding, report):
        rows = [
            re.split(r"\t| +", line.strip())
            for _, line in lines
            if not line.startswith(("-DOCSTART-", "# ")) or "\t" in line
        ]
        if not rows:
            continue
        source = f"{path}:{lines[0][0]}"
        if any(len(row) < 2 or not _LABEL.fullmatch(row[-1]) for row in rows):
            report.skipped(source, "a sentence with a line that is no word and its tag")
            continue
        words = [row[0] for row in rows]
        prefixes = {match[1] if (match := _PREFIX.match(word)) else "" for word in words}
        metadata = {}
        if len(prefixes) == 1 and (prefix := prefixes.pop()):
            words = [word[len(prefix) + 1 :] for word in words]
            metadata["language"] = wikipedia_tag(prefix)
        yield Record(str(lines[0][0]), [Block(join_words(words), whole=True)], source, metadata)


def sections(record: Record, rest: str) -> list[Record]:
    """A page cut where headings begin, each part a document whose alignment id is its number.

    Headings that follow one another begin one part; what stands before the first heading is part 0.
    """
    parts: list[list[Block]] = [[]]
    for before, block in zip([None, *record.blocks], record.blocks, strict=False):
        if block.whole and not (before and before.whole):
            parts.append([])
        parts[-1].append(block)
    return [
        Record(
            f"{record.id}#{number}",
            blocks,
            f"{record.source}#{number}",
            {**record.metadata, "alignment": f"{rest}:{number}"},
        )
        for number, blocks in enumerate(parts)
        if blocks
    ]


def numbered_lines(path: Path, encoding: str, report: Report) -> Iterator[tuple[int, str]]:
    """The lines of a file that end with LF or CRLF, numbered from 1; others that cannot be read are skipped.

    Raises:
        DataError: The file cannot be opened, or its compressed data is damaged or cut off.
    """
    number = 0
    try:
        with open_decompressed(path) as stream:
            while raw := stream.readline(_LONGEST_LINE):
                number += 1
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if len(raw) == _LONGEST_LINE and not raw.endswith(b"\n"):
                    while (more := stream.readline(_LONGEST_LINE)) and not more.endswith(b"\n"):
                        pass
                    report.skipped(f"{path}:{number}", "a line of more than 4 MiB")
                    continue
                try:
                    line = raw.removesuffix(b"\n").removesuffix(b"\r").decode(encoding)
                except UnicodeDecodeError as error:
                    detail = f"byte {error.start + 1} of it is 0x{raw[error.start]:02x}"
                    report.skipped(f"{path}:{number}", f"a line that is not {encoding}", detail)
                    continue
                yield number, line
    except EOFError as error:
        raise DataError(
            f"{path} ends in the middle of its compressed data, after line {number}: it was cut off. "
            "Copy or download it again."
        ) from error
    except DAMAGE as error:
        raise DataError(f"{path} cannot be read after line {number}: {error}.") from error


def _paragraphs(path: Path, encoding: str, report: Report) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines between blank ones; too many of them are no sentence, and would have to be in memory."""
    for blank, group in groupby(numbered_lines(path, encoding, report), key=lambda numbered: not numbered[1].strip()):
        if blank:
            continue
        lines = list(islice(group, _LONGEST_SENTENCE + 1))
        if len(lines) <= _LONGEST_SENTENCE:
            yield lines
        else:
            report.skipped(f"{path}:{lines[0][0]}", f"a sentence of more than {_LONGEST_SENTENCE:,} lines")


def _check_number_of_lines(path: Path, rest: str) -> None:
    """Compares a file with the next of its translations; as each does so, all are compared."""
    files = siblings(path, rest)
    other = files[(files.index(path) + 1) % len(files)]
    if other == path:
        return
    try:
        mine, its = _count_lines(path), _count_lines(other)
    except DAMAGE as error:
        raise DataError(f"{path} and {other} cannot be compared: {error}. Copy or download them again.") from error
    if mine != its:
        raise DataError(
            f"{path} has {mine:,} lines and {other} has {its:,}: they are not aligned by line. Mend them, or set "
            'align to "none" to read them as texts of their own.'
        )


def _count_lines(path: Path) -> int:
    lines, last = 0, b"\n"
    with open_decompressed(path) as stream:
        while piece := stream.read(1 << 20):
            lines += piece.count(b"\n")
            last = piece[-1:]
    return lines + (last != b"\n")


def _rows(
    path: Path, options: Mapping[str, str | int], encoding: str, report: Report
) -> Iterator[tuple[str, dict[str | int, Any]]]:
    """Each row's place and cells by name, and by number too where the table has no names."""
    head = read_head(path)
    if head.startswith(b"PAR1"):
        yield from _parquet_rows(path)
        return
    text = head.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if text.lstrip().startswith("{"):
        yield from _json_rows(path, encoding, report)
        return
    separator = _separator(without_compression(path).suffix.lower(), text) or "\t"
    names: list[str] = []
    headless = bool(options) and all(isinstance(place, int) for place in options.values())
    for number, cells in _delimited(path, separator, encoding, report):
        if not names and not headless:
            names = [name.strip() for name in cells]
            continue
        source = f"{path}:{number}"
        if names and len(cells) != len(names):
            report.skipped(source, "a row that has not as many cells as the header", f"{len(cells)} and {len(names)}")
            continue
        by_number: dict[str | int, Any] = dict(enumerate(cells))
        yield source, by_number | dict(zip(names, cells, strict=False))


def _delimited(path: Path, separator: str, encoding: str, report: Report) -> Iterator[tuple[int, list[str]]]:
    if separator == "\t":
        for number, line in numbered_lines(path, encoding, report):
            if line.strip():
                yield number, line.split("\t")
        return
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in numbered_lines(path, encoding, report):  # noqa: B007 (told to the loop below)
            yield line + "\n"

    reader = csv.reader(lines(), delimiter=separator)
    while True:
        first = number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            report.skipped(f"{path}:{first}", "a row that is not valid CSV", str(error))
            continue
        if any(cell.strip() for cell in cells):
            yield first, cells


def _json_rows(path: Path, encoding: str, report: Report) -> Iterator[tuple[str, dict[str | int, Any]]]:
    for number, line in numbered_lines(path, encoding, report):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield f"{path}:{number}", row
        else:
            report.skipped(f"{path}:{number}", "the line is not a JSON object")


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str | int, Any]]]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}:{number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as a Parquet table after row {number}: {error}.") from error


def _parquet_names(path: Path) -> list[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        return list(parquet.read_schema(path).names)
    except (pyarrow.ArrowException, OSError):
        return []


def _located(path: Path, options: Mapping[str, str | int], row: Mapping[str | int, Any]) -> dict[str, str | int]:
    names = [name for name in row if isinstance(name, str)]
    places = dict(options) or header_languages(names)
    for tag, place in places.items():
        if place not in row:
            there = f"its columns are {', '.join(names)}" if names else f"it has {len(row)} columns, numbered from 0"
            raise DataError(
                f'{path} has no column "{place}", which the option columns names for "{tag}": {there}.'
                f"{nearest(str(place), names)}"
            )
    return places


def _names(line: str, separator: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []


def _separator(suffix: str, text: str) -> str:
    """What separates the cells of a table: by its ending, else a tab in the first line; "" where nothing does."""
    first = text.partition("\n")[0]
    if suffix in (".tsv", ".tab") or (suffix in (".txt", "") and "\t" in first):
        return "\t"
    if suffix == ".csv":
        return max(",;\t", key=first.count)
    return "\t" if "\t" in first else ""


def _is_words(text: str) -> bool:
    """Whether the first lines are words with tags, and blank lines stand between sentences or none does."""
    lines = [line for line in text.split("\n")[:200] if line.strip() and not line.startswith(("-DOCSTART-", "# "))]
    if len(lines) > 1:
        lines = lines[:-1]
    rows = [re.split(r"\t| +", line.strip()) for line in lines]
    right = sum(len(row) >= 2 and _LABEL.fullmatch(row[-1]) is not None for row in rows)
    return bool(rows) and right >= 0.95 * len(rows) and len({len(row) for row in rows}) <= 2


def _conllu_text(lines: Sequence[str]) -> str:
    """The words of a sentence, multiword tokens as they are written; "" where a line has not ten cells."""
    text, covered = "", 0
    for line in lines:
        cells = line.split("\t")
        if len(cells) != 10:
            return ""
        first, _, last = cells[0].partition("-")
        if not first.isdigit() or int(first) <= covered:  # an empty node, or a word within a multiword token
            continue
        covered = int(last) if last.isdigit() else int(first)
        text += cells[1] + ("" if "SpaceAfter=No" in cells[9].split("|") else " ")
    return text.strip()


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _plain(value: Any) -> str:
    return replace_surrogates(value) if isinstance(value, str) else json.dumps(value)
