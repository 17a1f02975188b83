"""From stretches of documents to sequences with special tokens: single ones, or the parts of a pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from seqbert.data.plan import Source, Stretches
from seqbert.data.ranges import count_up, spread
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
        unit_start: Whether each token begins a masking unit, ``[tokens]``; None where every token is one, or where
            nobody asks.
        segment_start: Whether each token begins a segment, ``[tokens]``; None where tokens do not overlap.
        position: Place of each token in its sequence, ``[tokens]``.
        lengths: Tokens of each sequence, ``[sequences]``.
        stretches: Where each sequence comes from, and the step and place that key its draws.
        pair_label: Class of each pair, or :data:`NO_PAIR`, ``[sequences]``.
    """

    ids: np.ndarray
    segment_ids: np.ndarray
    unit_start: np.ndarray | None
    segment_start: np.ndarray | None
    position: np.ndarray
    lengths: np.ndarray
    stretches: Stretches
    pair_label: np.ndarray


@dataclasses.dataclass(slots=True)
class Drawn:
    """What sequences are to be made of, before any token is read.

    Attributes:
        start: First place in the token store of each sequence's first and second part, ``[sequences, 2]``.
        stop: One past the last place of each, ``[sequences, 2]``.
        parts: How many parts each sequence has, 1 or 2, ``[sequences]``; of a second that is not there both are 0.
        label: Class of each pair, or :data:`NO_PAIR`, ``[sequences]``.
        stretches: Where each sequence comes from.
        max_length: Most tokens of a sequence, special tokens included.
    """

    start: np.ndarray
    stop: np.ndarray
    parts: np.ndarray
    label: np.ndarray
    stretches: Stretches
    max_length: int

    def __len__(self) -> int:
        return len(self.label)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, special tokens included, ``[sequences]``."""
        return np.asarray(1 + self.parts + (self.stop - self.start).sum(axis=1))

    def chosen(self, numbers: np.ndarray) -> Drawn:
        """The sequences of these numbers, in this order."""
        start, stop, parts, label = (column[numbers] for column in (self.start, self.stop, self.parts, self.label))
        return Drawn(start, stop, parts, label, self.stretches[numbers], self.max_length)


def draw_single(source: Source, stretches: Stretches, max_length: int) -> Drawn:
    """One sequence for each stretch; none has more than ``max_length`` tokens."""
    split, count = source.split, len(stretches)
    first = split.offset[split.first_segment[stretches.document]]  # all at once: a process draws for all processes
    nothing = np.zeros(count, np.int64)
    start, stop = (np.stack([first + edge, nothing], axis=1) for edge in (stretches.start, stretches.stop))
    return Drawn(start, stop, np.ones(count, np.int64), np.full(count, NO_PAIR), stretches, max_length)


def build_sequences(source: Source, drawn: Drawn, units: bool = False) -> Sequences:
    """The sequences as tokens: ``[CLS] part [SEP]`` or ``[CLS] part [SEP] part [SEP]``.

    Where the source has augmentations, each sequence is given a variant of each that its step and place draw; both
    parts of a pair are given the same.

    Args:
        source: What they are drawn from.
        drawn: The sequences, in this order.
        units: Whether to read which tokens begin masking units.
    """
    has_part = np.arange(2) < drawn.parts[:, None]
    start, stop = drawn.start[has_part], drawn.stop[has_part]
    frame = _Frame(drawn, stop - start)
    store, unit_start, segment_start = source.split.store, None, None
    try:
        ids = store.gather("ids", start, stop, frame.is_last).astype(np.int64)
        if units and source.split.has_units:
            unit_start = store.gather("unit_start", start, stop, frame.is_last)
    except Exception as error:
        _find_unreadable(error, source, drawn)
        raise
    if unit_start is not None:
        unit_start[frame.begins] = 1  # a unit cut by the window's edge is a unit of what is left
    if source.corpus.overlap:
        segment_start = _find_segments(source.split.offset, start, stop, frame)
    if source.augmentations:
        frame, ids, unit_start, segment_start = _vary(source, drawn, frame, ids, unit_start, segment_start)
    return frame.filled(source, drawn, ids, unit_start, segment_start)


class _Frame:
    """Where parts stand in the stream of sequences: each after a special token, the last of a sequence before one.

    Attributes:
        number: Number of each part's sequence, ``[parts]``.
        is_last: Whether it is the last part of its sequence, ``[parts]``.
        lengths: Tokens of each part, ``[parts]``.
        begins: Where in the stream each part begins, ``[parts]``.
        tokens: Tokens of the stream.
    """

    def __init__(self, drawn: Drawn, lengths: np.ndarray) -> None:
        self.number = np.repeat(np.arange(len(drawn)), drawn.parts)
        self.is_last = np.diff(self.number, append=-1) != 0
        self.lengths = lengths
        widths = lengths + 1 + self.is_last
        ends = np.cumsum(widths)
        self.begins = ends - widths + 1
        self.tokens = int(ends[-1])

    def filled(
        self,
        source: Source,
        drawn: Drawn,
        ids: np.ndarray,
        unit_start: np.ndarray | None,
        segment_start: np.ndarray | None,
    ) -> Sequences:
        """The sequences, of columns in which special tokens are missing; they begin units and segments."""
        special = source.corpus.special_ids
        is_first = np.append(True, self.is_last[:-1])
        ends = (self.begins + self.lengths)[self.is_last]
        ids[self.begins - 1] = np.where(is_first, special["[CLS]"], special["[SEP]"])
        ids[ends] = special["[SEP]"]
        for flags in (unit_start, segment_start):
            if flags is not None:
                flags[self.begins - 1] = flags[ends] = True
        lengths = np.diff(ends, prepend=-1)
        segment_ids = (
            np.zeros_like(ids)
            if is_first.all()
            else np.repeat((~is_first).astype(np.int64), self.lengths + 1 + is_first)
        )
        position = count_up(lengths)
        return Sequences(ids, segment_ids, unit_start, segment_start, position, lengths, drawn.stretches, drawn.label)

    def spread(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """An array for each part, in one column with room for special tokens."""
        column = np.zeros(self.tokens, columns[0].dtype)
        column[spread(self.begins, self.lengths)] = np.concatenate(columns)
        return column


def _find_segments(offset: np.ndarray, start: np.ndarray, stop: np.ndarray, frame: _Frame) -> np.ndarray:
    """Which tokens of parts begin a segment, the first one of each part among them."""
    flags = np.zeros(frame.tokens, bool)
    low, high = (np.searchsorted(offset, edges) for edges in (start, stop))
    flags[offset[spread(low, high - low)] + np.repeat(frame.begins - start, high - low)] = True
    flags[frame.begins] = True
    return flags


def _vary(
    source: Source,
    drawn: Drawn,
    frame: _Frame,
    ids: np.ndarray,
    unit_start: np.ndarray | None,
    segment_start: np.ndarray | None,
) -> tuple[_Frame, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """The parts in the variants that their sequences draw."""
    stretches = drawn.stretches
    changes = [
        (augmentation, below(augmentation.variants, source.seed, stream(name), stretches.step, stretches.place))
        for name, augmentation in source.augmentations.items()
    ]
    rooms = (drawn.max_length - drawn.lengths).tolist()
    varied: list[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]] = []
    for sequence, low, length in zip(frame.number.tolist(), frame.begins.tolist(), frame.lengths.tolist(), strict=True):
        own, units, segments = (None if c is None else c[low : low + length] for c in (ids, unit_start, segment_start))
        assert own is not None
        most = length + rooms[sequence]
        try:
            for augmentation, variants in changes:
                if variants[sequence]:
                    own, units, segments = _changed(augmentation, int(variants[sequence]), own, units, segments, most)
        except Exception as error:
            _note(error, source, int(stretches.document[sequence]))
            raise
        rooms[sequence] = most - len(own)
        varied.append((own, units, segments))
    frame = _Frame(drawn, np.fromiter((len(own) for own, _, _ in varied), np.int64, len(varied)))
    if unit_start is not None:
        unit_start = frame.spread([units for _, units, _ in varied if units is not None])
    if segment_start is not None:
        segment_start = frame.spread([segments for _, _, segments in varied if segments is not None])
    return frame, frame.spread([own for own, _, _ in varied]), unit_start, segment_start


def _find_unreadable(error: Exception, source: Source, drawn: Drawn) -> None:
    """Notes on an error in which document it happened."""
    for document, start, stop in zip(drawn.stretches.document.tolist(), drawn.start, drawn.stop, strict=True):
        try:
            source.split.store.gather("ids", start, stop, np.zeros_like(start))
        except Exception:
            _note(error, source, document)
            return


def _note(error: Exception, source: Source, document: int) -> None:
    error.add_note(f"in the document {source.corpus.name_of(int(source.split.row[document]))}")


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
