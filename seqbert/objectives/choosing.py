"""Which tokens of a batch are chosen: of each sequence those with the lowest draws, without sorting all of them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from seqbert.data.ranges import spread
from seqbert.data.sampling import as_uniform, counter_hash, distinct, hash_each, stream
from seqbert.objectives.sequences import Sequences

HIGHEST = np.uint64(2**64 - 1)
"""The highest draw there is."""

PADDING = 3
"""How many times as many cells as draws a table of them may have."""


class Draws:
    """Random bits for tokens, keyed by the step and place of their sequence and by their position in it.

    Attributes:
        seed: Keys every draw.
        lengths: Tokens of each sequence, ``[sequences]``.
        position: Place of each token in its sequence, ``[tokens]``.
    """

    def __init__(self, sequences: Sequences, seed: int) -> None:
        self.seed = seed
        self.lengths = sequences.lengths
        self.position = sequences.position
        self._starts = np.cumsum(self.lengths) - self.lengths
        steps = distinct(sequences.stretches.step)
        self._step = steps[0] if len(steps) == 1 else sequences.stretches.step
        self._place = sequences.stretches.place

    @cached_property
    def owner(self) -> np.ndarray:
        """Number of each token's sequence, ``[tokens]``."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def bits(self, use: str, places: np.ndarray | None = None) -> np.ndarray:
        """64 bits for each of the tokens at ``places``, rising, or for all; each use has bits of its own."""
        of_sequence = counter_hash(self.seed, stream(use), self._step, self._place)
        if places is None:
            return hash_each(of_sequence, self.lengths, self.position)
        return hash_each(of_sequence, self.shared(places), self.position[places])

    def shared(self, places: np.ndarray) -> np.ndarray:
        """How many of the tokens at ``places``, rising, are each sequence's, ``[sequences]``."""
        return np.diff(np.searchsorted(places, self._starts), append=len(places))

    def counted(self, flags: np.ndarray) -> np.ndarray:
        """Flagged tokens of each sequence, ``[sequences]``; a sequence is never empty."""
        return np.add.reduceat(flags, self._starts, dtype=np.int64)


def choose_tokens(eligible: np.ndarray, draws: Draws, probability: float) -> np.ndarray:
    """Places of the chosen tokens: of each sequence as many as the rate says, those with the lowest draws.

    Args:
        eligible: Which tokens may be chosen, ``[tokens]``.
        draws: The draws.
        probability: The rate.
    """
    counts = draws.counted(eligible)
    wanted = _wanted(counts, probability)
    bits = draws.bits("masked")
    limit = _limit(wanted, counts)
    while True:
        is_low = bits <= np.repeat(limit, draws.lengths)
        is_low &= eligible
        found = draws.counted(is_low)
        if not (found < wanted).any():
            break
        limit[found < wanted] = HIGHEST
    low = np.flatnonzero(is_low)
    draw = bits[low]
    highest = _highest(draw, found, wanted)
    return low[np.flatnonzero(draw <= np.repeat(highest, found))]


def choose_units(eligible: np.ndarray, begins: np.ndarray, draws: Draws, probability: float) -> np.ndarray:
    """Places of the tokens of the chosen units: whole units, in random order, as many tokens as the rate says.

    The unit that would go beyond the rate is taken as often as the room left for it is a share of it, so that the
    rate holds on average; but the first one is taken whatever its size, so that every sequence has a target.

    Args:
        eligible: Which tokens may be chosen, ``[tokens]``.
        begins: Which tokens begin a unit, ``[tokens]``.
        draws: The draws.
        probability: The rate.
    """
    after_special = np.append(False, ~eligible[:-1])
    edges = np.flatnonzero(begins | after_special | ~eligible)
    ordinary = np.flatnonzero(eligible[edges])
    begin, sizes = edges[ordinary], np.diff(edges, append=len(eligible))[ordinary]
    if not len(begin):
        return begin
    counts = draws.counted(eligible)
    wanted = _wanted(counts, probability)
    units = draws.shared(begin)
    owner = np.repeat(np.arange(len(counts)), units)
    bits = draws.bits("masked", begin)
    limit = _limit(wanted, counts, float((sizes * sizes).sum() / sizes.sum()))
    while True:
        low = np.flatnonzero(bits <= np.repeat(limit, units))
        of = owner[low]
        found = np.bincount(of, sizes[low], minlength=len(counts))
        if not (found < wanted).any():
            break
        limit[found < wanted] = HIGHEST
    luck = as_uniform(draws.bits("last unit", begin[low]))
    order = _order(bits[low], np.bincount(of, minlength=len(counts)))
    size = sizes[low][order]
    is_first = np.append(True, of[1:] != of[:-1])  # the order is that of sequences, as before
    sums = np.cumsum(size) - size
    room = wanted[of] - (sums - sums[is_first][np.cumsum(is_first) - 1])
    is_taken = np.zeros(len(low), bool)
    is_taken[order] = is_first | (size <= room) | (luck[order] * size < room)
    taken = low[np.flatnonzero(is_taken)]
    return spread(begin[taken], sizes[taken])


def _wanted(counts: np.ndarray, probability: float) -> np.ndarray:
    return np.where(counts > 0, np.maximum(1, np.floor(counts * probability + 0.5)), 0).astype(np.int64)


def _limit(wanted: np.ndarray, counts: np.ndarray, size: float = 1.0) -> np.ndarray:
    """The draws up to which to look for the lowest ones, ``[sequences]`` uint64, so that few have to be sorted.

    Enough lie below it in all but a few sequences of ten thousand, which are then looked through as a whole.

    Args:
        wanted: How many tokens are to be chosen of each sequence.
        counts: Of how many.
        size: Tokens of a unit.
    """
    share = (wanted + 3.5 * np.sqrt(wanted * size) + size) / np.maximum(counts, 1)
    return np.where(share < 0.9, (np.minimum(share, 0.9) * 2.0**64).astype(np.uint64), HIGHEST)


def _highest(bits: np.ndarray, counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The highest of the ``wanted`` lowest draws of each sequence, ``[sequences]``.

    Args:
        bits: The draws, sequence after sequence.
        counts: How many each sequence has, ``[sequences]``.
        wanted: How many of them count, ``[sequences]``.
    """
    if (halves := _halves(bits, counts)) is not None:
        middle, edge = halves
        return np.append(
            _highest(bits[:edge], counts[:middle], wanted[:middle]),
            _highest(bits[edge:], counts[middle:], wanted[middle:]),
        )
    table, _ = _table(bits, counts)
    table.sort(axis=1)
    return np.asarray(table[np.arange(len(counts)), np.maximum(wanted - 1, 0)])


def _order(bits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers of draws in order of sequence, then of draw; the arguments are those of :func:`_highest`."""
    if (halves := _halves(bits, counts)) is not None:
        middle, edge = halves
        return np.append(_order(bits[:edge], counts[:middle]), _order(bits[edge:], counts[middle:]) + edge)
    table, is_draw = _table(bits, counts)
    numbers = table.argsort(axis=1)
    numbers += (np.cumsum(counts) - counts)[:, None]
    return np.asarray(numbers[is_draw])


def _halves(bits: np.ndarray, counts: np.ndarray) -> tuple[int, int] | None:
    """Where to cut sequences of unlike lengths in two, and their draws; None: they fill a table well enough.

    As sequences stand in order of length, each half is more alike than the whole.
    """
    if len(counts) < 2 or len(counts) * counts.max() <= PADDING * len(bits):
        return None
    middle = len(counts) // 2
    return middle, int(counts[:middle].sum())


def _table(bits: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The draws of each sequence in a row of its own, and which cells hold one; the others hold the highest.

    Short rows are sorted ten times as fast as one long array.
    """
    is_draw = np.arange(max(1, counts.max(initial=0))) < counts[:, None]
    table = np.full(is_draw.shape, HIGHEST)
    table[is_draw] = bits
    return table, is_draw
