"""Next sentence prediction (Devlin et al. 2019, section 3.1, task 2)."""

from __future__ import annotations

from seqbert.data.plan import Source
from seqbert.errors import TrainingError
from seqbert.objectives.pairs import PairDrawer, Part, check_pairs
from seqbert.objectives.sequences import NO_PAIR

IS_NEXT, IS_RANDOM = 0, 1


class NextSentence:
    """Half of the pairs are neighbours; in the other half the second part comes from another document."""

    @staticmethod
    def check(source: Source) -> None:
        """Stops where pairs cannot be drawn.

        Raises:
            TrainingError: if no document has two segments, or if there is only one document.
        """
        check_pairs(source, "next_sentence")
        if source.split.documents < 2:
            raise TrainingError(
                'The objective "next_sentence" draws false pairs from another document, and the domain '
                f'"{source.vocabulary}" has only one training document. Set objective.pair to sentence_order or none.'
            )

    def second(
        self, drawer: PairDrawer, first: Part, true_next: Part, document: int, key: tuple[int, int]
    ) -> tuple[Part, Part, int]:
        """The true next part, or one from another document.

        Where a validation part is one document there are no false pairs, so its pairs have no label.
        """
        if drawer.split.documents < 2:
            return first, true_next, NO_PAIR
        if drawer.uniform("next sentence", key) < 0.5:
            return first, true_next, IS_NEXT
        other = drawer.other_document(document, key)
        low, high = drawer.split.segments(other)
        segment = low + drawer.below(high - low, "other segment", key)
        end = drawer.run_from(segment, high, max(1, drawer.budget - len(first)))
        return first, Part(drawer.split, segment, end), IS_RANDOM
