"""From stretches of documents to sequences with special tokens: single ones, or the parts of a pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from seqbert.data.plan import Source, Stretches
from seqbert.data.sampling import below, stream
from seqbert.domain import Augmentation

NO_PAIR = -1
"""Pair label of a sequence that is no pair."""


@dataclasses.dataclass(slots=True)
class Sequences:
    """Sequences of one step, end to end, before anything is masked.

    Attributes:
        ids: Token ids with special tokens, ``[tokens]`` int64.
        segment_ids: 0 or 1 for each token, ``[tokens]``.
        unit_start: Whether each token begins a masking unit, ``[tokens]``; None where every token is one.
        segment_start: Whether each token begins a segment, ``[tokens]``; None where tokens do not overlap.
        lengths: Tokens of each sequence, ``[sequences]``.
        stretches: Where each sequence comes from, and the step and place that key its draws.
        pair_label: Class of each pair, or :data:`NO_PAIR`, ``[sequences]``.
    """

    ids: np.ndarray
    segment_ids: np.ndarray
    unit_start: np.ndarray | None
    segment_start: np.ndarray | None
    lengths: np.ndarray
    stretches: Stretches
    pair_label: np.ndarray


@dataclasses.dataclass(slots=True)
class Drawn:
    """What sequences are to be made of, before any token is read.

    Attributes:
        parts: For each sequence its one or two parts, as first and one past the last place in the token store.
        label: Class of each pair, or :data:`NO_PAIR`, ``[sequences]``.
        stretches: Where each sequence comes from.
    """

    parts: list[tuple[tuple[int, int], ...]]
    label: np.ndarray
    stretches: Stretches

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, special tokens included, ``[sequences]``."""
        return np.array([1 + sum(stop - start + 1 for start, stop in parts) for parts in self.parts], np.int64)


def draw_single(source: Source, stretches: Stretches) -> Drawn:
    """One sequence for each stretch."""
    split = source.split
    first = split.offset[split.first_segment[stretches.document]]  # all at once: a process draws for all processes
    edges = zip((first + stretches.start).tolist(), (first + stretches.stop).tolist(), strict=True)
    return Drawn([(part,) for part in edges], np.full(len(stretches), NO_PAIR, np.int64), stretches)


def build_sequences(source: Source, drawn: Drawn, chosen: np.ndarray) -> Sequences:
    """The sequences of these numbers, in this order: ``[CLS] part [SEP]`` or ``[CLS] part [SEP] part [SEP]``.

    Where the source has augmentations, each sequence is given a variant of each that its step and place draw; both
    parts of a pair are given the same.
    """
    builder = _Builder(source)
    stretches = drawn.stretches[chosen]
    changes = [
        (augmentation, below(augmentation.variants, source.seed, stream(name), stretches.step, stretches.place))
        for name, augmentation in source.augmentations.items()
    ]
    for row, number in enumerate(chosen.tolist()):
        try:
            builder.add(drawn.parts[number], [(augmentation, int(variant[row])) for augmentation, variant in changes])
        except Exception as error:
            row = int(source.split.row[drawn.stretches.document[number]])
            error.add_note(f"in the document {source.corpus.name_of(row)}")
            raise
    return builder.build(stretches, drawn.label[chosen])


class _Builder:
    """Puts parts of the token store between ``[CLS]`` and ``[SEP]``."""

    def __init__(self, source: Source) -> None:
        self._store = source.split.store
        self._max_length = source.max_length
        self._offsets = source.split.offset if source.corpus.overlap else None
        self._has_units = source.split.has_units
        special = source.corpus.special_ids
        self._cls, self._sep = (np.array([special[token]]) for token in ("[CLS]", "[SEP]"))
        self._ids: list[np.ndarray] = []
        self._segment_ids: list[np.ndarray] = []
        self._starts: list[np.ndarray] = []
        self._segments: list[np.ndarray] = []
        self._lengths: list[int] = []

    def add(self, parts: tuple[tuple[int, int], ...], changes: Sequence[tuple[Augmentation, int]]) -> None:
        self._ids.append(self._cls)
        if self._has_units:
            self._starts.append(np.ones(1, np.uint8))
        if self._offsets is not None:
            self._segments.append(np.ones(1, bool))
        length = 1
        room = self._max_length - 1 - sum(stop - start + 1 for start, stop in parts)
        for number, (start, stop) in enumerate(parts):
            ids = self._store.ids(start, stop)
            starts = self._store.unit_starts(start, stop) if self._has_units else None
            segments = None if self._offsets is None else _segment_starts(self._offsets, start, stop)
            most = len(ids) + room
            for augmentation, variant in changes:
                if variant:
                    ids, starts, segments = _changed(augmentation, variant, ids, starts, segments, most)
            room = most - len(ids)
            width = len(ids) + 1
            self._ids += [ids, self._sep]
            self._segment_ids.append(np.full(width + (number == 0), number, np.int64))
            if starts is not None:
                starts = np.append(starts, np.uint8(1))
                starts[0] = 1  # a unit cut by the window's edge is a unit of what is left
                self._starts.append(starts)
            if segments is not None:
                self._segments.append(np.append(segments, True))
            length += width
        self._lengths.append(length)

    def build(self, stretches: Stretches, label: np.ndarray) -> Sequences:
        return Sequences(
            np.concatenate(self._ids, dtype=np.int64, casting="unsafe"),
            np.concatenate(self._segment_ids),
            np.concatenate(self._starts) if self._has_units else None,
            None if self._offsets is None else np.concatenate(self._segments),
            np.asarray(self._lengths),
            stretches,
            label,
        )


def _segment_starts(offsets: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Where segments begin in a stretch of the store, ``[stop - start]``."""
    flags = np.zeros(stop - start, bool)
    inside = slice(*np.searchsorted(offsets, [start, stop]))
    flags[offsets[inside] - start] = True
    flags[0] = True
    return flags


def _changed(
    augmentation: Augmentation,
    variant: int,
    ids: np.ndarray,
    starts: np.ndarray | None,
    segments: np.ndarray | None,
    most: int,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """A variant of a part, with the units and segments that its tokens belong to.

    It may have more tokens, as other letters merge otherwise; of a window of a longer document what is beyond ``most``
    is left for another window.
    """
    units = _numbered(starts)
    new, source = augmentation.change(ids, units, variant)
    new, source = new[:most], source[:most]
    return new, _starts(units, source, np.uint8), _starts(_numbered(segments), source, bool)


def _numbered(starts: np.ndarray | None) -> np.ndarray | None:
    return None if starts is None else np.cumsum(starts)


def _starts(owner: np.ndarray | None, source: np.ndarray, dtype: type) -> np.ndarray | None:
    """Where the owner of a token is another than that of the token before it."""
    if owner is None:
        return None
    owner = owner[source]
    return np.append(True, owner[1:] != owner[:-1]).astype(dtype)
