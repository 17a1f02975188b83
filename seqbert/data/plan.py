"""Which stretch of which document the sequences of a step are drawn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqbert.data.corpus import Corpus, Split
from seqbert.data.groups import Groups
from seqbert.data.sampling import EpochOrder, Mixture, below, stream
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
    """The order in which the windows of one split are visited: a function of seed, step and place.

    Step ``s`` takes the sequences ``s * n`` to ``s * n + n - 1`` of an endless walk through epochs (``n`` is
    :attr:`sequences_per_step`), so that each window is visited once an epoch, and then draws more at random until
    the step's token budget is full. Documents of several groups are mixed by smoothed share. A run that goes on with
    another ``n`` takes the walk up where it stood (:meth:`go_on`).

    Attributes:
        groups: The documents of each group.
    """

    def __init__(self, split: Split, size: int, seed: int, balance: Balance | None = None) -> None:
        self._seed = seed
        self.sequences_per_step = 1
        self._begun = (0, 0)
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

    def visited(self, step: int) -> int:
        """Sequences of the walk that the steps before this one took."""
        begun, before = self._begun
        return before + (step - begun) * self.sequences_per_step

    def go_on(self, step: int, visited: int) -> None:
        """Takes the walk up at a step, after so many of its sequences."""
        self._begun = (step, visited)

    def step(self, step: int, extra: int) -> Stretches:
        """The sequences of a step: those of the epoch's order, then ``extra`` ones drawn at random."""
        count = self.sequences_per_step
        groups, numbers = self._mixture(self.visited(step) + np.arange(count))
        epochs = np.empty_like(numbers)
        for group in np.unique(groups):
            chosen = groups == group
            epochs[chosen], numbers[chosen] = self._orders[group](numbers[chosen])
        place = np.arange(count)
        if extra:
            more = EXTRA + np.arange(extra)
            more_groups, _ = self._mixture(step * extra + np.arange(extra))
            more_numbers = below(self._windows.of_group[more_groups], self._seed, stream("extra"), step, more)
            groups, numbers = np.append(groups, more_groups), np.append(numbers, more_numbers)
            epochs, place = np.append(epochs, np.full(extra, EXTRA + step)), np.append(place, more)
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

    Attributes:
        corpus: The corpus.
        split: Its training or validation part.
        plan: The order in which its windows are visited.
        seed: Keys every draw.
        max_length: Most tokens of a sequence, special tokens included.
        tokens_per_step: Token budget of this vocabulary in a step.
        extra: Sequences drawn at random to fill a step.
        augmentations: By name, what each sequence is given a variant of, in this order.
    """

    corpus: Corpus
    split: Split
    plan: Plan
    seed: int
    max_length: int
    tokens_per_step: int
    extra: int = 0
    augmentations: Mapping[str, Augmentation] = dataclasses.field(default_factory=dict)

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

    def visited(self, step: int) -> int:
        """Sequences that the steps before this one took from the epochs' order."""
        return self.plan.visited(step)

    def go_on(self, step: int, visited: int) -> None:
        """Takes the epochs' order up at a step, after so many sequences."""
        self.plan.go_on(step, visited)

    def set_step_size(self, lengths: np.ndarray) -> None:
        """Sets how many sequences a step takes, given the lengths of a sample of them, ``[sample]``.

        From the epoch's order as many as fit less two standard deviations, so that few steps leave one out; random
        ones fill the rest, enough of them for a step that falls four deviations short.
        """
        fitting = self.tokens_per_step / float(lengths.mean())
        deviation = float(lengths.std() / lengths.mean()) * fitting**0.5
        self.plan.sequences_per_step = max(1, int(fitting - 2 * deviation))
        self.extra = int(6 * deviation) + 2
