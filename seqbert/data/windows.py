"""The one place that cuts what is longer than a window: anew in each epoch, or evenly with an overlap."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from seqbert.data.groups import Groups
from seqbert.data.sampling import below, stream

Found = TypeVar("Found")

REMEMBERED = 2**23
"""Documents of which it is remembered where their windows begin, in 4 to 6 bytes each: a block of 128 groups."""


class Windows:
    """Windows of at most ``size`` tokens over documents; in an epoch they hold each token exactly once.

    A document that fits is one window. A longer one of ``T`` tokens is cut into ``ceil(T / size + 1/2)`` windows:
    the first and the last share what the full ones between them leave over, and how they share it is drawn anew in
    each epoch. So the number of windows is known beforehand, and memory holds one count for each cell of the groups.

    Windows are numbered group by group, and within a group document by document.

    Attributes:
        total: Windows of all groups.
        of_group: Windows of each group, ``[groups]``.
        first: Number of the first window of each group, ``[groups]``.
    """

    def __init__(self, tokens: np.ndarray, size: int, groups: Groups | None = None) -> None:
        """Counts the windows.

        Args:
            tokens: Tokens of each document, ``[documents]``; it may be mapped into memory.
            size: Most tokens of a window.
            groups: The groups of the documents; None: they are of one.
        """
        self._tokens = tokens
        self._size = size
        self._groups = Groups(len(tokens)) if groups is None else groups
        windows = self._groups.sums(lambda section: self._counts(tokens[section]))
        self._before = np.cumsum(windows) - windows
        self.total = int(windows.sum())
        self.of_group = self._groups.sums_by_group(windows)
        self.first = np.cumsum(self.of_group) - self.of_group
        self._recent = Recent(self._look_into, REMEMBERED)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tokens": None, "_recent": None}  # another process maps the tokens into memory anew

    def attach(self, tokens: np.ndarray, group: np.ndarray) -> None:
        """Gives an unpickled object what it was made from: the tokens and the group of each document."""
        self._tokens = tokens
        self._groups.attach(group)
        self._recent = Recent(self._look_into, REMEMBERED)

    def locate(self, numbers: np.ndarray, epochs: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
        """Document, first token and one past the last token of windows by number, each ``[windows]`` int64."""
        cells = np.searchsorted(self._before, numbers, side="right") - 1
        inner = (numbers - self._before[cells]).astype(np.int32)
        place, document = np.empty_like(numbers), np.empty_like(numbers)
        order = np.argsort(cells)
        begins = np.flatnonzero(np.diff(cells[order], prepend=-1))
        for low, high in pairwise([*begins.tolist(), len(numbers)]):
            chosen = order[low:high]
            starts, members = self._recent(int(cells[chosen[0]]))
            found = np.searchsorted(starts, inner[chosen], side="right") - 1
            inner[chosen] -= starts[found]
            place[chosen] = found
            document[chosen] = found if members is None else members[found]
        document += self._groups.low[cells]
        rank = self._groups.before[cells] + place
        return document, *self._edges(document, rank, inner, epochs, seed)

    def _edges(
        self, document: np.ndarray, rank: np.ndarray, inner: np.ndarray, epochs: np.ndarray, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """First and one past the last token of windows; the cuts are drawn for a document's number in its group."""
        start, stop = np.zeros_like(document), self._tokens[document].astype(np.int64)
        cut = np.flatnonzero(stop > self._size)
        size, tokens, inner = self._size, stop[cut], inner[cut].astype(np.int64)
        left_over = tokens - (self._counts(tokens) - 2) * size  # what the first and the last window share
        least = np.maximum(np.maximum(left_over - size, left_over // 4), 1)
        first = least + below(left_over - 2 * least + 1, seed, stream("windows"), epochs[cut], rank[cut])
        start[cut] = np.where(inner == 0, 0, first + (inner - 1) * size)
        stop[cut] = np.minimum(first + inner * size, tokens)
        return start, stop

    def _counts(self, tokens: np.ndarray) -> np.ndarray:
        """Windows of documents of so many tokens, int64."""
        counts = np.ones(len(tokens), np.int64)
        long = np.flatnonzero(tokens > self._size)
        counts[long] = -(-(2 * tokens[long].astype(np.int64) + self._size) // (2 * self._size))
        return counts

    def _look_into(self, cell: int) -> tuple[int, tuple[np.ndarray, np.ndarray | None]]:
        """How many documents a cell has; the first window of each, counted within the cell; and where they stand."""
        section, members = self._groups.members(cell)
        tokens = self._tokens[section]
        counts = self._counts(tokens if members is None else tokens[members])
        return len(counts), ((np.cumsum(counts) - counts).astype(np.int32), members)


class Recent(Generic[Found]):
    """Remembers what was found last, up to a total size."""

    def __init__(self, find: Callable[[int], tuple[int, Found]], room: int) -> None:
        """Takes what finds something by its number, with its size, and the size of all that is remembered."""
        self._find = find
        self._room = room
        self._found: OrderedDict[int, tuple[int, Found]] = OrderedDict()

    def __call__(self, number: int) -> Found:
        """What has this number."""
        if number in self._found:
            self._found.move_to_end(number)
            return self._found[number][1]
        size, found = self._find(number)
        self._found[number] = size, found
        self._room -= size
        while self._room < 0:
            self._room += self._found.popitem(last=False)[1][0]
        return found


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
