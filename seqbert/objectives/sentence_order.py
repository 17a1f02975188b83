"""Sentence order prediction (Lan et al. 2020, "ALBERT", section 3.1)."""

from __future__ import annotations

import numpy as np

from seqbert.data.plan import Source, Stretches
from seqbert.objectives.pairs import PairDrawer, Parts, check_pairs

IN_ORDER, SWAPPED = 0, 1


class SentenceOrder:
    """Both parts are neighbours; in half of the pairs they stand in the wrong order."""

    @staticmethod
    def check(source: Source) -> None:
        """Stops where pairs cannot be drawn.

        Raises:
            TrainingError: if no document has two segments.
        """
        check_pairs(source, "sentence_order")

    def second(
        self, drawer: PairDrawer, first: Parts, true_next: Parts, stretches: Stretches
    ) -> tuple[Parts, Parts, np.ndarray]:
        """The two parts, swapped or not."""
        in_order = drawer.uniform("sentence order", stretches) < 0.5
        return first.where(in_order, true_next), true_next.where(in_order, first), np.where(in_order, IN_ORDER, SWAPPED)
