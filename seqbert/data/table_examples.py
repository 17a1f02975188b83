"""From the rows of a file to examples: cells in the domain's canonical text, and labels as the task takes them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqbert.data.compressed import without_compression
from seqbert.data.squad import place_answers, read_answers
from seqbert.data.table_options import TableOptions, Task
from seqbert.data.table_rows import Row, is_missing
from seqbert.domain import Domain, Example, Report
from seqbert.errors import DataError

_NOTHING_LEFT = "nothing is left of a text in canonical form"
_DECIMAL = re.compile(r"[-+]?\d+\.\d*([eE][-+]?\d+)?")


class _Unusable(Exception):
    """A record that is left out: the reason, and what is particular to this record."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail


class ExampleMaker:
    """Makes the examples of one task from rows, and tells the report of those that cannot be used."""

    def __init__(
        self, task: Task, options: TableOptions, domain: Domain, report: Report, labelled: bool, multilabel: bool
    ) -> None:
        self.task = task
        self.options = options
        self.domain = domain
        self.report = report
        self.labelled = labelled
        self.multilabel = multilabel
        self.first_detail = ""
        """Of the first record that was left out and of which there is more to say than the reason."""
        self._pattern = re.compile(options.label_pattern) if options.label_pattern else None
        self._between_words: str | None = None
        self._source = ""
        makers: dict[Task, Callable[[Row], Example]] = {
            "classification": self._texts,
            "regression": self._texts,
            "tagging": self._words,
            "span": self._question,
            "choice": self._choice,
        }
        self._make = makers[task]

    def from_row(self, row: Row, path: Path) -> Example | None:
        """The example of a row of ``path``, or None where it is skipped, and the report told why.

        Raises:
            DataError: The label of a classification is a fraction.
        """
        self._source = row.source
        try:
            row.label = self._if_it_fits(self._source_of_label, row.label, row.id, row.metadata, path)
            return self._make(row)
        except _Unusable as unusable:
            self._skip(row.source, unusable)
            return None

    def from_domain(self, example: Example, path: Path) -> Example | None:
        """An example of the domain's own labelled format, with its label as the task takes it; None where skipped.

        Raises:
            DataError: The label of a classification is a fraction.
        """
        try:
            label = self._if_it_fits(self._source_of_label, example.label, example.id, example.metadata, path)
            if self.task in ("classification", "regression"):
                label = self._if_it_fits(self._label, label, example.source)
            elif label is None and self.labelled:
                raise _Unusable("no label")
            return dataclasses.replace(example, label=label)
        except _Unusable as unusable:
            self._skip(example.source, unusable)
            return None

    def _skip(self, source: str, unusable: _Unusable) -> None:
        self.first_detail = self.first_detail or unusable.detail
        self.report.skipped(source, str(unusable), unusable.detail)

    # Examples

    def _texts(self, row: Row) -> Example:
        texts = [self._joined(row.sequence)[0] if isinstance(row.sequence, list) else self._first_text(row)]
        if row.pair is not None:
            texts.append(self._canonical(row.pair))
        return self._example(row, texts, self._if_it_fits(self._label, row.label, row.source))

    def _words(self, row: Row) -> Example:
        spans: np.ndarray | None
        if isinstance(row.sequence, list):
            text, words = self._joined(row.sequence)
            spans = words
        else:
            text = self._first_text(row)
            words, spans = self.domain.words(text), None
        return self._example(row, [text], self._if_it_fits(_tags, row.label, len(words)), spans)

    def _question(self, row: Row) -> Example:
        question = "" if is_missing(row.sequence) else self._canonical(row.sequence, empty=True)
        context = "" if is_missing(row.pair) else self._text(row.pair)
        return self._example(row, [question, context], self._if_it_fits(self._answers, row, context))

    def _choice(self, row: Row) -> Example:
        choices, names = _listed_choices(row.choices)
        texts = [self._text(choice) for choice in choices]
        if len(texts) < 2:
            raise _Unusable("fewer than two choices")
        label = self._if_it_fits(_right_choice, row.label, texts, names)
        beginning = "" if row.pair is None else f"{self._text(row.pair)} "
        continued = [self._canonical(beginning + text) for text in texts]
        return self._example(row, [self._first_text(row), *continued], label)

    def _example(self, row: Row, texts: Sequence[str], label: Any, words: np.ndarray | None = None) -> Example:
        return Example(row.id, tuple(texts), label, row.source, row.metadata, words)

    # Labels

    def _if_it_fits(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """A label as ``read`` makes it; None for one that is missing or misfit where records need no label."""
        try:
            return read(*arguments)
        except (_Unusable, DataError):
            if self.labelled:
                raise
            return None

    def _source_of_label(self, label: Any, name: str, metadata: dict[str, str], path: Path) -> Any:
        options = self.options
        if options.label_from == "file":
            label = without_compression(path).stem
        elif options.label_from == "folder":
            label = path.resolve().parent.name
        elif options.label_from == "metadata" and options.label_key is None:
            label = f"{name} {metadata.get('description', '')}".rstrip()
        elif options.label_from == "metadata":
            label = metadata.get(str(options.label_key), "")
        if self._pattern is None or is_missing(label):
            return label
        return [self._matched(item) for item in label] if isinstance(label, list) else self._matched(label)

    def _matched(self, label: Any) -> str:
        assert self._pattern is not None
        match = None if isinstance(label, dict | list) else self._pattern.search(str(label))
        if match is None:
            raise _Unusable("a label in which label_pattern is not found", f'"{label}"')
        return match[1] or ""

    def _label(self, cell: Any, source: str) -> Any:
        """The label of a classification or a regression."""
        if cell is None or (is_missing(cell) and not self.multilabel):
            raise _Unusable("no label")
        if self.task == "regression":
            return _number(cell)
        if not self.multilabel:
            return _class(cell, source)
        cells = cell if isinstance(cell, list) else str(cell).split("|")
        return list(dict.fromkeys(_class(item, source) for item in cells if not is_missing(item)))

    def _answers(self, row: Row, context: str) -> list[tuple[int, int]]:
        if row.label is None:
            raise _Unusable("no answers")
        answers = read_answers(row.label, row.start)
        if answers is None:
            raise _Unusable("answers that are neither text nor objects with text and answer_start")
        places, moved, lost = place_answers(answers, context)
        if answers and not places:
            raise _Unusable("the answer does not stand in the context where it says, nor at one other place alone")
        self.report.tally("answers left out that do not stand in the context, beside others that do", lost)
        if moved:
            self.report.repaired(row.source, "an answer moved to the one place in the context where its text stands")
        return places

    # Text

    def _first_text(self, row: Row) -> str:
        if not row.ready:
            return self._canonical(row.sequence)
        if not row.sequence:
            raise _Unusable(_NOTHING_LEFT)
        return str(row.sequence)

    def _canonical(self, cell: Any, empty: bool = False) -> str:
        raw = self._text(cell)
        try:
            text = self.domain.cell(raw, self.report, self._source)
        except DataError as error:
            if self.report.strict:
                raise
            raise _Unusable(f'text that the domain "{self.domain.name}" cannot take', str(error)) from error
        if not text and not empty:
            raise _Unusable(_NOTHING_LEFT)
        return text

    def _text(self, cell: Any) -> str:
        if is_missing(cell):
            raise _Unusable("an empty cell")
        if isinstance(cell, list | dict | bytes):
            raise _Unusable(f"a cell that is {_kind(cell)} and no text")
        if isinstance(cell, bool):
            return "true" if cell else "false"
        return str(cell)

    def _joined(self, words: Sequence[Any]) -> tuple[str, np.ndarray]:
        """Words in canonical form with single spaces between, and their places ``[words, 2]``.

        A word of which nothing is left keeps its number, and its place is empty. A domain whose canonical text has
        no blanks, as one of residues, has its words side by side.
        """
        canonical = ["" if is_missing(word) else self._canonical(word, empty=True) for word in words]
        filled = [word for word in canonical if word]
        if not filled:
            raise _Unusable(_NOTHING_LEFT)
        if self._between_words is None and len(filled) > 1:
            side_by_side = "".join(filled)
            without = self.domain.canonical(" ".join(filled)) == side_by_side
            self._between_words = "" if without else " "
        between = self._between_words or ""
        spans = np.zeros((len(canonical), 2), np.int64)
        end = 0
        for number, word in enumerate(canonical):
            start = end + (len(between) if word and end else 0)
            end = start + len(word)
            spans[number] = start, end
        return between.join(filled), spans


def _class(cell: Any, source: str) -> str:
    """A class as text: 1, 1.0 and "1.0" are "1"."""
    if isinstance(cell, list | dict):
        raise _Unusable("a label that is a list, where one class is expected")
    if isinstance(cell, bool):
        return "true" if cell else "false"
    text = str(cell).strip()
    if not text:
        raise _Unusable("no label")
    if isinstance(cell, float) or _DECIMAL.fullmatch(text):
        number = float(text)
        if not number.is_integer():
            raise DataError(
                f"{source}: the label {text} is a fraction, and the task classification takes classes. If the labels "
                "are quantities, set task.name to regression; else name the column of the classes under "
                "data.columns.label."
            )
        return str(int(number))
    return text


def _number(cell: Any) -> float:
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _Unusable("a label that is no number", f'"{cell}"')
    return number


def _tags(cell: Any, words: int) -> list[str]:
    """Labels of words: a list, a text with blanks between labels, or a text with a character for each word."""
    if cell is None or is_missing(cell):
        raise _Unusable("no label")
    if isinstance(cell, list):
        tags = ["" if is_missing(tag) else str(tag).strip() for tag in cell]
    else:
        text = str(cell).strip()
        tags = list(text) if len(text) == words and not any(map(str.isspace, text)) else text.split()
    if len(tags) != words:
        raise _Unusable("labels that are not as many as the words", f"{words} words and {cell!r:.80}")
    if not all(tags):
        raise _Unusable("a word without a label")
    return tags


def _right_choice(cell: Any, texts: Sequence[str], names: Sequence[str]) -> int:
    """The number of the right choice: by its name in the file, its number from 0, its letter, or its text."""
    if cell is None or is_missing(cell):
        raise _Unusable("no label")
    right = str(cell).strip()
    if not names and _DECIMAL.fullmatch(right) and float(right).is_integer():
        right = str(int(float(right)))
    numbers = [str(number) for number in range(len(texts))]
    letters = [chr(ord("A") + number) for number in range(min(26, len(texts)))]
    for known in (names, numbers, letters, [text.strip() for text in texts]):
        if right in known:
            return list(known).index(right)
    raise _Unusable("a label that is none of the choices", f'"{right}"')


def _listed_choices(cells: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """The choices, and their names where the file gives them: ``{"text": [...], "label": [...]}`` as in ARC."""
    if len(cells) != 1:
        return list(cells), []
    cell = cells[0]
    if isinstance(cell, dict):
        texts, names = cell.get("text"), cell.get("label")
        if isinstance(texts, list) and isinstance(names, list) and len(texts) == len(names):
            return texts, [str(name).strip() for name in names]
    if isinstance(cell, list):
        return cell, []
    raise _Unusable("choices that are no list")


def _kind(cell: Any) -> str:
    return "a list" if isinstance(cell, list) else "an object" if isinstance(cell, dict) else "binary"
