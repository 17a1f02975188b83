"""Two parts of whole segments that fill a sequence, as BERT draws them.

Devlin et al. 2019, appendix A.2: segments are taken in order until no further whole one fits, and the run is cut
in two at a segment boundary drawn at random. What is longer than the sequence all the same is cut at one end.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from seqbert.data.plan import Source, Stretches
from seqbert.data.sampling import Counter, below, stream, uniform
from seqbert.errors import TrainingError
from seqbert.objectives.sequences import NO_PAIR, Drawn

SPECIALS_IN_PAIR = 3
"""``[CLS]`` and two ``[SEP]``."""


@dataclasses.dataclass(slots=True)
class Parts:
    """A part of each pair: a run of neighbouring tokens in the store.

    Attributes:
        start: First place, ``[pairs]``.
        stop: One past the last place, ``[pairs]``.
    """

    start: np.ndarray
    stop: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each, ``[pairs]``."""
        return np.asarray(self.stop - self.start)

    def where(self, chosen: np.ndarray, other: Parts) -> Parts:
        """These where ``chosen``, the others elsewhere."""
        return Parts(np.where(chosen, self.start, other.start), np.where(chosen, self.stop, other.stop))

    def cut_to(self, lengths: np.ndarray, at_front: np.ndarray) -> Parts:
        """At most so many tokens of each; what is too much is cut off at the front, or at the end."""
        excess = np.maximum(self.lengths - lengths, 0)
        return Parts(self.start + excess * at_front, self.stop - excess * ~at_front)


class PairObjective(Protocol):
    """Decides what the second parts of pairs are."""

    def second(
        self, drawer: PairDrawer, first: Parts, true_next: Parts, stretches: Stretches
    ) -> tuple[Parts, Parts, np.ndarray]:
        """The two parts of each pair in their order, and its label; the step and place of a stretch key its draws."""
        ...


class PairDrawer:
    """Draws pairs of at most ``max_length`` tokens from the documents of a source."""

    def __init__(self, source: Source, max_length: int) -> None:
        self.source = source
        self.split = source.split
        self.max_length = max_length
        self.budget = max_length - SPECIALS_IN_PAIR

    def draw(self, stretches: Stretches, objective: PairObjective) -> Drawn:
        """A pair for each stretch; a document of one segment gives a single sequence without a label."""
        low, high = self.segments(stretches.document)
        first_place = self.split.offset[low]
        start, stop = (
            np.stack([first_place + edge, np.zeros_like(edge)], axis=1) for edge in (stretches.start, stretches.stop)
        )
        label = np.full(len(stretches), NO_PAIR)
        pair = np.flatnonzero(high - low > 1)
        if len(pair):
            of_pairs = stretches[pair]
            first, true_next = self._two_parts(low[pair], high[pair], of_pairs)
            first, second, label[pair] = objective.second(self, first, true_next, of_pairs)
            first, second = self._fitted(first, second, of_pairs)
            start[pair] = np.stack([first.start, second.start], axis=1)
            stop[pair] = np.stack([first.stop, second.stop], axis=1)
        return Drawn(start, stop, 1 + (high - low > 1), label, stretches, self.max_length)

    def uniform(self, use: str, stretches: Stretches) -> np.ndarray:
        """A draw for each pair; each use has draws of its own."""
        return uniform(self.source.seed, stream(use), stretches.step, stretches.place)

    def below(self, limit: Counter, use: str, stretches: Stretches) -> np.ndarray:
        """A whole number from 0 to ``limit - 1`` for each pair."""
        return below(limit, self.source.seed, stream(use), stretches.step, stretches.place)

    def segments(self, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number of the first segment of documents, and of the one past their last."""
        split = self.split
        following = np.minimum(document + 1, split.documents - 1)
        high = np.where(document + 1 < split.documents, split.first_segment[following], len(split.length))
        return split.first_segment[document], high

    def run_from(self, segment: np.ndarray, high: np.ndarray, budget: Counter) -> np.ndarray:
        """One past the last of the whole segments, at least one, that fit ``budget`` tokens from ``segment`` on.

        The segments of a document stand in the store one after the other.
        """
        offset = self.split.offset
        edge = offset[segment] + budget
        beyond = np.searchsorted(offset, edge, side="right") - 1  # the segment in which the budget ends
        last_fits = offset[high - 1] + self.split.length[high - 1] <= edge
        return np.asarray(np.maximum(np.where(last_fits, high, np.minimum(beyond, high - 1)), segment + 1))

    def run(self, first: np.ndarray, last: np.ndarray) -> Parts:
        """The segments ``first`` to ``last - 1``."""
        return Parts(self.split.offset[first], self.split.offset[last - 1] + self.split.length[last - 1])

    def other_documents(self, stretches: Stretches) -> np.ndarray:
        """For each stretch another document, of the same group where there is one."""
        groups = self.source.plan.groups
        own, count = np.array(stretches.document), np.full(len(stretches), self.split.documents)
        if len(groups) > 1:
            group, inside = np.array([groups.place(document) for document in own.tolist()]).T
            alone = groups.documents[group] == 1
            own, count = np.where(alone, own, inside), np.where(alone, count, groups.documents[group])
        other = self.below(count - 1, "other document", stretches)
        other += other >= own
        if len(groups) > 1:
            for pair in np.flatnonzero(~alone).tolist():
                other[pair] = groups.document(int(group[pair]), int(other[pair]))
        return other

    def _two_parts(self, low: np.ndarray, high: np.ndarray, stretches: Stretches) -> tuple[Parts, Parts]:
        offset = self.split.offset
        place = offset[low] + stretches.start
        found = np.searchsorted(offset, place, side="right") - 1
        segment = np.minimum(found, high - 2)
        end = np.maximum(self.run_from(segment, high, self.budget), segment + 2)
        middle = segment + 1 + self.below(end - segment - 1, "end of the first part", stretches)
        first, second = self.run(segment, middle), self.run(middle, end)
        never_fits = self.split.length[found] > self.budget  # so it is entered at the window's place
        for part, is_entered in ((first, found == segment), (second, found != segment)):
            part.start = np.where(never_fits & is_entered, np.minimum(place, part.stop - 1), part.start)
        return first, second

    def _fitted(self, first: Parts, second: Parts, stretches: Stretches) -> tuple[Parts, Parts]:
        """Cuts the longer part first, then both alike, each at its front or its end by chance."""
        half = self.budget // 2
        room_for_first = np.maximum(half, self.budget - second.lengths)
        first = first.cut_to(room_for_first, self.uniform("cut first", stretches) < 0.5)
        second = second.cut_to(self.budget - first.lengths, self.uniform("cut second", stretches) < 0.5)
        return first, second


def check_pairs(source: Source, what: str) -> None:
    """Stops before training where no pair can be drawn.

    Raises:
        TrainingError: if no document has two segments.
    """
    if len(source.split.length) == source.split.documents:
        raise TrainingError(
            f'The objective "{what}" needs documents of two segments or more, and none of the '
            f'{source.split.documents:,} training documents of the domain "{source.vocabulary}" has two. If a blank '
            "line stands after every sentence of a text, each sentence is a document of its own: keep blank lines "
            "between documents only. Or set objective.pair to none."
        )
