"""Steps that begin small: the token budget and the longest sequence grow by doubling. Functions of the step alone."""

from __future__ import annotations

import dataclasses
import math

from seqbert.data.stages import Stage
from seqbert.errors import ConfigError


@dataclasses.dataclass
class Warmup:
    """Something that begins small and doubles at equal distances."""

    start: int
    steps: int

    def at(self, step: int, end: int) -> int:
        """What it has become by a step: ``end`` from ``steps`` on.

        >>> [LengthWarmupConfig(start=8, steps=6).at(step, 50) for step in range(8)]
        [8, 8, 16, 16, 32, 32, 50, 50]
        """
        if step >= self.steps or self.start >= end:
            return end
        return min(end, self.start << (step * self._doublings(end) // self.steps))

    def changes(self, end: int) -> set[int]:
        """The steps from which on it is another."""
        doublings = self._doublings(end)
        return {-(-number * self.steps // doublings) for number in range(1, doublings + 1)}

    def _doublings(self, end: int) -> int:
        return math.ceil(math.log2(end / self.start)) if end > self.start else 0

    def _check(self, least: int) -> None:
        if self.start < least:
            raise ConfigError(f"start is {self.start}, and it must be at least {least}.")
        if self.steps < 1:
            raise ConfigError(f"steps is {self.steps}, and it must be at least 1.")


@dataclasses.dataclass
class BatchWarmupConfig(Warmup):
    """Steps that begin small: early gradients need few tokens (McCandlish et al. 2018, section 2)."""

    start: int = 1024
    """Tokens of the first steps, over all domains; at least one sequence of each domain."""
    steps: int = 500
    """Steps over which they double, again and again, up to tokens_per_step."""

    def __post_init__(self) -> None:
        self._check(least=1)


@dataclasses.dataclass
class LengthWarmupConfig(Warmup):
    """Sequences that begin short (Li et al. 2022, "The stability-efficiency dilemma", section 4)."""

    start: int = 32
    """Most tokens of a sequence in the first steps, special tokens included; of a longer one a random part is taken."""
    steps: int = 500
    """Steps over which it doubles, again and again, up to max_length."""

    def __post_init__(self) -> None:
        self._check(least=8)


def plan_stages(
    tokens: int,
    max_length: int,
    share: float,
    domains: int,
    batch: BatchWarmupConfig | None,
    length: LengthWarmupConfig | None,
) -> list[Stage]:
    """The stages of one domain's part of each step.

    Args:
        tokens: Tokens of a step over all domains, in the end.
        max_length: Most tokens of a sequence, in the end.
        share: The domain's share of the tokens.
        domains: Number of domains; a step holds at least one sequence of each.
        batch: How the tokens grow; None: they do not.
        length: How sequences grow; None: they do not.
    """
    firsts = {0}
    firsts |= batch.changes(tokens) if batch else set()
    firsts |= length.changes(max_length) if length else set()
    stages = []
    for step in sorted(firsts):
        longest = length.at(step, max_length) if length else max_length
        budget = max(batch.at(step, tokens) if batch else tokens, longest * domains)
        stages.append(Stage(step, longest, max(longest, int(share * budget))))
    return stages
