"""Ranks, and the areas under curves that follow from them, for many draws of the records at once."""

from __future__ import annotations

import numpy as np


class Order:
    """The order of values ``[records]`` from the lowest; equal values are one group.

    Attributes:
        records: The records from the lowest value to the highest, ``[records]``.
        starts: Where each group begins in that order, ``[groups]``.
        group: The group of each record, ``[records]``.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.records = np.argsort(values, kind="stable")
        ordered = values[self.records]
        first = np.ones(len(values), bool)
        first[1:] = ordered[1:] != ordered[:-1]
        self.starts = np.flatnonzero(first)
        self.group = np.empty(len(values), np.int64)
        self.group[self.records] = np.cumsum(first) - 1

    def ranks(self, draws: np.ndarray) -> np.ndarray:
        """The rank of each record in each draw, from 1; ties have their mean rank, ``[records, draws]``."""
        totals = _sums(draws[self.records], self.starts)
        ranks: np.ndarray = (np.cumsum(totals, axis=0) - (totals - 1) / 2)[self.group]
        return ranks


class Ranking:
    """The ranking of records by score ``[records]``, the highest first, of which some should be high: the positives.

    The areas need the counts of all records only between the positives, which are few where one of many classes is
    set against the rest.
    """

    def __init__(self, scores: np.ndarray, positive: np.ndarray) -> None:
        order = Order(-scores.astype(np.float64))
        self._records = order.records
        self._positives = order.records[positive[order.records]]
        groups, self._positive_starts = np.unique(order.group[self._positives], return_index=True)
        ends = np.append(order.starts[1:], len(scores))[groups]
        self._starts = np.unique(np.concatenate([[0], order.starts[groups], ends[ends < len(scores)]]))
        self._at = np.searchsorted(self._starts, order.starts[groups])

    def areas(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Areas under the ROC and the precision-recall curve of each draw, ``[draws]`` each; NaN: not defined.

        The first is the share of pairs of a positive and another record that are in order, ties counting half; the
        second is average precision: the mean precision at the positives, ties together.
        """
        if not len(self._positives):
            return np.full(draws.shape[1], np.nan), np.full(draws.shape[1], np.nan)
        totals = _sums(draws[self._records], self._starts)
        positives = _sums(draws[self._positives], self._positive_starts)
        seen, above = np.cumsum(totals, axis=0), np.cumsum(positives, axis=0)
        all_positives, all_negatives = above[-1], seen[-1] - above[-1]
        tied, seen = totals[self._at] - positives, seen[self._at]
        below = all_negatives - (seen - above)
        precision = np.divide(above, seen, out=np.zeros_like(above), where=seen > 0)
        auroc = (positives * (below + tied / 2)).sum(axis=0) / (all_positives * all_negatives)
        return auroc, (positives * precision).sum(axis=0) / all_positives


def _sums(ordered: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of the rows ``[records, draws]`` from each start up to the next, ``[starts, draws]``."""
    if len(starts) == len(ordered):
        return ordered
    sums: np.ndarray = np.add.reduceat(ordered, starts, axis=0)
    return sums
