"""Which sequence stands where: counter-based randomness, so that a batch is a function of (seed, step).

Nothing here has a state. A draw is a hash of a seed and of counters (step, place in the global batch, token), so it
does not depend on what was drawn before, on the number of workers, or on how a batch is cut into pieces.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

Counter: TypeAlias = int | np.ndarray

BLOCK = 2**16
"""Sequences in a block: blocks are permuted over an epoch, sequences within a block."""

PERIOD = 4096
"""Sequences over which groups are mixed in exact proportion."""


def stream(name: str) -> int:
    """A counter that stands for a name, so that different uses of one seed draw different numbers."""
    return zlib.crc32(name.encode())


def counter_hash(seed: int, *counters: Counter) -> np.ndarray:
    """64 random bits for each combination of counters, which are broadcast against each other.

    Each word goes through the finalizer of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
    number generators", figure 16).
    """
    return np.asarray(_hash(seed, *counters), np.uint64)


def hash_each(bits: np.ndarray, lengths: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """64 random bits for each of many counters, of which ``lengths[i]`` go with ``bits[i]``, ``[sum of lengths]``.

    Args:
        bits: What :func:`counter_hash` gave, ``[n]``.
        lengths: How many counters go with each, ``[n]``.
        counters: One counter more, ``[sum of lengths]`` int64.

    >>> hash_each(counter_hash(0, np.array([5, 6])), np.array([2, 1]), np.arange(3)) == counter_hash(
    ...     0, np.array([5, 5, 6]), np.arange(3)
    ... )
    array([ True,  True,  True])
    """
    words = np.repeat(bits * np.uint64(_GAMMA) + np.uint64(_GAMMA), lengths)
    words += counters.view(np.uint64)
    return _finalize(words)


def as_uniform(bits: np.ndarray) -> np.ndarray:
    """Random bits as draws from [0, 1): what :func:`uniform` makes of them."""
    return (bits >> np.uint64(11)).view(np.int64) * 2.0**-53


def uniform(seed: int, *counters: Counter) -> np.ndarray:
    """Uniform draws from [0, 1), one for each combination of counters.

    >>> bool(uniform(0, 1, 2) == uniform(0, 1, 2)), bool(uniform(0, 1, 2) == uniform(0, 2, 1))
    (True, False)
    """
    bits = _hash(seed, *counters)
    if isinstance(bits, int):
        return np.asarray((bits >> 11) * 2.0**-53)
    return as_uniform(bits)


def below(limit: Counter, seed: int, *counters: Counter) -> np.ndarray:
    """Uniform draws of whole numbers from 0 to ``limit - 1``."""
    return (uniform(seed, *counters) * limit).astype(np.int64)


def _hash(seed: int, *counters: Counter) -> Counter:
    """The bits as a number where all counters are numbers, which takes a tenth of the time of an array of one."""
    state = _mix_number(seed)
    for place, counter in enumerate(counters):
        if not isinstance(counter, int):
            return _hash_arrays(np.asarray(state, np.uint64), counters[place:])
        state = _mix_number(state * _GAMMA + counter)
    return state


def _hash_arrays(state: np.ndarray, counters: Sequence[Counter]) -> np.ndarray:
    with np.errstate(over="ignore"):
        for counter in counters:
            state = _mix(state * np.uint64(_GAMMA) + np.asarray(counter).astype(np.uint64, copy=False))
    return state


_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 2**64 - 1


def _mix(word: np.ndarray) -> np.ndarray:
    return _finalize(np.asarray(word + np.uint64(_GAMMA)))


def _finalize(words: np.ndarray) -> np.ndarray:
    """Writes over the words: where arrays are large, asking for memory takes most of the time."""
    shifted = np.empty_like(words)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        words ^= np.right_shift(words, np.uint64(shift), out=shifted)
        words *= np.uint64(factor)
    words ^= np.right_shift(words, np.uint64(31), out=shifted)
    return words


def _mix_number(word: int) -> int:
    word = (word + _GAMMA) & _WORD
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def distinct(numbers: np.ndarray) -> list[int]:
    """The whole numbers that occur, rising: mostly there is one."""
    if not len(numbers):
        return []
    low, high = int(numbers.min()), int(numbers.max())
    return [low] if low == high else np.unique(numbers).tolist()


class EpochOrder:
    """The order of ``total`` sequences in every epoch: blocks are permuted, and sequences within each block.

    Only the permutation of the blocks, of the block in use and of the one before it are held in memory.
    """

    def __init__(self, total: int, seed: int) -> None:
        self.total = total
        self.seed = seed
        self._block_order = lru_cache(maxsize=2)(self._permute_blocks)
        self._inside_block = lru_cache(maxsize=2)(self._permute_inside)

    def __reduce__(self) -> tuple[type[EpochOrder], tuple[int, int]]:
        return EpochOrder, (self.total, self.seed)

    def __call__(self, counters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Epoch and sequence number of each counter, both like ``counters`` (int64)."""
        epochs, places = np.divmod(counters, self.total)
        sequences = np.empty_like(places)
        for epoch in distinct(epochs):
            blocks, starts = self._block_order(epoch)
            chosen = np.flatnonzero(epochs == epoch)
            slots = np.searchsorted(starts, places[chosen], side="right") - 1
            for slot in distinct(slots):
                members = chosen[slots == slot]
                block = int(blocks[slot])
                inside = self._inside_block(epoch, block)
                sequences[members] = inside[places[members] - starts[slot]]
                sequences[members] += block * BLOCK
        return epochs, sequences

    def _permute_blocks(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The blocks in this epoch's order, and the place at which each of them begins."""
        count = -(-self.total // BLOCK)
        blocks = _permutation(count, self.seed, stream("blocks"), epoch)
        sizes = np.where(blocks == count - 1, self.total - (count - 1) * BLOCK, BLOCK)
        return blocks, np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def _permute_inside(self, epoch: int, block: int) -> np.ndarray:
        size = min(BLOCK, self.total - block * BLOCK)
        order = _permutation(size, self.seed, stream("inside a block"), epoch, block)
        return order.astype(np.uint16)  # BLOCK numbers fit


def _permutation(size: int, *key: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key=counter_hash(key[0], *key[1:]))).permutation(size)


class Mixture:
    """Interleaves groups in fixed proportion: which group the n-th sequence is from, and its number within it.

    Every :data:`PERIOD` sequences hold each group as often as its share says, in an order of their own.
    """

    def __init__(self, shares: Sequence[float], seed: int) -> None:
        exact = np.asarray(shares, np.float64) / np.sum(shares) * PERIOD
        self.counts = np.maximum(np.floor(exact).astype(np.int64), 1)  # the smallest group is drawn too
        missing = PERIOD - int(self.counts.sum())
        if missing > 0:
            largest_remainders = np.argsort(self.counts - exact, kind="stable")[:missing]
            self.counts[largest_remainders] += 1
        while missing < 0:  # many groups were rounded up to one: the largest make room for them
            largest = np.argmax(self.counts)
            given = min(-missing, int(self.counts[largest]) - 1)
            self.counts[largest] -= given
            missing += given
        self.seed = seed
        self._members = np.repeat(np.arange(len(self.counts)), self.counts)
        self._period_order = lru_cache(maxsize=16)(self._permute_period)

    def __reduce__(self) -> tuple[type[Mixture], tuple[Sequence[float], int]]:
        return Mixture, (self.counts.tolist(), self.seed)  # shares that come out as these counts

    def __call__(self, counters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Group, and number within the group, of each counter."""
        if len(self.counts) == 1:
            return np.zeros_like(counters), counters
        periods, slots = np.divmod(counters, PERIOD)
        groups, numbers = np.empty_like(slots), np.empty_like(slots)
        for period in np.unique(periods):
            chosen = periods == period
            order, rank = self._period_order(int(period))
            groups[chosen] = order[slots[chosen]]
            numbers[chosen] = period * self.counts[groups[chosen]] + rank[slots[chosen]]
        return groups, numbers

    def _permute_period(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """The group of each slot of a period, and how many slots before it are the same group's."""
        order = self._members[_permutation(PERIOD, self.seed, stream("mixture"), period)]
        rank = np.empty(PERIOD, np.int64)
        rank[np.argsort(order, kind="stable")] = np.arange(PERIOD) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts
        )
        return order, rank
