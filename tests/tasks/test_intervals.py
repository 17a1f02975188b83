import numpy as np
import pytest

from seqbert.tasks.intervals import measured, share
from seqbert.tasks.metrics import choice_scores, classification_scores, regression_scores


def accuracy_interval(right: int, records: int, resamples: int = 1000) -> tuple[float, float]:
    gold = np.zeros(records, int)
    predicted = np.array([0] * right + [1] * (records - right))
    metric = choice_scores(gold, predicted, 2, resamples)["accuracy"]
    assert metric.value == right / records
    assert metric.low is not None and metric.high is not None
    return metric.low, metric.high


@pytest.mark.parametrize(("right", "records"), [(50, 100), (900, 1000), (30, 200)])
def test_the_interval_of_an_accuracy_has_the_quantiles_of_the_binomial_distribution(right: int, records: int) -> None:
    binomial = pytest.importorskip("scipy.stats").binom(records, right / records)
    low, high = accuracy_interval(right, records, 4000)
    assert low == pytest.approx(binomial.ppf(0.025) / records, abs=1.01 / records)
    assert high == pytest.approx(binomial.ppf(0.975) / records, abs=1.01 / records)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Of 300 samples of 200 records with accuracy 0.7: the share that is held has a standard error of 1.3 points."""
    generator = np.random.default_rng(5)
    held = 0
    for right in generator.binomial(200, 0.7, 300):
        low, high = accuracy_interval(int(right), 200, 400)
        held += low <= 0.7 <= high
    assert 0.91 <= held / 300 <= 0.985


def test_intervals_are_the_same_in_every_call() -> None:
    gold = np.random.default_rng(0).normal(size=50)
    assert regression_scores(gold, gold**2, 100) == regression_scores(gold, gold**2, 100)


def test_values_do_not_depend_on_whether_there_is_an_interval() -> None:
    generator = np.random.default_rng(1)
    gold, predicted, chances = generator.integers(0, 3, 80), generator.integers(0, 3, 80), generator.random((80, 3))
    without = classification_scores(gold, predicted, chances, ["x", "y", "z"])
    within = classification_scores(gold, predicted, chances, ["x", "y", "z"], 100)
    assert {name: metric.value for name, metric in within.items()} == {n: m.value for n, m in without.items()}
    assert all(metric.low is None for metric in without.values())
    assert all(metric.low <= metric.value <= metric.high for metric in within.values())


def test_a_unit_of_many_records_is_drawn_as_often_as_they_are() -> None:
    """Units of 30 and 10 records: the mean draw is of 30 and 10, whether units are records or not."""
    seen = []

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        seen.append(draws)
        return {"share": share(np.array([1.0, 0.0]), np.ones(2), draws)}

    metric = measured(statistics, np.array([30, 10]), 3000)["share"]
    draws = np.concatenate(seen[1:], axis=1)
    assert draws.shape == (2, 3000)
    assert (draws.sum(axis=0) == 40).all()
    assert draws.mean(axis=1) == pytest.approx([30, 10], abs=0.3)
    assert metric.value == 0.75


def test_many_records_are_drawn_a_part_at_a_time() -> None:
    records, widths = 100_000, []

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        widths.append(draws.shape[1])
        return {"mean": draws.mean(axis=0)}

    measured(statistics, np.ones(records, int), 50)
    assert sum(widths) == 1 + 50
    assert max(widths) * records * 8 <= 2**24
