"""Metrics of classes and choices, equal to those of scikit-learn, each with its interval.

They are written as functions of how often each record counts, so that the value and all draws of its bootstrap
interval come from one formula: with the library's functions, a thousand draws would be a thousand calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqbert.tasks.intervals import (
    Scores,
    Statistics,
    check_predictions,
    explain,
    mean_f1,
    measured,
    share,
    without_records,
)
from seqbert.tasks.ranking import Ranking

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def classification_scores(
    gold: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
    resamples: int = 0,
) -> Scores:
    """Metrics of one class a record.

    Args:
        gold: The true class of each record, ``[records]``.
        predicted: The predicted one, ``[records]``.
        probabilities: The score of each class, ``[records, classes]``; only its order matters.
        names: The classes.
        resamples: Draws of the bootstrap; 0: no intervals.

    Returns:
        ``accuracy``; ``macro_f1`` over the classes in gold or predicted; with two classes ``f1`` of the second;
        ``matthews``, the correlation of Matthews 1975, for more than two classes by Gorodkin 2004 (equation 8), 0
        by convention where gold or predicted is constant; ``auroc`` and ``auprc``, the areas under the ROC curve
        and under the precision-recall curve (as average precision, without interpolation), with two classes of
        the second, else the mean of one class against the rest over the classes that gold holds.

    Raises:
        TrainingError: A probability is not a number.
        ValueError: The arrays do not fit together.
    """
    gold, predicted, probabilities = np.asarray(gold), np.asarray(predicted), np.asarray(probabilities)
    classes = len(names)
    _check_classes(gold, predicted, classes)
    if probabilities.shape != (len(gold), classes):
        raise ValueError(f"probabilities are {probabilities.shape}, not {(len(gold), classes)}")
    check_predictions(probabilities)
    cells, counts = np.unique(gold.astype(np.int64) * classes + predicted, return_counts=True)
    positive = gold[:, None] == np.arange(classes)
    ranked = [1] if classes == 2 else [label for label in range(classes) if positive[:, label].any()]
    scores = measured(_confusion_statistics(cells // classes, cells % classes, classes), counts, resamples)
    if classes != 2:
        del scores["f1"]
    scores |= measured(_ranking_statistics(probabilities, positive, ranked), np.ones(len(gold), np.int64), resamples)
    if not len(gold):
        return without_records(scores)

    if scores["matthews"].value is None:
        constant = "predicted" if (predicted == predicted[0]).all() else "true"
        only = names[int((predicted if constant == "predicted" else gold)[0])]
        explain(scores, "matthews", f'0 by convention: every {constant} class is "{only}"', 0.0)
    if classes == 2 and scores["f1"].value is None:
        explain(scores, "f1", f'0 by convention: "{names[1]}" is neither a true nor a predicted class', 0.0)
    held = np.unique(np.concatenate([gold, predicted]))
    if len(held) < classes:
        missing = _listed([names[label] for label in range(classes) if label not in held])
        explain(scores, "macro_f1", f"mean over {len(held)} of {classes} classes: no record has {missing}")
    _explain_ranking(scores, positive, names, ranked)
    return scores


def multilabel_scores(
    gold: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
    resamples: int = 0,
) -> Scores:
    """Metrics of any number of classes a record.

    Args:
        gold: Whether each record has each class, ``[records, classes]`` bool.
        predicted: Whether it was predicted, ``[records, classes]`` bool.
        probabilities: The score of each, ``[records, classes]``; only its order matters.
        names: The classes.
        resamples: Draws of the bootstrap; 0: no intervals.

    Returns:
        ``micro_f1`` over all decisions; ``macro_f1``, the mean over all classes, where one that is neither true
        nor predicted counts as 0; ``subset_accuracy``, the share of records with every class right; ``auroc`` and
        ``auprc``, means over the classes that some records have.

    Raises:
        TrainingError: A probability is not a number.
        ValueError: The arrays do not fit together.
    """
    gold, predicted = np.asarray(gold, bool), np.asarray(predicted, bool)
    probabilities = np.asarray(probabilities)
    if not gold.shape == predicted.shape == probabilities.shape == (len(gold), len(names)):
        raise ValueError(f"{gold.shape}, {predicted.shape} and {probabilities.shape} are not one shape of {names}")
    check_predictions(probabilities)
    hits, wanted, given = ((part.T.astype(np.float64)) for part in (gold & predicted, gold, predicted))
    exact = (gold == predicted).all(axis=1).astype(np.float64)
    records = np.ones(len(gold))

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        right, true, answered = hits @ draws, wanted @ draws, given @ draws
        f1 = np.nan_to_num(2 * right / (true + answered))
        return {
            "micro_f1": 2 * right.sum(axis=0) / (true.sum(axis=0) + answered.sum(axis=0)),
            "macro_f1": f1.sum(axis=0) / (len(f1) if len(gold) else 0),
            "subset_accuracy": share(exact, records, draws),
        }

    ranked = [label for label in range(len(names)) if gold[:, label].any()]
    scores = measured(statistics, records, resamples)
    scores |= measured(_ranking_statistics(probabilities, gold, ranked), records, resamples)
    if not len(gold):
        return without_records(scores)

    if scores["micro_f1"].value is None:
        explain(scores, "micro_f1", "0 by convention: no record has a class, and none is predicted", 0.0)
    unseen = [name for name, seen in zip(names, (gold | predicted).any(axis=0), strict=True) if not seen]
    if unseen:
        explain(scores, "macro_f1", f"{_listed(unseen)} counts as 0: neither a true nor a predicted class")
    _explain_ranking(scores, gold, names, ranked)
    return scores


def choice_scores(gold: np.ndarray, predicted: np.ndarray, choices: int, resamples: int = 0) -> Scores:
    """The ``accuracy`` of choosing one of ``choices``: gold and predicted are numbers of choices, ``[records]``.

    Raises:
        ValueError: The arrays do not fit together, or hold a number that is no choice's.
    """
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    _check_classes(gold, predicted, choices)
    right, counts = np.unique(gold == predicted, return_counts=True)
    hits, records = right.astype(np.float64), np.ones(len(right))
    scores = measured(lambda draws: {"accuracy": share(hits, records, draws)}, counts, resamples)
    return scores if len(gold) else without_records(scores)


def confusion(gold: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """How many records of each true class (row) were given each class (column), ``[classes, classes]`` int64.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    _check_classes(gold, predicted, classes)
    cells = gold.astype(np.int64) * classes + predicted
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def _confusion_statistics(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Statistics:
    """What follows from a confusion matrix whose cells are the units: ``gold`` and ``predicted`` are ``[cells]``."""
    right = gold == predicted
    by_gold, by_predicted = _indicator(gold, classes), _indicator(predicted, classes)
    by_hit = _indicator(gold, classes, right)
    hit, all_cells = right.astype(np.float64), np.ones(len(gold))

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        hits, true, answered = by_hit @ draws, by_gold @ draws, by_predicted @ draws
        records = draws.sum(axis=0)
        covariance = hits.sum(axis=0) * records - (true * answered).sum(axis=0)
        true_variance = records**2 - (true**2).sum(axis=0)
        answered_variance = records**2 - (answered**2).sum(axis=0)
        return {
            "accuracy": share(hit, all_cells, draws),
            "macro_f1": mean_f1(hits, true, answered),
            "f1": 2 * hits[-1] / (true[-1] + answered[-1]),
            "matthews": covariance / np.sqrt(true_variance) / np.sqrt(answered_variance),
        }

    return statistics


def _indicator(rows: np.ndarray, classes: int, chosen: np.ndarray | None = None) -> csr_array:
    """Matrix ``[classes, units]`` with a 1 where a unit belongs to a class, only for the ``chosen`` units."""
    from scipy.sparse import csr_array

    units = np.arange(len(rows)) if chosen is None else np.flatnonzero(chosen)
    return csr_array((np.ones(len(units)), (rows[units], units)), shape=(classes, len(rows)))


def _ranking_statistics(scores: np.ndarray, positive: np.ndarray, ranked: Sequence[int]) -> Statistics:
    """Areas under the curves, the mean over the ``ranked`` classes; scores and positive are ``[records, classes]``."""
    rankings = [Ranking(scores[:, label], positive[:, label]) for label in ranked]

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        areas = np.array([ranking.areas(draws) for ranking in rankings]).reshape(-1, 2, draws.shape[1])
        defined = ~np.isnan(areas)
        auroc, auprc = np.where(defined, areas, 0).sum(axis=0) / defined.sum(axis=0)
        return {"auroc": auroc, "auprc": auprc}

    return statistics


def _check_classes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> None:
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise ValueError(f"{gold.shape} true classes and {predicted.shape} predictions are not [records] both")
    for given in (gold, predicted):
        if len(given) and not 0 <= given.min() <= given.max() < classes:
            raise ValueError(f"classes are numbered from 0 to {classes - 1}, not {given.min()} to {given.max()}")


def _explain_ranking(scores: Scores, positive: np.ndarray, names: Sequence[str], ranked: Sequence[int]) -> None:
    """Notes where a class is absent, or all that there is, so that it cannot be told from the rest."""
    shares = positive.mean(axis=0)
    if len(names) == 2 and list(ranked) == [1]:
        if shares[1] in (0, 1):
            explain(scores, "auroc", f'not defined: {"every" if shares[1] else "no"} record is "{names[1]}"')
        if not shares[1]:
            explain(scores, "auprc", f'0 by convention: no record is "{names[1]}"', 0.0)
        return
    absent = [name for name, part in zip(names, shares, strict=True) if not part]
    everywhere = [name for name, part in zip(names, shares, strict=True) if part == 1]
    for metric, left_out in (("auroc", [*absent, *everywhere]), ("auprc", absent)):
        if len(left_out) == len(names):
            reason = (
                f"every record is {_listed(everywhere)}" if metric == "auroc" and everywhere else "no class is there"
            )
            explain(scores, metric, f"not defined: {reason}")
        elif left_out:
            kept = len(names) - len(left_out)
            explain(scores, metric, f"mean over {kept} of {len(names)} classes, without {_listed(left_out)}")


def _listed(names: Sequence[str], most: int = 5) -> str:
    listed = ", ".join(f'"{name}"' for name in names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed
