import warnings

import numpy as np
import pytest

from seqbert.tasks.metrics import is_span_scheme, span_report, spans_of, tagging_scores

IOBES = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC", "B-A-B", "I-A-B"]


def sentences(seed: int, labels: list[str], count: int = 200) -> list[list[str]]:
    generator = np.random.default_rng(seed)
    return [list(generator.choice(labels, generator.integers(0, 12))) for _ in range(count)]


def altered(gold: list[list[str]], labels: list[str], share: float = 0.3) -> list[list[str]]:
    generator = np.random.default_rng(17)
    return [[str(generator.choice(labels)) if generator.random() < share else tag for tag in row] for row in gold]


@pytest.mark.parametrize("labels", [IOBES[:3], IOBES], ids=["BIO", "IOBES"])
def test_spans_are_those_of_seqeval(labels: list[str]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for tags in sentences(1, labels, 500):
        assert spans_of(tags) == [(kind, start, last + 1) for kind, start, last in seqeval.get_entities(tags)]


@pytest.mark.filterwarnings("ignore")
def test_span_scores_are_those_of_seqeval() -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    gold = sentences(2, IOBES)
    predicted = altered(gold, IOBES)
    scores = tagging_scores(gold, predicted)
    assert scores["span_precision"].value == pytest.approx(seqeval.precision_score(gold, predicted))
    assert scores["span_recall"].value == pytest.approx(seqeval.recall_score(gold, predicted))
    assert scores["span_f1"].value == pytest.approx(seqeval.f1_score(gold, predicted))
    reference = seqeval.classification_report(gold, predicted, output_dict=True)
    for kind, row in span_report(gold, predicted).items():
        assert row["precision"] == pytest.approx(reference[kind]["precision"])
        assert row["recall"] == pytest.approx(reference[kind]["recall"])
        assert row["f1"] == pytest.approx(reference[kind]["f1-score"])
        assert row["support"] == reference[kind]["support"]


def test_bilou_spells_the_same_spans_as_iobes() -> None:
    bilou = ["B-X", "I-X", "L-X", "U-X", "U-Y", "L-Y", "O"]
    iobes = [tag.replace("L-", "E-").replace("U-", "S-") for tag in bilou]
    assert spans_of(bilou) == spans_of(iobes) == [("X", 0, 3), ("X", 3, 4), ("Y", 4, 5), ("Y", 5, 6)]


def test_an_inside_without_a_beginning_begins_a_span_as_in_conlleval() -> None:
    assert spans_of(["O", "I-PER", "I-LOC", "I-LOC", "B-LOC"]) == [("PER", 1, 2), ("LOC", 2, 4), ("LOC", 4, 5)]


def test_words_are_measured_as_by_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    gold = sentences(3, ["NOUN", "VERB", "ADJ", "X"])
    predicted = altered(gold, ["NOUN", "VERB", "ADJ", "PUNCT"])
    flat_gold, flat = [tag for row in gold for tag in row], [tag for row in predicted for tag in row]
    scores = tagging_scores(gold, predicted)
    assert scores["accuracy"].value == pytest.approx(sklearn.accuracy_score(flat_gold, flat))
    assert scores["macro_f1"].value == pytest.approx(sklearn.f1_score(flat_gold, flat, average="macro"))


def test_row45_a_type_that_is_only_predicted_has_precision_0_and_a_row() -> None:
    gold, predicted = [["O", "O", "O"]], [["O", "B-X", "O"]]
    assert span_report(gold, predicted)["X"] == {
        "precision": 0.0,
        "recall": None,
        "f1": 0.0,
        "support": 0,
        "predicted": 1,
    }
    scores = tagging_scores(gold, predicted)
    assert scores["span_precision"].value == 0.0 and not scores["span_precision"].note
    assert scores["span_recall"].value == 0.0
    assert scores["span_recall"].note == "0 by convention: there is no span to find"
    assert scores["span_f1"].value == 0.0


@pytest.mark.parametrize("labels", [["NOUN", "VERB"], ["I", "B"], ["B-X", "NOUN"], ["O"], ["B-"], ["S-X", "O"], []])
def test_row45_labels_that_spell_no_spans_are_measured_by_word_and_kept_whole(labels: list[str]) -> None:
    assert not is_span_scheme(labels)
    assert list(tagging_scores([labels], [labels])) == ["accuracy", "macro_f1"]


@pytest.mark.parametrize("labels", [["O", "B-PER"], ["I-x", "O"], ["B-a", "L-a", "U-b"], ["B-A-B", "I-A-B"]])
def test_labels_that_spell_spans_are_known(labels: list[str]) -> None:
    assert is_span_scheme(labels)


def test_sentences_without_any_span_have_span_scores_where_the_task_has_spans() -> None:
    scores = tagging_scores([["O", "O"]], [["O", "O"]], labels=["O", "B-X", "I-X"])
    assert scores["accuracy"].value == 1
    assert scores["span_f1"].value == 0
    assert scores["span_f1"].note == "0 by convention: there is no span, and none is predicted"
    assert "span_f1" not in tagging_scores([["O", "O"]], [["O", "O"]])


def test_no_sentences_and_empty_ones_give_no_values() -> None:
    for rows in ([], [[]], [[], []]):
        scores = tagging_scores(rows, rows, resamples=10)
        assert {(metric.value, metric.note) for metric in scores.values()} == {(None, "there are no labelled words")}
        assert span_report(rows, rows) == {}


def test_empty_sentences_change_nothing() -> None:
    gold, predicted = [["A", "B"], ["A"]], [["A", "A"], ["A"]]
    scores, with_empty = tagging_scores(gold, predicted), tagging_scores([[], *gold], [[], *predicted])
    assert scores == with_empty


def test_a_sentence_with_too_few_predictions_is_refused() -> None:
    with pytest.raises(ValueError, match="sentence 1 has 2 true labels and 1 predicted ones"):
        tagging_scores([["A"], ["A", "B"]], [["A"], ["A"]])
    with pytest.raises(ValueError, match="sentence 0"):
        span_report([["O"]], [[]])


def test_the_interval_draws_sentences_and_not_words() -> None:
    """All words of a sentence right or all wrong: the spread is that of 100 sentences, not of 2,000 words."""
    gold = [["A"] * 20] * 100
    predicted = [["A"] * 20] * 50 + [["B"] * 20] * 50
    metric = tagging_scores(gold, predicted, resamples=1000)["accuracy"]
    error = 1.96 * np.sqrt(0.25 / 100)
    assert metric.low == pytest.approx(0.5 - error, abs=0.02)
    assert metric.high == pytest.approx(0.5 + error, abs=0.02)


def test_intervals_of_span_scores_are_those_of_seqeval_on_drawn_sentences() -> None:
    """The ends agree with 200 plain resamples through the library, up to the noise of 200 draws."""
    seqeval = pytest.importorskip("seqeval.metrics")
    gold = sentences(4, IOBES[:3], 60)
    predicted = altered(gold, IOBES[:3])
    metric = tagging_scores(gold, predicted, resamples=2000)["span_f1"]
    generator = np.random.default_rng(99)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(200):
            chosen = generator.integers(0, 60, 60)
            drawn.append(seqeval.f1_score([gold[i] for i in chosen], [predicted[i] for i in chosen]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert metric.low == pytest.approx(low, abs=0.25 * (high - low))
    assert metric.high == pytest.approx(high, abs=0.25 * (high - low))
