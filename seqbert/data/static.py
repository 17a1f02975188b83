"""Micro-batches of one shape, so that a step which is compiled or recorded for a GPU is so once.

Sequences of a step are dealt out to as few micro-batches as its token budget fills, all of them nearly equally full.
What is left of each is one masked tail: tokens in sequences of their own, which no other sequence attends to and no
target stands on. Lists of boundaries and targets are filled up with what weighs nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from seqbert.data.packing import PackedBatch, Target

SLACK = 0.005
"""Room beyond an even share of a step, so that sequences which cannot be cut fit several micro-batches."""

CROWDING = 1.25
"""How many times its even share of a step's sequences a micro-batch may take."""

EXCHANGES = 50
"""Of sequences between two groups, before a step is given a micro-batch more."""

MULTIPLE = 64
"""Sizes are multiples of this, which matrix products on a GPU are fastest with."""

NO_RECORD = -1
"""The record that sequences of a tail belong to."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of a micro-batch.

    Attributes:
        tokens: Length of the stream, with its tail.
        sequences: Sequences at most, without those of the tail.
        longest: Most tokens of a sequence.
        targets: Length of the list of targets of each term.
    """

    tokens: int
    sequences: int
    longest: int
    targets: Mapping[str, int]

    @classmethod
    def of(
        cls,
        budget: int,
        sequences: int,
        longest: int,
        micro_tokens: int,
        ranks: int,
        targets: Callable[[int, int], Mapping[str, int]],
    ) -> Shape:
        """The shape for the steps of a run.

        Args:
            budget: Most tokens of a step.
            sequences: Most sequences of a step.
            longest: Most tokens of a sequence.
            micro_tokens: Most tokens that are to go through a model at once; what :data:`SLACK` and
                :data:`MULTIPLE` add comes on top.
            ranks: Processes that share a step.
            targets: Gives the most targets of each term that so many tokens in so many sequences have. Where it is too
                low for a step, that one has a micro-batch more.
        """
        pieces = math.ceil(budget / ranks / micro_tokens)
        share = budget / ranks + (longest if ranks > 1 else 0)  # shares are even but for a sequence
        tokens = _rounded(max(longest, share / pieces * (1 + SLACK if pieces > 1 else 1)))
        many = min(sequences / ranks / pieces * (CROWDING if pieces > 1 else 1) + 1, tokens)
        lists = {name: _rounded(max(most, longest)) for name, most in targets(tokens, math.ceil(many)).items()}
        return cls(tokens, math.ceil(many), longest, lists)

    @property
    def boundaries(self) -> int:
        """Length of the list of boundaries: of the sequences, and of a tail that may be nearly everything."""
        return self.sequences + math.ceil(self.tokens / self.longest) + 1


def cut(batch: PackedBatch, shape: Shape) -> list[PackedBatch]:
    """Deals the sequences of a batch out to as few micro-batches of a shape as hold them.

    Losses and gradients are those of the batch: each sequence and each target is in one of them, with weight 1.

    Raises:
        ValueError: A sequence alone has more tokens or targets than the shape.
    """
    assert batch.choice is None, "choices of one record are not to be parted"
    ends = batch.cu_seqlens.numpy().astype(np.int64)
    owners = {name: _owners(target, ends) for name, target in batch.targets.items()}
    counts = [np.bincount(owner, minlength=len(batch.lengths)) for owner in owners.values()]
    needs = np.stack([np.diff(ends), np.ones(len(batch.lengths), np.int64), *counts], axis=1)
    most = np.array([shape.tokens, shape.sequences, *(shape.targets[name] for name in batch.targets)])
    groups = _deal(needs, most)
    if len(groups) == 1:
        return [fill(batch, shape)]
    return [fill(_taken(batch, group, ends, owners), shape) for group in groups]


def fill(batch: PackedBatch, shape: Shape) -> PackedBatch:
    """A batch brought to a shape that has room for it.

    The tail is cut into sequences of at most ``shape.longest`` tokens, because kernels are compiled for that length.

    >>> from seqbert.data.packing import pack
    >>> filled = fill(pack("text", [np.array([2, 7, 3])]), Shape(8, 2, 4, {}))
    >>> filled.lengths, filled.positions.tolist(), filled.cu_seqlens.tolist()
    ((3, 4, 1, 0), [0, 1, 2, 0, 1, 2, 3, 0], [0, 3, 7, 8, 8])
    """
    spare = shape.tokens - batch.tokens
    whole, rest = divmod(spare, shape.longest)
    lengths = [*batch.lengths, *[shape.longest] * whole, *[rest] * (rest > 0)]
    lengths += [0] * (shape.boundaries - 1 - len(lengths))
    boundaries = torch.from_numpy(np.cumsum([0, *lengths]).astype(np.int32))
    return PackedBatch(
        batch.vocabulary,
        _filled(batch.ids, shape.tokens),
        _filled(batch.segment_ids, shape.tokens),
        torch.cat((batch.positions, torch.arange(spare) % shape.longest)),
        boundaries,
        tuple(lengths),
        _filled(batch.record, len(lengths), NO_RECORD),
        {name: _filled_targets(target, shape.targets[name], batch) for name, target in batch.targets.items()},
        counted=batch.counted,
        limit=shape.longest,
        boundaries=boundaries,
    )


def _filled_targets(target: Target, size: int, batch: PackedBatch) -> Target:
    """Targets, and others of weight 0: spread over the stream, so that no row gathers the gradients of all of them."""
    spare = size - len(target.index)
    places = len(batch.lengths) if target.of_sequences else batch.tokens
    index = torch.from_numpy(np.linspace(0, places, spare, endpoint=False).astype(np.int64))
    weight = torch.ones(len(target.index)) if target.weight is None else target.weight
    return Target(
        torch.cat((target.index, index)),
        _filled(target.labels, size),
        None if target.symbols is None else _filled(target.symbols, size),
        target.of_sequences,
        _filled(weight, size),
    )


def _filled(rows: Tensor, size: int, value: int = 0) -> Tensor:
    """Rows, and a value up to a number of them."""
    return torch.cat((rows, rows.new_full((size - len(rows), *rows.shape[1:]), value)))


def _deal(needs: np.ndarray, most: np.ndarray) -> list[np.ndarray]:
    """Parts sequences into as few groups as possible, each within what it may have ``most`` of, in rising order.

    Args:
        needs: What each sequence takes of it, ``[sequences, kinds]``; of the first, its tokens, all get alike.
        most: ``[kinds]``.
    """
    if (needs > most).any():
        raise ValueError(f"a sequence takes {needs.max(0).tolist()} of at most {most.tolist()}")
    least = max(1, int(np.ceil(needs.sum(0) / most).max()))
    order = np.argsort(-needs[:, 0], kind="stable")
    for count in range(least, len(needs) + 1):
        for dealt in (_back_and_forth, _least_filled):  # the second takes longer, and evens out more
            numbers = dealt(needs[order], most, count)
            sums = np.stack([np.bincount(numbers, kind[order], count) for kind in needs.T], axis=1)
            if (sums <= most).all():
                return [np.sort(order[numbers == number]) for number in range(count)]
    return [np.arange(0)]  # of no sequences


def _back_and_forth(needs: np.ndarray, most: np.ndarray, groups: int) -> np.ndarray:
    """Groups of sequences in order of length, which get equally many and nearly equally long ones: 0 1 2 2 1 0 0 ..."""
    turn, place = np.divmod(np.arange(len(needs)), groups)
    return np.where(turn % 2, groups - 1 - place, place)


def _least_filled(needs: np.ndarray, most: np.ndarray, groups: int) -> np.ndarray:
    """Groups of sequences in order of length, each that with the fewest tokens among those with room for the rest.

    The longest first (Graham 1969): the short ones at the end even out what the long ones left uneven. What remains is
    evened out by exchanging sequences between the fullest and the emptiest group. Groups may still be too full.
    """
    left = np.repeat(most[None], groups, axis=0)
    numbers = np.empty(len(needs), np.int64)
    for sequence, need in enumerate(needs):
        fitting = (left[:, 1:] >= need[1:]).all(1)
        numbers[sequence] = number = int(np.where(fitting, left[:, 0], np.iinfo(np.int64).min).argmax())
        left[number] -= need
    for _ in range(EXCHANGES):
        fullest, emptiest = int(left[:, 0].argmin()), int(left[:, 0].argmax())
        if left[fullest, 0] >= 0:
            break
        given, taken = np.flatnonzero(numbers == fullest), np.flatnonzero(numbers == emptiest)
        wanted = (left[emptiest, 0] - left[fullest, 0]) // 2
        beside = np.abs(needs[given, 0][:, None] - needs[taken, 0][None] - wanted)
        one, other = np.unravel_index(int(beside.argmin()), beside.shape)
        moved = needs[given[one]] - needs[taken[other]]
        left[fullest] += moved
        left[emptiest] -= moved
        numbers[given[one]], numbers[taken[other]] = emptiest, fullest
    return numbers


def _owners(target: Target, ends: np.ndarray) -> np.ndarray:
    """The sequence of each target."""
    index = target.index.numpy()
    return index if target.of_sequences else np.searchsorted(ends, index, side="right") - 1


def _taken(batch: PackedBatch, numbers: np.ndarray, ends: np.ndarray, owners: Mapping[str, np.ndarray]) -> PackedBatch:
    """Some of the sequences of a batch, in their order."""
    lengths = np.diff(ends)[numbers]
    starts = np.cumsum(lengths) - lengths
    rows = torch.from_numpy(np.repeat(ends[numbers] - starts, lengths) + np.arange(lengths.sum()))
    targets = {}
    place = np.full(len(batch.lengths), -1)
    place[numbers] = np.arange(len(numbers))
    for name, target in batch.targets.items():
        inside = np.flatnonzero(place[owners[name]] >= 0)
        owner = owners[name][inside]
        moved = place[owner]
        if not target.of_sequences:
            moved = target.index.numpy()[inside] - ends[owner] + starts[moved]
        symbols, weight = (None if kept is None else kept[inside] for kept in (target.symbols, target.weight))
        targets[name] = Target(torch.from_numpy(moved), target.labels[inside], symbols, target.of_sequences, weight)
    taken = PackedBatch.of(
        batch.vocabulary,
        batch.ids[rows].numpy(),
        batch.segment_ids[rows].numpy(),
        lengths,
        batch.record.numpy()[numbers],
        targets,
    )
    return dataclasses.replace(taken, counted=batch.counted)


def _rounded(size: float) -> int:
    return math.ceil(size / MULTIPLE) * MULTIPLE
