"""Labelled records as sequences: encoded once, cut where they are too long, and packed step by step."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

import numpy as np
import torch

from seqbert.data.packing import WHOLE, PackedBatch, Share
from seqbert.data.sampling import EpochOrder, below, stream
from seqbert.data.windows import strided
from seqbert.domain import Augmentation, Domain, Example
from seqbert.errors import DataError

Long = Literal["window", "cut", "error"]
"""What becomes of what is longer than a sequence."""

Shape = Literal["texts", "question", "choices"]
"""What the texts of a record are: one or two of them, a question and its context, or a context and its choices."""

_BATCH = 1024
"""Texts that are encoded at once."""

_BLANK = (-1, 0, 0)
"""In place of a second part where there is none."""

_epoch_order = functools.lru_cache(maxsize=8)(EpochOrder)


@dataclasses.dataclass(slots=True)
class Records:
    """Encoded records. Texts that several records share, such as a paragraph with many questions, are held once.

    Attributes:
        examples: The records.
        ids: Tokens of all texts, end to end, ``[tokens]``.
        text_start: Where each text begins in ``ids``, and the end: ``[texts + 1]``.
        texts: Numbers of the texts of each record, in order.
        offsets: Start and end of each token in the original text, in characters, ``[tokens, 2]``; None where they
            were not asked for.
        units: Masking unit of each token within its text, ``[tokens]``, which augmentations may go by; None where
            the domain has no augmentations, or every token is a unit.
    """

    examples: list[Example]
    ids: np.ndarray
    text_start: np.ndarray
    texts: list[tuple[int, ...]]
    offsets: np.ndarray | None
    units: np.ndarray | None = None

    @classmethod
    def encode(cls, examples: Sequence[Example], domain: Domain, shape: Shape, offsets: bool) -> Records:
        """Encodes the texts of all examples with the domain's tokenizer."""
        numbers: dict[tuple[str, bool], int] = {}
        rows = []
        for example in examples:
            raw = len(example.sequences) - 1 if shape == "question" else None
            keys = [(text, place == raw) for place, text in enumerate(example.sequences)]
            rows.append(tuple(numbers.setdefault(key, len(numbers)) for key in keys))
        ids, lengths, spans = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], [np.zeros((0, 2), np.int64)]
        units: list[np.ndarray] = []
        keys, keeps_units = list(numbers), bool(domain.augmentations())
        for low in range(0, len(keys), _BATCH):
            batch = keys[low : low + _BATCH]
            canonical = [domain.canonical(text) if is_raw else text for text, is_raw in batch]
            encoded = domain.encode(canonical, offsets=offsets)
            ids.append(encoded.ids.astype(np.int32))
            lengths.append(encoded.lengths)
            if keeps_units and encoded.units is not None:
                units.append(encoded.units)
            if offsets:
                assert encoded.offsets is not None
                spans.append(_in_original(encoded.offsets, encoded.lengths, [text for text, _ in batch], canonical))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        return cls(
            list(examples),
            np.concatenate(ids),
            starts,
            rows,
            np.concatenate(spans) if offsets else None,
            np.concatenate(units) if units else None,
        )

    def __len__(self) -> int:
        return len(self.examples)

    def length(self, text: int) -> int:
        """Tokens of a text."""
        return int(self.text_start[text + 1] - self.text_start[text])

    def tokens(self, text: int) -> slice:
        """Where the tokens of a text stand in ``ids`` and ``offsets``."""
        return slice(int(self.text_start[text]), int(self.text_start[text + 1]))

    def record_lengths(self) -> np.ndarray:
        """Tokens of each record, all its texts together, ``[records]``."""
        return np.array([sum(self.length(text) for text in texts) for texts in self.texts], np.int64)


@dataclasses.dataclass(slots=True)
class Inputs:
    """What goes through the encoder: each record as one sequence, or as several where it is long or has choices.

    Attributes:
        record: Number of the record of each sequence, rising, ``[sequences]``.
        choice: Which of its record's choices each sequence holds, ``[sequences]``.
        parts: Text, first token and one past the last token of the first and the second part, ``[sequences, 2, 3]``;
            text -1 where there is no second part.
        items: Sequences that belong together in a step: where each item begins, and the end, ``[items + 1]``.
        cut: Records of which tokens were cut off.
        windowed: Records that were laid out in several windows.
        cut_tokens: Tokens that were cut off.
        max_length: Most tokens of a sequence, special tokens included.
    """

    record: np.ndarray
    choice: np.ndarray
    parts: np.ndarray
    items: np.ndarray
    cut: int
    windowed: int
    cut_tokens: int
    max_length: int

    def __len__(self) -> int:
        return len(self.record)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence with its special tokens, ``[sequences]``."""
        widths = self.parts[:, :, 2] - self.parts[:, :, 1]
        return np.asarray(widths.sum(axis=1) + 2 + (self.parts[:, 1, 0] >= 0))

    def of_record(self) -> np.ndarray:
        """Where the sequences of each record begin, and the end, ``[records + 1]``."""
        records = int(self.record[-1]) + 1 if len(self.record) else 0
        return np.searchsorted(self.record, np.arange(records + 1))


def lay_out(records: Records, shape: Shape, max_length: int, long: Long, stride: int | None) -> Inputs:
    """Cuts what is longer than ``max_length`` tokens, special tokens included, as ``long`` says.

    Of two texts that do not fit, the longer one is cut, and both only where each takes more than half of the
    sequence. A question stays whole beside each window of its context, up to half of the sequence.

    Args:
        records: The records.
        shape: What their texts are.
        max_length: Most tokens of a sequence.
        long: ``window``: overlapping windows; ``cut``: what fits, from the front; ``error``.
        stride: Tokens from the start of one window to that of the next; None: half a window.

    Raises:
        DataError: A record is too long and ``long`` is ``error``.
    """
    numbers, choices, parts, items = [], [], [], [0]
    cut = windowed = cut_tokens = 0
    for number, texts in enumerate(records.texts):
        groups = [(texts[0], text) for text in texts[1:]] if shape == "choices" else [texts]
        record_lost, most = 0, 1
        for choice, group in enumerate(groups):
            lengths = [records.length(text) for text in group]
            if long == "error" and sum(lengths) + len(group) + 1 > max_length:
                example = records.examples[number]
                raise DataError(
                    f"{example.source or 'record ' + example.id}: with its special tokens the record has "
                    f"{sum(lengths) + len(group) + 1} tokens, and training.max_length is {max_length}. Raise it, or "
                    "set data.long to window or cut."
                )
            rows, lost = _windows(lengths, max_length, long, stride, shape == "question")
            record_lost, most = record_lost + lost, max(most, len(rows))
            for row in rows:
                numbers.append(number)
                choices.append(choice)
                placed = [(text, *span) for text, span in zip(group, row, strict=True)]
                parts.append([*placed, _BLANK][:2])
            if shape != "choices":
                items += range(len(numbers) - len(rows) + 1, len(numbers) + 1)
        if shape == "choices":
            items.append(len(numbers))
        cut, windowed, cut_tokens = cut + (record_lost > 0), windowed + (most > 1), cut_tokens + record_lost
    return Inputs(
        np.array(numbers, np.int64),
        np.array(choices, np.int64),
        np.array(parts, np.int64).reshape(-1, 2, 3),
        np.array(items, np.int64),
        cut,
        windowed,
        cut_tokens,
        max_length,
    )


Span = tuple[int, int]


def _windows(
    lengths: list[int], max_length: int, long: Long, stride: int | None, question: bool
) -> tuple[list[list[Span]], int]:
    """The parts of each sequence that a record becomes, and how many tokens are in none."""
    room = max_length - len(lengths) - 1
    if sum(lengths) <= room:
        return [[(0, length) for length in lengths]], 0
    if len(lengths) == 1:
        sizes = [room]
    else:
        half = room // 2
        first, second = lengths
        if question or first <= half:
            sizes = [min(first, half), room - min(first, half)]
        elif second <= room - half:
            sizes = [room - second, second]
        else:
            sizes = [half, room - half]
    whole = [(0, min(length, size)) for length, size in zip(lengths, sizes, strict=True)]
    if long == "cut":
        return [whole], sum(lengths) - sum(stop for _, stop in whole)
    columns = [
        strided(length, size, min(size, stride) if stride else max(1, size // 2))
        for length, size in zip(lengths, sizes, strict=True)
    ]
    lost = 0
    if question:
        lost, columns[0] = lengths[0] - whole[0][1], [whole[0]]
    return [[column[n % len(column)] for column in columns] for n in range(max(map(len, columns)))], lost


@dataclasses.dataclass(slots=True)
class Batcher:
    """Packs sequences of records into batches: those of a step, or all of them in order of length.

    Attributes:
        records: The records.
        inputs: Their sequences.
        vocabulary: Name of the vocabulary.
        cls_id: The token before each sequence.
        sep_id: The token after each part.
        seed: Keys the order of the items in each epoch.
        batch_size: Items in a step.
        together: Whether an item has several sequences, which must not be parted.
        begun: A step, and how many items were visited before it: where the order of the epochs is taken up.
        augmentation: What sequences are given a variant of; None: they stay as they are.
        variant: The variant of all of them, where none is drawn.
    """

    records: Records
    inputs: Inputs
    vocabulary: str
    cls_id: int
    sep_id: int
    seed: int
    batch_size: int
    together: bool
    begun: tuple[int, int] = (0, 0)
    augmentation: Augmentation | None = None
    variant: int = 0

    @property
    def total(self) -> int:
        """Items in an epoch."""
        return len(self.inputs.items) - 1

    @property
    def steps_per_epoch(self) -> int:
        """Steps that go through every item once; the last one may be smaller."""
        return -(-self.total // self.batch_size)

    def steps(self, epochs: float) -> int:
        """Steps after which so many epochs are through."""
        begun, edge, rest = self._edge()
        passed = edge // self.total * self.steps_per_epoch  # whole epochs, so that the sum is where it was begun or not
        return max(1, begun + rest + math.floor(epochs * self.steps_per_epoch + 0.5) - passed)

    def visited(self, step: int) -> int:
        """Items, over all epochs, that the steps before this one took."""
        return self._range(step)[0]

    def step(self, step: int, share: Share = WHOLE) -> np.ndarray:
        """The numbers of a share of a step's sequences, in the order they are packed in; none where it has no item."""
        _, items = _epoch_order(self.total, self.seed)(np.arange(*self._range(step)))
        return self._sequences(share.of(self._by_length(items)))

    def drawn(self, step: int, chosen: np.ndarray) -> np.ndarray:
        """The variant that each of a step's sequences is given, ``[sequences]``.

        It is drawn for each record and epoch, so that windows, choices and both texts of a record get the same one,
        whatever the size of a step.
        """
        if self.augmentation is None:
            return np.zeros(len(chosen), np.int64)
        epoch = self._range(step)[0] // self.total
        return below(self.augmentation.variants, self.seed, stream("augment"), epoch, self.inputs.record[chosen])

    def _range(self, step: int) -> tuple[int, int]:
        """The first item of a step, and one past its last, in the order of all epochs; a step lies in one epoch."""
        begun, edge, rest = self._edge()
        if step < begun + rest:
            first = self.begun[1] + (step - begun) * self.batch_size
        else:
            epoch, place = divmod(step - begun - rest, self.steps_per_epoch)
            edge += epoch * self.total
            first, edge = edge + place * self.batch_size, edge + self.total
        return first, min(first + self.batch_size, edge)

    def _edge(self) -> tuple[int, int, int]:
        """The step that was begun at, the items up to the end of its epoch, and the steps that this takes."""
        begun, visited = self.begun
        edge = -(-visited // self.total) * self.total
        return begun, edge, -(-(edge - visited) // self.batch_size)

    def all(self, most_tokens: int) -> Iterator[np.ndarray]:
        """Every sequence once, the numbers of as many as fit ``most_tokens`` at a time."""
        items = self._by_length(np.arange(self.total))
        tokens = np.add.reduceat(self.inputs.lengths, self.inputs.items[:-1])[items] if len(items) else items
        low = 0
        while low < len(items):
            high = low + max(1, int(np.searchsorted(np.cumsum(tokens[low:]), most_tokens, side="right")))
            yield self._sequences(items[low:high])
            low = high

    def pack(self, chosen: np.ndarray, variants: np.ndarray | None = None) -> PackedBatch:
        """The sequences of these numbers as a batch without targets.

        Args:
            chosen: Numbers of sequences.
            variants: The variant of each, ``[sequences]``; None: :attr:`variant`.
        """
        ids, segments, lengths = [], [], []
        begin, end = np.array([self.cls_id]), np.array([self.sep_id])
        for parts, variant in zip(self.inputs.parts[chosen].tolist(), self._variants(chosen, variants), strict=True):
            pieces = [begin]
            for number, (tokens, _) in enumerate(self._changed(parts, variant)):
                pieces += [tokens, end]
                segments.append(np.full(len(tokens) + 1 + (number == 0), number, np.int64))
            ids += pieces
            lengths.append(sum(map(len, pieces)))
        batch = PackedBatch.of(
            self.vocabulary,
            np.concatenate(ids),
            np.concatenate(segments),
            np.array(lengths, np.int64),
            self.inputs.record[chosen],
            {},
        )
        if self.together:
            batch.choice = torch.from_numpy(self.inputs.choice[chosen])
        return batch

    def sources(self, chosen: np.ndarray, variants: np.ndarray | None = None) -> list[np.ndarray] | None:
        """For each of these sequences which of its tokens stands where in the variant that is packed, ``[length]``.

        None where all stand at their own places. Special tokens do.
        """
        if self.augmentation is None:
            return None
        found = []
        for parts, variant in zip(self.inputs.parts[chosen].tolist(), self._variants(chosen, variants), strict=True):
            pieces, base = [np.zeros(1, np.int64)], 1
            for part, (_, source) in zip(parts, self._changed(parts, variant), strict=False):
                width = part[2] - part[1]
                pieces += [base + source, np.array([base + width])]
                base += width + 1
            found.append(np.concatenate(pieces))
        return found

    def _variants(self, chosen: np.ndarray, variants: np.ndarray | None) -> list[int]:
        return [self.variant] * len(chosen) if variants is None else variants.tolist()

    def _changed(self, parts: list[list[int]], variant: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The tokens of each part in a variant, and which of the part's each of them stems from.

        A variant may have more tokens; it is cut only where the sequence would be longer than ``max_length``.
        """
        texts = [part for part in parts if part[0] >= 0]
        room = self.inputs.max_length - 1 - sum(high - low + 1 for _, low, high in texts)
        found = []
        for text, first, last in texts:
            low, high = (int(self.records.text_start[text]) + place for place in (first, last))
            ids, source = self.records.ids[low:high], np.arange(high - low)
            if self.augmentation is not None and variant:
                units = None if self.records.units is None else self.records.units[low:high]
                ids, source = self.augmentation.change(ids, units, variant)
                limit = high - low + max(room, 0)
                room -= min(len(ids), limit) - (high - low)
                ids, source = ids[:limit], source[:limit]
            found.append((ids, source))
        return found

    def _by_length(self, items: np.ndarray) -> np.ndarray:
        longest = np.maximum.reduceat(self.inputs.lengths, self.inputs.items[:-1])[items] if len(items) else items
        return items[np.argsort(longest, kind="stable")]

    def _sequences(self, items: np.ndarray) -> np.ndarray:
        starts = self.inputs.items
        numbers = [np.arange(starts[i], starts[i + 1]) for i in items]
        return np.concatenate(numbers) if numbers else np.zeros(0, np.int64)


def _in_original(
    offsets: np.ndarray, lengths: np.ndarray, originals: Sequence[str], canonical: Sequence[str]
) -> np.ndarray:
    """Offsets in canonical texts as offsets in the originals."""
    moved, low = offsets.astype(np.int64), 0
    for length, original, text in zip(lengths.tolist(), originals, canonical, strict=True):
        if len(original) != len(text):
            starts, ends = places_in_original(original, text)
            here = slice(low, low + length)
            first, last = moved[here, 0], np.maximum(moved[here, 1] - 1, moved[here, 0])
            moved[here, 0], moved[here, 1] = starts[np.minimum(first, len(text) - 1)], ends[last]
        low += length
    return moved


def places_in_original(original: str, canonical: str) -> tuple[np.ndarray, np.ndarray]:
    """For each character of canonical text, where what it stands for begins and ends in the original.

    Args:
        original: The text as it was, with blanks, case and composition of its own.
        canonical: What the domain made of it.

    Returns:
        Starts and ends, each ``[len(canonical)]``, both rising.

    >>> places_in_original("a  B", "a b")[0].tolist()
    [0, 1, 3]
    """
    places = _walk(original, canonical)
    if places is not None:
        return places, places + 1
    starts, ends = np.zeros(len(canonical), np.int64), np.zeros(len(canonical), np.int64)
    matcher = SequenceMatcher(None, _without_case(original), _without_case(canonical), autojunk=False)
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        if a_end - a == b_end - b:
            starts[b:b_end], ends[b:b_end] = np.arange(a, a_end), np.arange(a, a_end) + 1
        else:
            starts[b:b_end], ends[b:b_end] = a, max(a_end, a)
    return starts, ends


def _walk(original: str, canonical: str) -> np.ndarray | None:
    """Where each character stands if only case differs and white space was taken out or became one blank; else None."""
    places, here = [], 0
    for character in canonical:
        while here < len(original) and original[here].isspace() and character != " ":
            here += 1
        if here == len(original):
            return None
        found = original[here]
        if character == " ":
            if not found.isspace():
                return None
            places.append(here)
            while here < len(original) and original[here].isspace():
                here += 1
            continue
        if found != character and found.lower() != character.lower():
            return None
        places.append(here)
        here += 1
    return np.array(places, np.int64)


def _without_case(text: str) -> str:
    """Lower case, where that keeps every character at its place."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text
