"""Two parts of whole segments that fill a sequence, as BERT draws them.

Devlin et al. 2019, appendix A.2: segments are taken in order until no further whole one fits, and the run is cut
in two at a segment boundary drawn at random. What is longer than the sequence all the same is cut at one end.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from seqbert.data.corpus import Split
from seqbert.data.plan import Source, Stretches
from seqbert.data.sampling import below, stream, uniform
from seqbert.errors import TrainingError
from seqbert.objectives.sequences import NO_PAIR, Drawn

SPECIALS_IN_PAIR = 3
"""``[CLS]`` and two ``[SEP]``."""


class Part:
    """A run of whole segments ``first`` to ``last - 1``, less what is cut off at its ends."""

    def __init__(self, split: Split, first: int, last: int) -> None:
        self.start, _ = split.segment(first)
        _, self.stop = split.segment(last - 1)

    def __len__(self) -> int:
        return self.stop - self.start

    def cut_to(self, length: int, at_front: bool) -> None:
        """Cuts the part to at most ``length`` tokens."""
        excess = len(self) - length
        if excess > 0 and at_front:
            self.start += excess
        elif excess > 0:
            self.stop -= excess

    @property
    def places(self) -> tuple[int, int]:
        """Where it stands in the token store."""
        return self.start, self.stop


class PairObjective(Protocol):
    """Decides what the second part of a pair is."""

    def second(
        self, drawer: PairDrawer, first: Part, true_next: Part, document: int, key: tuple[int, int]
    ) -> tuple[Part, Part, int]:
        """The two parts in their order, and the label; ``key`` is (step, place)."""
        ...


class PairDrawer:
    """Draws pairs from the documents of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.split = source.split
        self.budget = source.max_length - SPECIALS_IN_PAIR

    def draw(self, stretches: Stretches, objective: PairObjective) -> Drawn:
        """A pair for each stretch; a document of one segment gives a single sequence without a label."""
        parts: list[tuple[tuple[int, int], ...]] = []
        labels = []
        rows = (getattr(stretches, name).tolist() for name in ("document", "start", "stop", "step", "place"))
        for document, start, stop, step, place in zip(*rows, strict=True):
            low, high = self.split.segments(document)
            if high - low == 1:
                parts.append((self.split.stretch(document, start, stop),))
                labels.append(NO_PAIR)
                continue
            key = (step, place)
            first, true_next = self._two_parts(low, high, start, key)
            first, second, label = objective.second(self, first, true_next, document, key)
            self._fit(first, second, key)
            parts.append((first.places, second.places))
            labels.append(label)
        return Drawn(parts, np.asarray(labels, np.int64), stretches)

    def uniform(self, use: str, key: tuple[int, int]) -> float:
        """A draw for this pair; each use has draws of its own."""
        return float(uniform(self.source.seed, stream(use), *key))

    def below(self, limit: int, use: str, key: tuple[int, int]) -> int:
        """A whole number from 0 to ``limit - 1`` for this pair."""
        return int(below(limit, self.source.seed, stream(use), *key))

    def run_from(self, segment: int, high: int, budget: int) -> int:
        """One past the last of the whole segments, at least one, that fit ``budget`` tokens from ``segment`` on."""
        lengths = self.split.length[segment : min(high, segment + budget)]
        return segment + max(1, int(np.searchsorted(np.cumsum(lengths), budget, side="right")))

    def other_document(self, document: int, key: tuple[int, int]) -> int:
        """Another document, of the same group where there is one."""
        groups = self.source.plan.groups
        group, own = groups.place(document)
        count = int(groups.documents[group])
        if count == 1:
            other = self.below(self.split.documents - 1, "other document", key)
            return other + (other >= document)
        other = self.below(count - 1, "other document", key)
        return groups.document(group, other + (other >= own))

    def _two_parts(self, low: int, high: int, start: int, key: tuple[int, int]) -> tuple[Part, Part]:
        place = int(self.split.offset[low]) + start
        found = low + int(np.searchsorted(self.split.offset[low:high], place, side="right")) - 1
        segment = min(found, high - 2)
        end = max(self.run_from(segment, high, self.budget), segment + 2)
        middle = segment + 1 + self.below(end - segment - 1, "end of the first part", key)
        first, second = Part(self.split, segment, middle), Part(self.split, middle, end)
        if int(self.split.length[found]) > self.budget:  # it never fits whole, so it is entered at the window's place
            entered = first if found == segment else second
            entered.start = min(place, entered.stop - 1)
        return first, second

    def _fit(self, first: Part, second: Part, key: tuple[int, int]) -> None:
        """Cuts the longer part first, then both alike, each at its front or its end by chance."""
        half = self.budget // 2
        if len(first) + len(second) <= self.budget:
            return
        room_for_first = max(half, self.budget - len(second))
        first.cut_to(room_for_first, self.uniform("cut first", key) < 0.5)
        second.cut_to(self.budget - len(first), self.uniform("cut second", key) < 0.5)


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
