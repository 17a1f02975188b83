"""Sentence order prediction (Lan et al. 2020, "ALBERT", section 3.1)."""

from __future__ import annotations

from seqbert.data.plan import Source
from seqbert.objectives.pairs import PairDrawer, Part, check_pairs

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
        self, drawer: PairDrawer, first: Part, true_next: Part, document: int, key: tuple[int, int]
    ) -> tuple[Part, Part, int]:
        """The two parts, swapped or not."""
        if drawer.uniform("sentence order", key) < 0.5:
            return first, true_next, IN_ORDER
        return true_next, first, SWAPPED
