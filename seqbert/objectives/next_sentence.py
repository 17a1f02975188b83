"""Next sentence prediction (Devlin et al. 2019, section 3.1, task 2)."""

from __future__ import annotations

import numpy as np

from seqbert.data.plan import Source, Stretches
from seqbert.errors import TrainingError
from seqbert.objectives.pairs import PairDrawer, Parts, check_pairs
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
        self, drawer: PairDrawer, first: Parts, true_next: Parts, stretches: Stretches
    ) -> tuple[Parts, Parts, np.ndarray]:
        """The true next part, or one from another document.

        Where a validation part is one document there are no false pairs, so its pairs have no label.
        """
        if drawer.split.documents < 2:
            return first, true_next, np.full(len(stretches), NO_PAIR)
        low, high = drawer.segments(drawer.other_documents(stretches))
        segment = low + drawer.below(high - low, "other segment", stretches)
        end = drawer.run_from(segment, high, np.maximum(1, drawer.budget - first.lengths))
        is_next = drawer.uniform("next sentence", stretches) < 0.5
        return first, true_next.where(is_next, drawer.run(segment, end)), np.where(is_next, IS_NEXT, IS_RANDOM)
