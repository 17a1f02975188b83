"""Which documents are of which group, without a list of them: a count for each section of the documents and group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seqbert.data.sampling import BLOCK

SECTION = 2**13
"""Documents in a section: few enough to go through for one of them."""

MIXED = 4
"""Groups in a section, on average, from which on sections are as large as blocks, so that there are fewer cells."""


class Groups:
    """The documents of a split in order of their groups, and within a group in order of their numbers.

    A *section* is a run of neighbouring documents, and a *cell* holds those of one group in one section. The cells are
    in order of group, then of section. A few numbers are held for each cell, nothing for a document: which ones a cell
    has is read from the column of groups, which may be mapped into memory.

    Attributes:
        codes: The codes that occur, rising, ``[groups]``; a group's number is its place among them.
        documents: Documents of each group, ``[groups]``.
        group: Number of each cell's group, ``[cells]``.
        low: Number of the first document of each cell's section, ``[cells]``.
        sizes: Documents of each cell, ``[cells]``.
        before: Documents of the same group in the cells before each, ``[cells]``.
    """

    def __init__(self, documents: int, column: np.ndarray | None = None) -> None:
        """Finds the cells.

        Args:
            documents: Number of documents.
            column: Code of each document's group, ``[documents]``, whole numbers from 0; None: they are of one group.
        """
        self._total = documents
        self._column = column
        self._is_one = column is None
        self._section_size = SECTION
        codes, low, sizes = self._find_cells()
        if len(codes) > MIXED * len(self._sections()):
            self._section_size = BLOCK
            codes, low, sizes = self._find_cells()
        self._order = np.argsort(codes, kind="stable")
        self.low, self.sizes = low[self._order], sizes[self._order]
        self.codes, first, self.group = np.unique(codes[self._order], return_index=True, return_inverse=True)
        self._first_cell = np.append(first, len(self.group))
        self.documents = self.sums_by_group(self.sizes)
        self.before = self.counted_before(self.sizes)

    def __len__(self) -> int:
        return len(self.codes)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_column": None}  # another process maps it into memory anew

    def attach(self, column: np.ndarray) -> None:
        """Gives an unpickled object its column of groups, the one that it was made from."""
        if not self._is_one:
            self._column = column

    def sums(self, values: Callable[[slice], np.ndarray]) -> np.ndarray:
        """Sums over the documents of each cell, ``[cells]`` int64.

        Args:
            values: Gives a whole number for each document of a slice of them; sums below 2^53 are exact.
        """
        found = [np.zeros(0, np.int64)]
        for section in self._sections():
            if self._column is None:
                found.append(values(section).sum(keepdims=True))
            else:
                sums = np.bincount(self._column[section], values(section))
                found.append(sums[self._count(section) > 0].astype(np.int64))
        return np.concatenate(found)[self._order]

    def sums_by_group(self, of_cells: np.ndarray) -> np.ndarray:
        """Sums over the cells of each group, ``[groups]``, of a number for each cell."""
        return np.add.reduceat(of_cells, self._first_cell[:-1]) if len(self) else of_cells

    def counted_before(self, of_cells: np.ndarray) -> np.ndarray:
        """Sums over the cells of the same group that stand before each, ``[cells]``, of a number for each cell."""
        sums = np.cumsum(of_cells) - of_cells
        return np.asarray(sums - sums[self._first_cell[:-1]][self.group])

    def members(self, cell: int) -> tuple[slice, np.ndarray | None]:
        """A cell's section, and the places of its documents there; None where they are all of it."""
        low = int(self.low[cell])
        section = slice(low, min(low + self._section_size, self._total))
        if self.sizes[cell] == section.stop - section.start:
            return section, None
        assert self._column is not None
        places = np.flatnonzero(self._column[section] == self.codes[self.group[cell]])
        return section, places.astype(np.uint16)

    def place(self, document: int) -> tuple[int, int]:
        """The group of a document, and its number within the group."""
        low = document - document % self._section_size
        if self._column is None:
            return 0, document
        code = self._column[document]
        group = int(np.searchsorted(self.codes, code))
        first, last = self._first_cell[group : group + 2]
        cell = first + int(np.searchsorted(self.low[first:last], low))
        return group, int(self.before[cell] + np.count_nonzero(self._column[low:document] == code))

    def document(self, group: int, number: int) -> int:
        """The document of this number within a group."""
        first, last = self._first_cell[group : group + 2]
        cell = first + int(np.searchsorted(self.before[first:last], number, side="right")) - 1
        section, places = self.members(cell)
        inside = number - int(self.before[cell])
        return int(section.start) + (inside if places is None else int(places[inside]))

    def _find_cells(self) -> np.ndarray:
        """Code, first document of the section and size of each cell, ``[3, cells]``, section by section."""
        found = [np.zeros((3, 0), np.int64)]
        for section in self._sections():
            counts = self._count(section)
            present = np.flatnonzero(counts)
            found.append(np.stack([present, np.full(len(present), section.start), counts[present]]))
        return np.concatenate(found, axis=1)

    def _sections(self) -> list[slice]:
        size, total = self._section_size, self._total
        return [slice(low, min(low + size, total)) for low in range(0, total, size)]

    def _count(self, section: slice) -> np.ndarray:
        if self._column is None:
            return np.array([section.stop - section.start])
        return np.bincount(self._column[section])
