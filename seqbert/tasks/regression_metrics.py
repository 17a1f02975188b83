"""Metrics of numbers, equal to those of SciPy and scikit-learn, each with its interval."""

from __future__ import annotations

import numpy as np

from seqbert.errors import DataError
from seqbert.tasks.intervals import Scores, check_predictions, explain, measured, share, without_records
from seqbert.tasks.ranking import Order


def regression_scores(gold: np.ndarray, predicted: np.ndarray, resamples: int = 0) -> Scores:
    """Metrics of one number a record.

    Args:
        gold: The true numbers, ``[records]``.
        predicted: The predicted ones, ``[records]``.
        resamples: Draws of the bootstrap; 0: no intervals.

    Returns:
        ``pearson`` and ``spearman`` correlation (ties share their mean rank), not defined where gold or predicted
        is constant; ``mse`` and ``mae``, the mean squared and the mean absolute error; ``r2``, the share of the
        variance that is explained, where gold is constant by convention 1 if all predictions are right, else 0.

    Raises:
        DataError: A true number is not finite.
        TrainingError: A predicted number is not finite.
        ValueError: The arrays do not fit together.
    """
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise ValueError(f"{gold.shape} true numbers and {predicted.shape} predictions are not [records] both")
    if len(bad := np.flatnonzero(~np.isfinite(gold))):
        raise DataError(
            f"the label of record {bad[0]} (counted from 0) is {gold[bad[0]]}: "
            "a regression needs finite numbers, so mend the label or take the record out"
        )
    check_predictions(predicted)
    squared, absolute, records = (gold - predicted) ** 2, np.abs(gold - predicted), np.ones(len(gold))
    gold_order, predicted_order = Order(gold), Order(predicted)

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        centred = _centred(gold[:, None], draws)
        variance = (draws * centred**2).sum(axis=0)
        true_ranks = _centred(gold_order.ranks(draws), draws)
        ranks = _centred(predicted_order.ranks(draws), draws)
        return {
            "pearson": _correlation(centred, _centred(predicted[:, None], draws), draws),
            "spearman": _correlation(true_ranks, ranks, draws),
            "mse": share(squared, records, draws),
            "mae": share(absolute, records, draws),
            "r2": 1 - squared @ draws / variance,
        }

    scores = measured(statistics, records, resamples)
    if not len(gold):
        return without_records(scores)
    for name in ("pearson", "spearman"):
        if scores[name].value is None:
            explain(scores, name, f"not defined: {_constant(gold, predicted)}")
    if scores["r2"].value is None:
        if len(gold) == 1:
            explain(scores, "r2", "not defined: there is one record only")
        else:
            explain(scores, "r2", f"by convention: all labels are {gold[0]:g}", float(not squared.any()))
    return scores


def _centred(values: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Values ``[records, draws or 1]`` less their mean in each draw; NaN in a draw that holds one value only."""
    drawn = draws > 0
    highest = np.where(drawn, values, -np.inf).max(axis=0, initial=-np.inf)
    lowest = np.where(drawn, values, np.inf).min(axis=0, initial=np.inf)
    mean = (values * draws).sum(axis=0) / draws.sum(axis=0)
    centred: np.ndarray = np.where(highest > lowest, values - mean, np.nan)
    return centred


def _correlation(first: np.ndarray, second: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Pearson correlation of centred values ``[records, draws]`` in each draw, ``[draws]``."""
    weighted = draws * first
    covariance = (weighted * second).sum(axis=0)
    variances = (weighted * first).sum(axis=0), (draws * second**2).sum(axis=0)
    correlation: np.ndarray = covariance / np.sqrt(variances[0]) / np.sqrt(variances[1])
    return correlation.clip(-1, 1)


def _constant(gold: np.ndarray, predicted: np.ndarray) -> str:
    """Why two sequences of numbers have no correlation."""
    if len(gold) == 1:
        return "there is one record only"
    if (predicted == predicted[0]).all():
        return f"all predictions are {predicted[0]:g}"
    return f"all labels are {gold[0]:g}"
