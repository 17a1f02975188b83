"""The one place that cuts what is longer than a window: anew in each epoch, or evenly with an overlap."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from seqbert.data.sampling import BLOCK, below, stream


class Windows:
    """Windows of at most ``size`` tokens over documents; in an epoch they hold each token exactly once.

    A document that fits is one window. A longer one of ``T`` tokens is cut into ``ceil(T / size + 1/2)`` windows:
    the first and the last share what the full ones between them leave over, and how they share it is drawn anew in
    each epoch. So the number of windows is known beforehand, and memory holds one count for each block of 2^16.
    """

    def __init__(self, tokens: np.ndarray, size: int) -> None:
        self._tokens = tokens
        self._size = size
        firsts, befores, total = [], [], 0
        for low in range(0, len(tokens), BLOCK):
            ends = total + np.cumsum(self._counts(low, low + BLOCK))
            starts = np.concatenate([[total], ends[:-1]])
            block = np.arange(-(-total // BLOCK), -(-int(ends[-1]) // BLOCK)) * BLOCK
            documents = np.searchsorted(ends, block, side="right")
            firsts.append(low + documents)
            befores.append(starts[documents])
            total = int(ends[-1])
        self.total = total
        self._first_document = np.concatenate(firsts) if firsts else np.zeros(0, np.int64)
        self._windows_before = np.concatenate(befores) if befores else np.zeros(0, np.int64)
        self._block_ends = lru_cache(maxsize=16)(self._compute_block_ends)

    def __getstate__(self) -> dict[str, object]:
        return {"tokens": self._tokens, "size": self._size}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def locate(self, numbers: np.ndarray, epochs: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
        """Document, first token and one past the last token of windows by number, each ``[windows]`` int64."""
        documents, inner = np.empty_like(numbers), np.empty_like(numbers)
        blocks = numbers // BLOCK
        for block in np.unique(blocks):
            chosen = blocks == block
            first, ends = self._block_ends(int(block))
            place = np.searchsorted(ends, numbers[chosen], side="right")
            documents[chosen] = first + place
            starts = ends[place] - self._counts_of(self._tokens[documents[chosen]])
            inner[chosen] = numbers[chosen] - starts
        return documents, *self._edges(documents, inner, epochs, seed)

    def _edges(
        self, documents: np.ndarray, inner: np.ndarray, epochs: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        size, tokens = self._size, self._tokens[documents].astype(np.int64)
        counts = self._counts_of(tokens)
        left_over = tokens - (counts - 2) * size  # what the first and the last window share
        least = np.maximum(np.maximum(left_over - size, left_over // 4), 1)
        first = least + below(left_over - 2 * least + 1, seed, stream("windows"), epochs, documents)
        whole = counts == 1
        start = np.where(whole | (inner == 0), 0, first + (inner - 1) * size)
        stop = np.where(whole, tokens, np.minimum(first + inner * size, tokens))
        return start, stop

    def _counts(self, low: int, high: int) -> np.ndarray:
        return self._counts_of(np.asarray(self._tokens[low:high], np.int64))

    def _counts_of(self, tokens: np.ndarray) -> np.ndarray:
        return np.where(tokens <= self._size, 1, -(-(2 * tokens + self._size) // (2 * self._size)))

    def _compute_block_ends(self, block: int) -> tuple[int, np.ndarray]:
        first, before = int(self._first_document[block]), int(self._windows_before[block])
        last = len(self._tokens)
        if block + 1 < len(self._first_document):
            last = int(self._first_document[block + 1]) + 1
        return first, before + np.cumsum(self._counts(first, last))


def strided(length: int, size: int, stride: int) -> list[tuple[int, int]]:
    """First and one past the last token of windows that cover ``length`` tokens, each begun ``stride`` later.

    All but the first are moved back as far as it takes to be full, so that no token is seen with less context than
    it needs to be.

    >>> strided(10, 4, 3), strided(11, 4, 3), strided(3, 4, 3)
    ([(0, 4), (3, 7), (6, 10)], [(0, 4), (3, 7), (6, 10), (7, 11)], [(0, 3)])
    """
    if length <= size:
        return [(0, length)]
    starts = [*range(0, length - size, stride), length - size]
    return [(start, start + size) for start in starts]


def most_context(windows: list[tuple[int, int]], length: int) -> np.ndarray:
    """For each of ``length`` tokens the number of the window in which its nearer edge is farthest, ``[length]``.

    Where windows overlap a token is judged where most can be seen on both sides, as in BERT's code for SQuAD. The
    ends of the text are no edges: there is nothing beyond them to be seen.

    >>> most_context([(0, 4), (3, 7)], 7).tolist()
    [0, 0, 0, 0, 1, 1, 1]
    """
    best, chosen = np.full(length, -1), np.zeros(length, np.int64)
    for number, (start, stop) in enumerate(windows):
        places = np.arange(start, stop)
        left = places - start if start > 0 else np.full(stop - start, length)
        right = stop - 1 - places if stop < length else np.full(stop - start, length)
        context = np.minimum(left, right)
        better = context > best[start:stop]
        best[start:stop][better], chosen[start:stop][better] = context[better], number
    return chosen
