"""Which stretch of which document the sequences of a step are drawn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqbert.data.corpus import Corpus, Split
from seqbert.data.groups import Groups
from seqbert.data.sampling import EpochOrder, Mixture, below, distinct, stream
from seqbert.data.stages import Stage, Stages
from seqbert.data.windows import Windows
from seqbert.domain import Augmentation, Balance

EXTRA = 2**32
"""Places from here on are not part of an epoch's order: they fill a step up to its budget."""


@dataclasses.dataclass(slots=True)
class Stretches:
    """Windows to build sequences from.

    Attributes:
        document: Number of the document within the split, ``[sequences]``.
        start: First token within the document, ``[sequences]``.
        stop: One past the last token, ``[sequences]``.
        step: The step that each belongs to, ``[sequences]``.
        place: Place in the step's global batch, ``[sequences]``; with the step it keys every further draw.
    """

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    step: np.ndarray
    place: np.ndarray

    def __len__(self) -> int:
        return len(self.document)

    def __getitem__(self, chosen: Any) -> Stretches:
        columns = (getattr(self, field.name)[chosen] for field in dataclasses.fields(self))
        return Stretches(*columns)


class Plan:
    """The order in which the windows of one split are visited: a function of the seed, without a state.

    An endless walk through epochs visits each window once an epoch. A step takes the next stretch of that walk, and
    windows drawn at random beside. Documents of several groups are mixed by smoothed share.

    Attributes:
        groups: The documents of each group.
        size: Most tokens of a window.
    """

    def __init__(self, split: Split, size: int, seed: int, balance: Balance | None = None) -> None:
        self._seed = seed
        self.size = size
        self.groups = Groups(len(split.tokens), None if balance is None else split.group)
        self._windows = Windows(split.tokens, size, self.groups)
        shares = [1.0]
        if balance is not None:
            tokens = self.groups.sums_by_group(self.groups.sums(lambda section: split.tokens[section]))
            shares = [float(count) ** balance.exponent for count in tokens.tolist()]
        self._mixture = Mixture(shares, seed)
        self._orders = [EpochOrder(total, seed + i) for i, total in enumerate(self._windows.of_group.tolist())]

    @classmethod
    def of(cls, corpus: Corpus, split: Split, size: int, seed: int) -> Plan:
        """The plan for a corpus, with the balance that its domain asks for."""
        balance = corpus.manifest["balance"]
        return cls(split, size, seed, None if balance is None else Balance(**balance))

    @property
    def total(self) -> int:
        """Windows in an epoch."""
        return self._windows.total

    def attach(self, split: Split) -> None:
        """Gives an unpickled plan the split that it was made from, mapped into memory anew."""
        self._windows.attach(split.tokens, split.group)

    def step(self, step: int, walk: range, extra: range) -> Stretches:
        """The sequences of a step.

        Args:
            step: The step.
            walk: Which of the walk it takes, counted from the first step on.
            extra: Which of the random ones, counted likewise.
        """
        groups, numbers = self._mixture(np.arange(walk.start, walk.stop))
        epochs = np.empty_like(numbers)
        for group in distinct(groups):
            chosen = groups == group
            epochs[chosen], numbers[chosen] = self._orders[group](numbers[chosen])
        place = np.arange(len(walk))
        if extra:
            more = EXTRA + np.arange(len(extra))
            more_groups, _ = self._mixture(np.arange(extra.start, extra.stop))
            more_numbers = below(self._windows.of_group[more_groups], self._seed, stream("extra"), step, more)
            groups, numbers = np.append(groups, more_groups), np.append(numbers, more_numbers)
            epochs, place = np.append(epochs, np.full(len(extra), EXTRA + step)), np.append(place, more)
        return self._locate(self._windows.first[groups] + numbers, epochs, np.full(len(place), step), place)

    def sequential(self, most: int) -> Stretches:
        """At most ``most`` windows, spread evenly over the split, always the same: for validation."""
        chosen = np.unique(np.linspace(0, self.total - 1, min(most, self.total)).round().astype(np.int64))
        zeros = np.zeros_like(chosen)
        return self._locate(chosen, zeros, zeros, chosen)

    def _locate(self, numbers: np.ndarray, epochs: np.ndarray, step: np.ndarray, place: np.ndarray) -> Stretches:
        document, start, stop = self._windows.locate(numbers, epochs, self._seed)
        return Stretches(document, start, stop, step, place)


@dataclasses.dataclass(slots=True)
class Source:
    """One part of a corpus as an objective draws from it.

    Step ``s`` takes as many sequences of the plan's walk as its stage says, and goes on where step ``s - 1`` ended; a
    run that goes on with other stages takes the walk up where it stood (:meth:`go_on`).

    Attributes:
        corpus: The corpus.
        split: Its training or validation part.
        plan: The order in which its windows are visited.
        seed: Keys every draw.
        max_length: Most tokens of a sequence, special tokens included.
        tokens_per_step: Token budget of this vocabulary in a step, when all warm-ups are over.
        stages: How large steps are.
        augmentations: By name, what each sequence is given a variant of, in this order.
        begun: Where the walk was taken up: a step, and the sequences of it that were visited before.
    """

    corpus: Corpus
    split: Split
    plan: Plan
    seed: int
    max_length: int
    tokens_per_step: int
    stages: Stages = dataclasses.field(default_factory=lambda: Stages([]))
    augmentations: Mapping[str, Augmentation] = dataclasses.field(default_factory=dict)
    begun: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if not self.stages.all:
            self.stages = Stages([Stage(0, self.max_length, self.tokens_per_step)])

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return state | {"split": self.split.part}  # a worker maps the split into memory anew

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.split = self.corpus.split(state["split"])
        self.plan.attach(self.split)

    @property
    def vocabulary(self) -> str:
        """Name of the vocabulary."""
        return self.corpus.domain

    def step(self, step: int) -> Stretches:
        """What the sequences of a step are drawn from: those of the walk, then the random ones."""
        stage = self.stages[step]
        visited, drawn = self.visited(step), self.stages.extra_before(step)
        walk, extra = range(visited, visited + stage.sequences), range(drawn, drawn + stage.extra)
        return self.cropped(self.plan.step(step, walk, extra), stage)

    def cropped(self, stretches: Stretches, stage: Stage) -> Stretches:
        """The stretches, and of what is longer than a window of the stage a part that starts at a random place."""
        size = self.plan.size - (self.max_length - stage.max_length)
        spare = stretches.stop - stretches.start - size
        if stage.max_length == self.max_length or spare.max(initial=0) <= 0:
            return stretches
        cut = spare > 0
        offset = below(spare[cut] + 1, self.seed, stream("crop"), stretches.step[cut], stretches.place[cut])
        start, stop = stretches.start.copy(), stretches.stop.copy()
        start[cut] += offset
        stop[cut] = start[cut] + size
        return dataclasses.replace(stretches, start=start, stop=stop)

    def visited(self, step: int) -> int:
        """Sequences of the walk that the steps before this one took."""
        begun, before = self.begun
        return before + self.stages.sequences_before(step) - self.stages.sequences_before(begun)

    def go_on(self, step: int, visited: int) -> None:
        """Takes the walk up at a step, after so many of its sequences."""
        self.begun = (step, visited)
