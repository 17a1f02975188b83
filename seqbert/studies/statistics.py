"""Means over seeds, differences between arms, and verdicts about claims."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

Verdict = Literal["held", "not held", "undecided here"]

LEVEL = 0.95
"""Of the intervals."""

LEAST_SEEDS = 3
"""Fewer say nothing about a spread."""


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The mean difference of two arms that ran with the same seeds, and its 95 % interval.

    Attributes:
        mean: Of the differences seed by seed.
        low: Lower end of the interval; None with fewer than two seeds.
        high: Upper end.
        n: Number of seeds that both arms have.
    """

    mean: float
    low: float | None
    high: float | None
    n: int


def paired_difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """``first - second`` over the seeds that both have; None where there is none.

    The interval is Student's for paired samples: mean ± t(n - 1) s / sqrt(n).

    >>> paired_difference({0: 0.90, 1: 0.92, 2: 0.91}, {0: 0.88, 1: 0.89, 2: 0.90})  # doctest: +ELLIPSIS
    Difference(mean=0.02..., low=-0.0048..., high=0.0448..., n=3)
    """
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return None
    differences = [first[seed] - second[seed] for seed in seeds]
    mean = statistics.fmean(differences)
    if len(seeds) < 2:
        return Difference(mean, None, None, len(seeds))
    from scipy.stats import t

    half = float(t.ppf((1 + LEVEL) / 2, len(seeds) - 1)) * statistics.stdev(differences) / math.sqrt(len(seeds))
    return Difference(mean, mean - half, mean + half, len(seeds))


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation (of a sample); no deviation of a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def deviations(values: Mapping[int, float]) -> dict[int, float]:
    """How far each seed's number lies from the median of them all.

    Their mean measures how much runs differ, and is not ruled by a single one as a variance is; differences of such
    means are what Brown and Forsythe test (1974, "Robust Tests for the Equality of Variances").

    >>> deviations({0: 0.75, 1: 0.5, 2: 1.0})
    {0: 0.0, 1: 0.25, 2: 0.25}
    """
    middle = statistics.median(values.values()) if values else 0.0
    return {seed: abs(value - middle) for seed, value in values.items()}


def judge(difference: Difference | None, equal_within: float | None = None) -> Verdict:
    """What a difference ``better - worse`` says about a claim; fewer than three seeds say nothing.

    Held where the interval lies above 0, not held where it lies below. A claim that two arms are equal within a margin
    is held where the interval lies inside the margin, and not held where it lies outside.
    """
    if difference is None or difference.n < LEAST_SEEDS or difference.low is None or difference.high is None:
        return "undecided here"
    low, high = difference.low, difference.high
    if equal_within is not None:
        if -equal_within <= low and high <= equal_within:
            return "held"
        return "not held" if low > equal_within or high < -equal_within else "undecided here"
    return "held" if low > 0 else "not held" if high < 0 else "undecided here"
