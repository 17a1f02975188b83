"""Sentences of labelled words, a word a line: CoNLL-U, and files of columns as the CoNLL tasks have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from seqbert.data.table_files import numbered_lines
from seqbert.data.table_rows import Reading, Row
from seqbert.errors import DataError, nearest

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U (https://universaldependencies.org/format.html)."""

_COMMENT = re.compile(r"#\s*(newdoc id|sent_id)\s*=\s*(.*?)\s*")
_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")


def conllu_rows(reading: Reading) -> Iterator[Row]:
    """The sentences of a CoNLL-U file, labelled with UPOS unless the options name another of its columns.

    The lines of multiword tokens (``1-2``) and of empty nodes (``1.1``) are passed over: their words stand beside
    them, or are not written at all. ``sent_id`` becomes the id, ``newdoc id`` the metadata "document".

    Raises:
        DataError: The options name a column that CoNLL-U does not have, or as for every text file.
    """
    columns = reading.options.columns
    word_at = _conllu_column(columns.sequence, "form", "sequence")
    label_at = _conllu_column(columns.label, "upos", "label")
    number, document = 0, ""
    for sentence in _sentences(reading):
        comments = [match for _, line in sentence if (match := _COMMENT.fullmatch(line))]
        said = {match[1]: match[2] for match in comments}
        document = said.get("newdoc id", document)
        rows = [(line, text.split("\t")) for line, text in sentence if not text.startswith("#")]
        if not rows:
            continue
        source = f"{reading.path}:{rows[0][0]}"
        wrong = next(
            (line for line, cells in rows if len(cells) != len(CONLLU_COLUMNS) or "\0" in "".join(cells)), None
        )
        if wrong is not None:
            reading.report.skipped(
                f"{reading.path}:{wrong}", "a sentence with a line that has not the ten cells of CoNLL-U"
            )
        else:
            words = [cells for _, cells in rows if cells[0].isdigit()]
            labels = [cells[label_at] for cells in words]
            yield Row(
                said.get("sent_id") or str(number),
                source,
                [cells[word_at] for cells in words],
                label=labels if reading.labelled or "_" not in labels else None,
                metadata={"document": document} if document else {},
            )
        number += 1


def column_rows(reading: Reading) -> Iterator[Row]:
    """The sentences of a file with a word and its label a line, and blank lines between sentences.

    Cells are separated by tabs, or by blanks where a file has no tab. The word is in the first column and the label
    in the last unless the options say otherwise. ``-DOCSTART-`` begins a document, which is counted in the metadata
    "document"; lines that begin with "# " are comments, unless they have the cells of a word.

    Raises:
        DataError: The options name a column that the file does not have, or as for every text file.
    """
    first = next((cells for _, cells in _cells_of_words(reading)), None)
    if first is None:
        raise DataError(f"{reading.path} has no rows: there is nothing but blank lines and comments in it.")
    width = len(first)
    columns = reading.options.columns
    word_at = _numbered_column(reading, columns.sequence, 0, width, "sequence")
    label_at = _numbered_column(reading, columns.label, width - 1, width, "label")
    if reading.labelled and reading.options.label_from == "column" and label_at == word_at:
        raise DataError(
            f"{reading.path} has one column, and a word and its label are expected in each line. Set data.format if "
            "the file is something else."
        )
    pattern = re.compile(reading.options.word_pattern) if reading.options.word_pattern else None
    number = documents = 0
    for sentence in _sentences(reading):
        rows = []
        for line, text in sentence:
            if text.startswith(_DOCUMENT):
                documents += 1
            elif not _is_comment(text, width):
                rows.append((line, _cells(text)))
        if not rows:
            continue
        wrong = next((line for line, cells in rows if len(cells) != width or "\0" in "".join(cells)), None)
        words = [cells[word_at] if len(cells) == width else "" for _, cells in rows]
        if wrong is not None:
            reading.report.skipped(f"{reading.path}:{wrong}", f"a sentence with a line that has not {width} cells")
        elif pattern and not all(map(pattern.search, words)):
            reading.report.skipped(
                f"{reading.path}:{rows[0][0]}", "a sentence with a word that word_pattern does not fit"
            )
        else:
            if pattern:
                words = [found[1] or "" for word in words if (found := pattern.search(word))]
            yield Row(
                str(number),
                f"{reading.path}:{rows[0][0]}",
                words,
                label=None if label_at == word_at else [cells[label_at] for _, cells in rows],
                metadata={"document": str(documents)} if documents else {},
            )
        number += 1


def _sentences(reading: Reading) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines between blank ones."""
    for blank, group in groupby(numbered_lines(reading.path), key=lambda numbered: not numbered[1].strip()):
        if not blank:
            yield list(group)


def _cells_of_words(reading: Reading) -> Iterator[tuple[int, list[str]]]:
    for line, text in numbered_lines(reading.path):
        if text.strip() and not text.startswith((_DOCUMENT, "# ")):
            yield line, _cells(text)


def _cells(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else _BLANKS.split(line.strip(" "))


def _is_comment(line: str, width: int) -> bool:
    return line.startswith("# ") and len(_cells(line)) != width


def _conllu_column(reference: str | int | None, usual: str, role: str) -> int:
    name = usual if reference is None else reference
    if isinstance(name, int) and name < len(CONLLU_COLUMNS):
        return name
    if str(name).lower() in CONLLU_COLUMNS:
        return CONLLU_COLUMNS.index(str(name).lower())
    raise DataError(
        f'data.columns.{role} is "{name}", which is no column of CoNLL-U; it has {", ".join(CONLLU_COLUMNS)}.'
        f"{nearest(str(name), CONLLU_COLUMNS)}"
    )


def _numbered_column(reading: Reading, reference: str | int | None, usual: int, width: int, role: str) -> int:
    names = reading.options.names or []
    if reference is None:
        return usual
    place = names.index(reference) if isinstance(reference, str) and reference in names else reference
    if isinstance(place, int) and place < width:
        return place
    known = f" ({', '.join(names)})" if names else ""
    raise DataError(
        f'data.columns.{role} is "{reference}", and {reading.path} has {width} columns without a header{known}: '
        "give the column's number from 0, or its name with all names under data.names."
    )
