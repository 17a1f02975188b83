"""A metric with its confidence interval: how much would it change had other records been drawn?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from seqbert.errors import TrainingError

LEVEL = 0.95
"""Confidence of every interval."""


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One number about predictions, and how sure it is.

    Attributes:
        value: The metric over all records; None where it is not defined.
        low: Lower end of the 95 % interval; None where none was asked for or none can be had.
        high: Upper end.
        note: Why the value is None or holds by convention, and what it leaves out.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


Scores: TypeAlias = dict[str, Metric]
"""Metrics by name."""

Statistics: TypeAlias = Callable[[np.ndarray], Mapping[str, np.ndarray]]
"""How often each unit was drawn, ``[units, draws]`` float64, to metrics by name, ``[draws]``; NaN: not defined."""


def measured(statistics: Statistics, counts: np.ndarray, resamples: int = 0) -> Scores:
    """Metrics over all records, each with its percentile bootstrap interval (Efron 1979).

    Records that no metric tells apart, such as those in one cell of a confusion matrix, are one unit: drawing
    records with repeats is then a multinomial draw over units, and all draws are computed at once. The draws are
    the same in every call. Where a metric is not defined for a draw, that draw is left out, and the note says how
    many were. Where all records agree (an accuracy of 1) the interval has no width: it knows only what it saw.

    Args:
        statistics: The metrics as functions of how often each unit counts.
        counts: Number of records of each unit, ``[units]``.
        resamples: Number of draws; 0 for values without intervals. One record alone gets no interval.

    Returns:
        The metrics under the names that ``statistics`` gives; a value that is not defined is None.
    """
    records = int(counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = statistics(counts[:, None].astype(np.float64))
        drawn = [statistics(draws) for draws in _draws(counts, resamples if records > 1 else 0)]
    scores: Scores = {}
    for name, (value,) in observed.items():
        if np.isnan(value):
            scores[name] = Metric(None)
            continue
        resampled = np.concatenate([part[name] for part in drawn]) if drawn else np.zeros(0)
        defined = resampled[~np.isnan(resampled)]
        if not len(defined):
            scores[name] = Metric(float(value))
            continue
        low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        left_out = len(resampled) - len(defined)
        note = f"not defined for {left_out} of the interval's {len(resampled)} draws" if left_out else ""
        scores[name] = Metric(float(value), float(low), float(high), note)
    return scores


def explain(scores: Scores, name: str, note: str, value: float | None = None) -> None:
    """Says why a metric is what it is, and where it is not defined gives it the ``value`` that holds by convention."""
    metric = scores[name]
    if metric.value is None:
        metric = dataclasses.replace(metric, value=value)
    notes = f"{note}; {metric.note}" if metric.note else note
    scores[name] = dataclasses.replace(metric, note=notes)


def without_records(scores: Scores, note: str = "there are no records") -> Scores:
    """The same metrics where there is nothing to measure."""
    return {name: Metric(None, note=note) for name in scores}


def check_predictions(predictions: np.ndarray) -> None:
    """Refuses predictions ``[records, ...]`` from weights that have become NaN.

    Raises:
        TrainingError: A prediction is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(predictions).all(axis=tuple(range(1, predictions.ndim))))
    if len(bad):
        raise TrainingError(
            f"the model's predictions are not finite for {len(bad)} of {len(predictions)} records, the first of them "
            f"record {bad[0]} (counted from 0): its weights cannot be used. Train it again with a lower learning "
            "rate or a longer warm-up, or evaluate an earlier checkpoint"
        )


def share(part: np.ndarray, whole: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Sum of ``part [units]`` over that of ``whole [units]`` in each draw, ``[draws]``; NaN where the whole is 0."""
    shares: np.ndarray = (part @ draws) / (whole @ draws)
    return shares


def mean_f1(hits: np.ndarray, gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Mean F1 over the classes in gold or predicted, from counts ``[classes, draws]`` to ``[draws]``: macro F1.

    NaN where there is no class at all. Must be called where division by zero is allowed.
    """
    present = gold + predicted > 0
    f1 = np.where(present, 2 * hits / (gold + predicted), 0)
    means: np.ndarray = f1.sum(axis=0) / present.sum(axis=0)
    return means


_SEED = 0
_CELLS = 1 << 21  # unit counts held at once: 16 MiB
_DRAWS_AT_ONCE = 256


def _draws(counts: np.ndarray, resamples: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn, ``[units, some draws]`` float64 at a time, until there are ``resamples``."""
    generator = np.random.default_rng(_SEED)
    units, records = len(counts), int(counts.sum())
    at_once = min(_DRAWS_AT_ONCE, max(1, _CELLS // max(units, 1)))
    for first in range(0, resamples, at_once):
        size = min(at_once, resamples - first)
        if records == units:
            drawn = generator.integers(0, units, (units, size))
            places = (drawn * size + np.arange(size)).ravel()
            yield np.bincount(places, minlength=units * size).reshape(units, size).astype(np.float64)
        else:
            draws = generator.multinomial(records, counts / records, size)
            yield np.ascontiguousarray(draws.T, dtype=np.float64)
