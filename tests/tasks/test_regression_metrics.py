import numpy as np
import pytest

from seqbert.errors import DataError, TrainingError
from seqbert.tasks.metrics import Scores, regression_scores

sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")


def by_the_libraries(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {
        "pearson": float(stats.pearsonr(gold, predicted).statistic),
        "spearman": float(stats.spearmanr(gold, predicted).statistic),
        "mse": sklearn.mean_squared_error(gold, predicted),
        "mae": sklearn.mean_absolute_error(gold, predicted),
        "r2": sklearn.r2_score(gold, predicted),
    }


def values(scores: Scores) -> dict[str, float | None]:
    return {name: metric.value for name, metric in scores.items()}


def numbers(seed: int, records: int, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    gold = 3 + 2 * generator.normal(size=records)
    predicted = gold + generator.normal(size=records)
    return (gold.round(), predicted.round()) if ties else (gold, predicted)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("records", [2, 7, 1000])
def test_numbers_are_measured_as_by_scipy_and_scikit_learn(records: int, ties: bool) -> None:
    gold, predicted = numbers(records, records, ties)
    assert values(regression_scores(gold, predicted)) == pytest.approx(by_the_libraries(gold, predicted), abs=1e-12)


def test_large_offsets_do_not_hurt() -> None:
    gold, predicted = numbers(4, 50)
    measured = values(regression_scores(gold + 1e7, predicted + 1e7))
    assert measured == pytest.approx(values(regression_scores(gold, predicted)), rel=1e-6)


def test_predictions_in_single_precision_are_measured_in_double() -> None:
    gold, predicted = numbers(5, 100)
    narrow = predicted.astype(np.float32)
    expected = by_the_libraries(gold, narrow.astype(np.float64))
    assert values(regression_scores(gold, narrow)) == pytest.approx(expected, abs=1e-12)


def test_row81_constant_predictions_have_no_correlation_and_say_why() -> None:
    scores = regression_scores(np.array([1.0, 2.0, 3.0]), np.full(3, 2.5), resamples=50)
    for name in ("pearson", "spearman"):
        assert scores[name].value is None and scores[name].low is None
        assert scores[name].note == "not defined: all predictions are 2.5"
    assert scores["r2"].value == pytest.approx(sklearn.r2_score([1, 2, 3], [2.5] * 3))
    assert scores["mae"].value == pytest.approx(2.5 / 3)


@pytest.mark.parametrize("predicted", [[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
def test_constant_labels_have_the_r2_of_scikit_learn_and_a_note(predicted: list[float]) -> None:
    scores = regression_scores(np.full(3, 2.0), np.array(predicted), resamples=50)
    assert scores["r2"].value == sklearn.r2_score([2.0] * 3, predicted)
    assert scores["r2"].note == "by convention: all labels are 2"
    assert scores["pearson"].value is None and scores["pearson"].note


def test_constants_that_are_no_exact_fractions_are_seen_as_constant() -> None:
    scores = regression_scores(np.arange(7.0), np.full(7, 0.1), resamples=50)
    assert scores["pearson"].value is None and scores["spearman"].value is None


def test_one_record_and_none() -> None:
    one = regression_scores(np.array([1.0]), np.array([1.5]), resamples=10)
    assert one["mse"].value == 0.25 and one["mse"].low is None
    assert {one[name].value for name in ("pearson", "spearman", "r2")} == {None}
    assert one["r2"].note == "not defined: there is one record only"
    none = regression_scores(np.zeros(0), np.zeros(0), resamples=10)
    assert list(none) == list(one)
    assert {(metric.value, metric.note) for metric in none.values()} == {(None, "there are no records")}


def test_draws_without_variance_are_left_out_and_counted() -> None:
    """Of 3 records all three draws are the same one in 1 of 9 resamples."""
    scores = regression_scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 2.6]), resamples=900)
    left_out = int(scores["pearson"].note.removeprefix("not defined for ").split()[0])
    assert left_out == pytest.approx(100, abs=40)
    assert scores["mse"].note == ""


def test_what_is_not_finite_is_refused() -> None:
    good = np.array([1.0, 2.0, 3.0])
    with pytest.raises(TrainingError, match="record 1 "):
        regression_scores(good, np.array([1.0, np.nan, 3.0]))
    with pytest.raises(DataError, match="the label of record 2 .* is inf"):
        regression_scores(np.array([1.0, 2.0, np.inf]), good)
    with pytest.raises(ValueError, match="not \\[records\\] both"):
        regression_scores(good, good[:2])


def test_intervals_are_those_of_the_libraries_on_drawn_records() -> None:
    """The ends agree with 400 plain resamples through the libraries, up to the noise of 400 draws."""
    gold, predicted = numbers(8, 120, ties=True)
    scores = regression_scores(gold, predicted, resamples=2000)
    generator = np.random.default_rng(99)
    draws = [generator.integers(0, 120, 120) for _ in range(400)]
    drawn = [by_the_libraries(gold[chosen], predicted[chosen]) for chosen in draws]
    for name, metric in scores.items():
        low, high = np.quantile([row[name] for row in drawn], [0.025, 0.975])
        noise = 0.2 * (high - low)
        assert metric.low == pytest.approx(low, abs=noise), name
        assert metric.high == pytest.approx(high, abs=noise), name


def test_the_interval_of_a_correlation_is_that_of_fishers_transformation() -> None:
    """Fisher 1915: atanh(r) is normal with standard error 1 / sqrt(n - 3) for normal data."""
    generator = np.random.default_rng(1)
    gold = generator.normal(size=2000)
    metric = regression_scores(gold, gold + generator.normal(size=2000), resamples=1000)["pearson"]
    centre, error = np.arctanh(metric.value), 1.96 / np.sqrt(1997)
    assert metric.low == pytest.approx(np.tanh(centre - error), abs=0.005)
    assert metric.high == pytest.approx(np.tanh(centre + error), abs=0.005)
