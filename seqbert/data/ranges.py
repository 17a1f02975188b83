"""Many ranges of whole numbers end to end, without a loop over them."""

from __future__ import annotations

import numpy as np


def spread(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``starts[i], starts[i] + 1, ...``: ``lengths[i]`` numbers for each ``i``, ``[sum of lengths]`` int64.

    >>> spread(np.array([7, 3]), np.array([2, 3])).tolist()
    [7, 8, 3, 4, 5]
    """
    before = np.cumsum(lengths) - lengths
    numbers = np.repeat(starts - before, lengths)
    numbers += np.arange(len(numbers))
    return numbers


def count_up(lengths: np.ndarray) -> np.ndarray:
    """``0, 1, ...``: ``lengths[i]`` numbers for each ``i``, ``[sum of lengths]`` int64.

    >>> count_up(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return spread(np.zeros(len(lengths), np.int64), lengths)
