"""Which column of a table holds what: as the user says, or by the names that such columns usually have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from seqbert.data.table_options import Columns, TableOptions, Task
from seqbert.errors import DataError, nearest

USUAL_SEQUENCES = ("sequence", "seq", "text", "sentence", "content")
"""Names of a column with one text."""

USUAL_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("sequence1", "sequence2"),
    ("seq1", "seq2"),
)
"""Names of two columns with one text each."""

USUAL_WORDS = ("tokens", "words", *USUAL_SEQUENCES)
"""Names of the column that holds what is tagged."""

USUAL_QUESTIONS, USUAL_CONTEXTS = ("question", "query"), ("context", "passage", "paragraph")
"""Names of the columns of a question and of where its answer is sought."""

USUAL_STARTS = ("start", "answer_start")
"""Names of the column that says where an answer begins."""

USUAL_STEMS = ("context", "sent1", "premise", "goal", "question", "stem")
"""Names of the column of what the choices are for."""

USUAL_LABELS: Mapping[Task, tuple[str, ...]] = {
    "classification": ("label", "labels", "class", "target", "category", "gold_label"),
    "regression": ("label", "target", "value", "score"),
    "tagging": ("labels", "label", "tags", "ner_tags", "pos_tags", "upos"),
    "span": ("answers", "answer", "answer_text"),
    "choice": ("label", "answer", "answerkey"),
}
"""Names of the column of the label, by task."""

USUAL_IDS = ("id", "idx", "index")
"""Names of the column of a record's name, the first that is there."""

_USUAL_CHOICES = re.compile(r"(ending|choice|option|answer|sol)_?\d+", re.IGNORECASE)
_USUAL_CHOICE_LISTS = ("choices", "options", "endings")


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """The number of the column that holds each part of a record; None or empty where no column does."""

    sequence: int
    pair: int | None
    label: int | None
    id: int | None
    group: int | None
    start: int | None
    title: int | None
    choices: tuple[int, ...]

    @property
    def used(self) -> list[int]:
        """The columns that are read, in the order of the file."""
        found = {getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "choices"}
        return sorted((found | set(self.choices)) - {None})


def is_header(cells: Sequence[str], task: Task, options: TableOptions) -> bool:
    """Whether the first line of a file, for which the user gave names, is a header all the same.

    It is where it holds every column of text that is asked for by name; a file without labels may hold others
    than those that were named (the test files of GLUE do).
    """
    asked = options.columns
    texts = [asked.sequence, asked.pair, *(asked.choices or [])]
    by_name = [reference for reference in texts if isinstance(reference, str)]
    if by_name:
        return all(_find(reference, cells) is not None for reference in by_name)
    if any(reference is not None for reference in texts):
        return list(cells) == options.names
    search = _Search(Path(), cells, task, asked)
    return search.usual_sequence() is not None and not search.problems


def find_columns(path: Path, columns: Sequence[str], task: Task, options: TableOptions, labelled: bool) -> Places:
    """Finds the columns of a file that has ``columns``.

    Raises:
        DataError: A column that is asked for, or whose usual name is looked for, is not there, or several could be
            meant. The message lists the file's columns and all that was looked for.
    """
    search = _Search(path, columns, task, options.columns)
    places = search.places(labelled and options.label_from == "column", labelled)
    search.complain()
    return places


class _Search:
    """Finds the columns of one file, and gathers what is wrong to say it at once."""

    def __init__(self, path: Path, columns: Sequence[str], task: Task, asked: Columns) -> None:
        self.path = path
        self.columns = columns
        self.task = task
        self.asked = asked
        self.problems: list[str] = []
        self.taken: set[int] = set()

    def places(self, label_needed: bool, labelled: bool) -> Places:
        asked = self.asked
        given = {
            role: self._given(role, getattr(asked, role), labelled or role not in ("label", "start"))
            for role in ("sequence", "pair", "label", "id", "group", "start")
        }
        listed = [self._given("choices", reference, True) for reference in asked.choices or ()]
        choices = [place for place in listed if place is not None]
        if self.task == "choice" and not asked.choices:
            choices = self._usual_choices()
        sequence, pair = given["sequence"], given["pair"]
        if asked.sequence is None:
            sequence = self.usual_sequence()
            if asked.pair is None and sequence is not None:
                pair = self._usual_pair(sequence)
        if self.task == "span" and asked.pair is None:
            pair = self._usual("pair", USUAL_CONTEXTS, True)
        label = given["label"]
        if asked.label is None:
            label = self._usual("label", USUAL_LABELS[self.task], label_needed)
        start = given["start"]
        if self.task == "span" and asked.start is None:
            start = self._usual("start", USUAL_STARTS, False)
        identity = given["id"]
        if asked.id is None:
            found = (self._free(name) for name in USUAL_IDS)
            identity = next((place for place in found if place is not None), None)
        title = self._free("title") if self.task == "span" else None
        return Places(
            -1 if sequence is None else sequence, pair, label, identity, given["group"], start, title, tuple(choices)
        )

    def usual_sequence(self) -> int | None:
        usual = {"tagging": USUAL_WORDS, "span": USUAL_QUESTIONS, "choice": USUAL_STEMS}.get(self.task)
        if usual:
            return self._usual("sequence", usual, True)
        firsts = [first for first, second in USUAL_PAIRS if None not in (self._free(first), self._free(second))]
        return self._usual("sequence", (*USUAL_SEQUENCES, *firsts), True, USUAL_PAIRS)

    def complain(self) -> None:
        if not self.problems:
            return
        columns = ", ".join(f'"{_shortened(name)}"' for name in self.columns[:30]) or "none"
        more = f" and {len(self.columns) - 30} more" if len(self.columns) > 30 else ""
        one = self.columns[0] if len(self.columns) == 1 else ""
        hint = next(
            (f" Its cells seem to be separated by {mark!r}." for mark in ("\t", ";", "|", ",") if mark in one), ""
        )
        raise DataError(
            f"{self.path} has the columns {columns}{more}. {' '.join(self.problems)} Name the right columns under "
            f"data.columns, or the file's own under data.names if it has no header line.{hint}"
        )

    def _given(self, role: str, reference: str | int | None, needed: bool) -> int | None:
        if reference is None:
            return None
        if isinstance(reference, str) and (same := self.columns.count(reference)) > 1:
            self.problems.append(f'{same} of them are called "{reference}", which data.columns.{role} names.')
        place = _find(reference, self.columns)
        if place is None and needed:
            close = nearest(str(reference), self.columns)
            asked = f"number {reference}" if isinstance(reference, int) else f'"{reference}"'
            self.problems.append(f"data.columns.{role} is {asked}, which is not there.{close}")
        if place is not None:
            self.taken.add(place)
        return place

    def _usual(
        self, role: str, names: Sequence[str], needed: bool, pairs: Sequence[tuple[str, str]] = ()
    ) -> int | None:
        places = sorted({place for name in names if (place := self._free(name)) is not None})
        if len(places) == 1:
            self.taken.add(places[0])
            return places[0]
        looked_for = ", ".join([*names, *(" with ".join(pair) for pair in pairs)])
        if places and needed:
            found = " and ".join(f'"{self.columns[place]}"' for place in places)
            self.problems.append(f"{found} could all be the {role}.")
        elif needed:
            self.problems.append(f"None of them is a usual name for the {role} ({looked_for}).")
        return None

    def _usual_pair(self, sequence: int) -> int | None:
        partners = {"choice": {"sent1": "sent2"}, "tagging": {}, "span": {}}.get(self.task, dict(USUAL_PAIRS))
        partner = partners.get(self.columns[sequence].lower())
        place = self._free(partner) if partner else None
        if place is not None:
            self.taken.add(place)
        return place

    def _usual_choices(self) -> list[int]:
        lists = [place for name in _USUAL_CHOICE_LISTS if (place := self._free(name)) is not None]
        single = [place for place, name in enumerate(self.columns) if _USUAL_CHOICES.fullmatch(name)]
        if len(single) < 2:
            single = lists
        kinds = {re.sub(r"\d+", "", self.columns[place]).lower() for place in single}
        if len(kinds) == 1:
            self.taken.update(single)
            return single
        self.problems.append(
            "Which columns hold the choices cannot be told (usual are ending0, ending1, ..., choice1, ..., option1, "
            "..., or one column of lists called choices): name them under data.columns.choices."
        )
        return []

    def _free(self, name: str) -> int | None:
        place = _find(name, self.columns)
        return None if place in self.taken else place


def _find(reference: str | int, columns: Sequence[str]) -> int | None:
    """The number of a column: by number, by its name, or by its name in another case if only one has it."""
    if isinstance(reference, int):
        return reference if reference < len(columns) else None
    if reference in columns:
        return list(columns).index(reference)
    alike = [place for place, name in enumerate(columns) if name.lower() == reference.lower()]
    return alike[0] if len(alike) == 1 else None


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."
