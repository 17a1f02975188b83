import warnings

import numpy as np
import pytest

from seqbert.errors import TrainingError
from seqbert.tasks.metrics import choice_scores, classification_scores, confusion, multilabel_scores

sklearn = pytest.importorskip("sklearn.metrics")

NAMES = ["a", "b", "c", "d", "e"]


def outputs(seed: int, records: int, classes: int, ties: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True classes, predicted ones and probabilities that know a little about the true ones."""
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, classes, records)
    logits = generator.normal(size=(records, classes)) + np.eye(classes)[gold]
    logits = logits.round(0) if ties else logits
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return gold, probabilities.argmax(axis=1), probabilities


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("records", [5, 40, 1000])
def test_two_classes_are_measured_as_by_scikit_learn(records: int, ties: bool) -> None:
    gold, predicted, probabilities = outputs(records, records, 2, ties)
    scores = classification_scores(gold, predicted, probabilities, ["no", "yes"])
    assert {name: metric.value for name, metric in scores.items()} == pytest.approx(
        {
            "accuracy": sklearn.accuracy_score(gold, predicted),
            "macro_f1": sklearn.f1_score(gold, predicted, average="macro"),
            "f1": sklearn.f1_score(gold, predicted),
            "matthews": sklearn.matthews_corrcoef(gold, predicted),
            "auroc": sklearn.roc_auc_score(gold, probabilities[:, 1]),
            "auprc": sklearn.average_precision_score(gold, probabilities[:, 1]),
        },
        abs=1e-12,
    )
    assert not any(metric.note for metric in scores.values())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [3, 5])
def test_several_classes_are_measured_as_by_scikit_learn(classes: int, ties: bool) -> None:
    gold, predicted, probabilities = outputs(classes, 200, classes, ties)
    scores = classification_scores(gold, predicted, probabilities, NAMES[:classes])
    assert {name: metric.value for name, metric in scores.items()} == pytest.approx(
        {
            "accuracy": sklearn.accuracy_score(gold, predicted),
            "macro_f1": sklearn.f1_score(gold, predicted, average="macro"),
            "matthews": sklearn.matthews_corrcoef(gold, predicted),
            "auroc": sklearn.roc_auc_score(gold, probabilities, multi_class="ovr"),
            "auprc": sklearn.average_precision_score(np.eye(classes)[gold], probabilities, average="macro"),
        },
        abs=1e-12,
    )


def test_several_labels_are_measured_as_by_scikit_learn() -> None:
    generator = np.random.default_rng(3)
    gold = generator.random((300, 5)) < [0.5, 0.3, 0.1, 0.7, 0.05]
    probabilities = np.clip(0.4 * gold + 0.6 * generator.random(gold.shape), 0, 1)
    predicted = probabilities > 0.5
    scores = multilabel_scores(gold, predicted, probabilities, NAMES)
    assert {name: metric.value for name, metric in scores.items()} == pytest.approx(
        {
            "micro_f1": sklearn.f1_score(gold, predicted, average="micro"),
            "macro_f1": sklearn.f1_score(gold, predicted, average="macro"),
            "subset_accuracy": sklearn.accuracy_score(gold, predicted),
            "auroc": sklearn.roc_auc_score(gold, probabilities),
            "auprc": sklearn.average_precision_score(gold, probabilities),
        },
        abs=1e-12,
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gold_class", [0, 1])
@pytest.mark.parametrize("predicted_class", [0, 1])
def test_row81_constant_classes_give_what_scikit_learn_gives_and_say_so(gold_class: int, predicted_class: int) -> None:
    gold, predicted = np.full(6, gold_class), np.full(6, predicted_class)
    probabilities = np.eye(2)[predicted]
    scores = classification_scores(gold, predicted, probabilities, ["no", "yes"], resamples=50)
    assert scores["accuracy"].value == float(gold_class == predicted_class)
    assert scores["macro_f1"].value == sklearn.f1_score(gold, predicted, average="macro")
    assert scores["f1"].value == sklearn.f1_score(gold, predicted)
    assert scores["auprc"].value == sklearn.average_precision_score(gold, probabilities[:, 1])
    assert scores["matthews"].value == 0.0
    assert "0 by convention" in scores["matthews"].note
    assert scores["matthews"].low is None
    assert scores["auroc"].value is None
    assert scores["auroc"].note == f'not defined: {["no", "every"][gold_class]} record is "yes"'


def test_row81_predictions_of_one_class_have_matthews_0_and_a_note() -> None:
    gold = np.array([0, 1, 1, 1, 0, 1, 1])
    scores = classification_scores(gold, np.ones(7, int), np.full((7, 2), 0.5), ["bad", "good"], resamples=100)
    assert scores["matthews"].value == 0.0
    assert scores["matthews"].note == '0 by convention: every predicted class is "good"'
    assert scores["auroc"].value == 0.5
    assert scores["accuracy"].value == pytest.approx(5 / 7)


def test_classes_that_no_record_has_are_left_out_of_the_means_and_named() -> None:
    gold, predicted, probabilities = outputs(11, 60, 3)
    wide = np.column_stack([probabilities[:, :1], np.full(60, 0.01), probabilities[:, 1:], np.full(60, 0.02)])
    places = np.array([0, 2, 3])
    scores = classification_scores(places[gold], places[predicted], wide, NAMES)
    narrow = classification_scores(gold, predicted, probabilities, NAMES[:3])
    assert {name: metric.value for name, metric in scores.items()} == pytest.approx(
        {name: metric.value for name, metric in narrow.items()}
    )
    assert scores["macro_f1"].value == sklearn.f1_score(gold, predicted, average="macro")
    for name in ("macro_f1", "auroc", "auprc"):
        assert "3 of 5 classes" in scores[name].note and '"b", "e"' in scores[name].note


def test_several_labels_of_which_some_are_nowhere() -> None:
    gold = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 1], [1, 0, 0]], bool)
    probabilities = np.array([[0.9, 0.1, 0.8], [0.8, 0.2, 0.3], [0.9, 0.1, 0.4], [0.7, 0.3, 0.6]])
    scores = multilabel_scores(gold, probabilities > 0.5, probabilities, ["x", "y", "z"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scores["macro_f1"].value == sklearn.f1_score(gold, probabilities > 0.5, average="macro")
    assert scores["macro_f1"].note.startswith('"y" counts as 0')
    assert scores["auroc"].value == sklearn.roc_auc_score(gold[:, 2], probabilities[:, 2])
    assert scores["auroc"].note == 'mean over 1 of 3 classes, without "y", "x"'
    nothing = multilabel_scores(np.zeros((2, 3), bool), np.zeros((2, 3), bool), np.zeros((2, 3)), ["x", "y", "z"])
    assert nothing["micro_f1"].value == 0 and nothing["auroc"].value is None and nothing["auprc"].note
    assert nothing["subset_accuracy"].value == 1


@pytest.mark.parametrize("resamples", [0, 20])
def test_one_record_has_values_and_no_interval(resamples: int) -> None:
    scores = classification_scores(np.array([1]), np.array([1]), np.array([[0.1, 0.9]]), ["no", "yes"], resamples)
    assert scores["accuracy"].value == 1 and scores["f1"].value == 1
    assert all(metric.low is None and metric.high is None for metric in scores.values())
    assert scores["auroc"].value is None and scores["auroc"].note


def test_no_records_give_no_values_under_the_same_names() -> None:
    none = np.zeros(0, int)
    for names in (["no", "yes"], NAMES):
        scores = classification_scores(none, none, np.zeros((0, len(names))), names, resamples=10)
        some = classification_scores(*outputs(0, 20, len(names)), names)
        assert list(scores) == list(some)
        assert {metric.note for metric in scores.values()} == {"there are no records"}
        assert {metric.value for metric in scores.values()} == {None}
    empty = np.zeros((0, 5))
    several = multilabel_scores(empty.astype(bool), empty.astype(bool), empty, NAMES, resamples=10)
    assert {metric.value for metric in several.values()} == {None}
    assert choice_scores(none, none, 4)["accuracy"].value is None


def test_row82_every_record_counts() -> None:
    gold, predicted = np.array([0, 1, 0, 1, 0, 1, 1]), np.array([0, 1, 0, 1, 0, 1, 0])
    scores = classification_scores(gold, predicted, np.eye(2)[predicted], ["no", "yes"])
    assert scores["accuracy"].value == pytest.approx(6 / 7)
    assert confusion(gold, predicted, 2).sum() == 7


def test_predictions_that_are_no_numbers_are_refused_with_their_place() -> None:
    probabilities = np.full((4, 2), 0.5)
    probabilities[2, 0] = np.nan
    gold = np.array([0, 1, 0, 1])
    with pytest.raises(TrainingError, match=r"1 of 4 records, the first of them record 2 .*learning rate"):
        classification_scores(gold, gold, probabilities, ["no", "yes"])
    with pytest.raises(TrainingError):
        multilabel_scores(np.eye(2)[gold], np.eye(2)[gold], probabilities, ["no", "yes"])


def test_classes_out_of_range_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="numbered from 0 to 1, not 0 to 2"):
        confusion(np.array([0, 2]), np.array([0, 1]), 2)
    with pytest.raises(ValueError, match="not \\[records\\] both"):
        choice_scores(np.array([0, 1]), np.array([0]), 2)
    with pytest.raises(ValueError, match="probabilities are"):
        classification_scores(np.array([0]), np.array([0]), np.zeros((1, 3)), ["no", "yes"])


def test_choices_and_the_confusion_matrix_are_counted_as_by_scikit_learn() -> None:
    gold, predicted, _ = outputs(5, 300, 4)
    scores = choice_scores(gold, predicted, 4, resamples=200)
    assert scores["accuracy"].value == sklearn.accuracy_score(gold, predicted)
    assert scores["accuracy"].low < scores["accuracy"].value < scores["accuracy"].high
    assert (confusion(gold, predicted, 4) == sklearn.confusion_matrix(gold, predicted, labels=range(4))).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_intervals_are_those_of_scikit_learn_on_drawn_records(classes: int) -> None:
    """The ends agree with 400 plain resamples through the library, up to the noise of 400 draws."""
    gold, predicted, probabilities = outputs(7, 150, classes)
    scores = classification_scores(gold, predicted, probabilities, NAMES[:classes], resamples=2000)
    generator = np.random.default_rng(99)
    drawn: dict[str, list[float]] = {name: [] for name in scores}
    for _ in range(400):
        chosen = generator.integers(0, 150, 150)
        g, p, q = gold[chosen], predicted[chosen], probabilities[chosen]
        drawn["accuracy"].append(sklearn.accuracy_score(g, p))
        drawn["macro_f1"].append(sklearn.f1_score(g, p, average="macro"))
        drawn["matthews"].append(sklearn.matthews_corrcoef(g, p))
        if classes == 2:
            drawn["f1"].append(sklearn.f1_score(g, p))
        one_hot = np.eye(classes)[g] if classes > 2 else g
        known = q if classes > 2 else q[:, 1]
        drawn["auroc"].append(sklearn.roc_auc_score(one_hot, known))
        drawn["auprc"].append(sklearn.average_precision_score(one_hot, known))
    for name, metric in scores.items():
        low, high = np.quantile(drawn[name], [0.025, 0.975])
        noise = 0.2 * (high - low)
        assert metric.low == pytest.approx(low, abs=noise), name
        assert metric.high == pytest.approx(high, abs=noise), name
