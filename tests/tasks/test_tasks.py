"""What tasks make of labels, and of a model's outputs."""

import numpy as np
import pytest
import torch
from letters import Letters
from torch.nn import functional as F

from seqbert.data.packing import split
from seqbert.domain import Example
from seqbert.errors import ConfigError, DataError
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model
from seqbert.tasks import Sequencing, build_task
from seqbert.tasks.choice import ChoiceConfig
from seqbert.tasks.classification import ClassificationConfig
from seqbert.tasks.regression import RegressionConfig
from seqbert.tasks.span import SpanConfig
from seqbert.tasks.tagging import TaggingConfig, tokens_of_words

SHAPE = EncoderConfig(16, 2, 2, 32, max_position_embeddings=64, dropout=0.0)


@pytest.fixture
def letters() -> Letters:
    domain = Letters()
    domain.use(domain.tokenizer(iter(()), None))
    return domain


def example(*sequences: str, label=None, name="r", words=None) -> Example:
    return Example(name, sequences, label, f"table:{name}", {}, words)


def model_for(task) -> Model:
    model = Model(SHAPE, {"letters": 15}, {"letters": {task.head: task.outputs_size}})
    model.initialise(3)
    return model.eval()


def outputs(task, source, model, budget=10_000):
    found = [None] * len(source.inputs)
    with torch.no_grad():
        for chosen in source.batcher.all(budget):
            batch = task.batch(source, chosen)
            logits = task.logits(model(batch, task.rows(batch)), batch, model.heads["letters"])
            for number, rows in zip(chosen, task.split_outputs(logits.numpy(), batch), strict=True):
                found[number] = rows
    return found


# Labels


def test_row37_labels_that_training_has_not_seen_are_listed():
    task = build_task(ClassificationConfig())
    task.fit([example("ab", label="a"), example("ab", label="b")])
    unseen = task.unseen([example("ab", label="c"), example("ab", label="c"), example("ab", label="a")])
    assert dict(unseen) == {"c": 2}


def test_labels_are_ordered_by_number_or_alphabet_or_as_declared():
    for found, ordered in ((["10", "9", "-1"], ["-1", "9", "10"]), (["no", "Maybe", "yes"], ["Maybe", "no", "yes"])):
        task = build_task(ClassificationConfig())
        task.fit([example("ab", label=label) for label in found])
        assert task.label_names == ordered
    task = build_task(ClassificationConfig(labels=["yes", "no", "never"]))
    task.fit([example("ab", label="no"), example("ab", label="yes")])
    assert task.label_names == ["yes", "no", "never"]
    with pytest.raises(DataError, match='does not list: "perhaps" \\(1\\)'):
        task.fit([example("ab", label="perhaps")])


def test_one_class_alone_is_nothing_to_learn():
    with pytest.raises(DataError, match="only the class"):
        build_task(ClassificationConfig()).fit([example("ab", label="a")])


@pytest.mark.parametrize("config", [ClassificationConfig, TaggingConfig, RegressionConfig, SpanConfig, ChoiceConfig])
def test_a_metric_that_does_not_exist_is_refused_with_those_that_do(config):
    with pytest.raises(ConfigError, match="it is one of"):
        config(metric="accurazy")


def test_class_weights_keep_the_size_of_the_loss(letters):
    rows = [example("ab", label="a")] * 9 + [example("cd", label="b")]
    task = build_task(ClassificationConfig(class_weights="balanced"))
    task.fit(rows)
    task.measure(rows)
    weights = task._class_weights
    assert weights.tolist() == pytest.approx([10 / 18, 10 / 2])  # n / (classes * count), as scikit-learn has it
    source = task.source(rows, letters, Sequencing(16))
    batch = task.batch(source, np.arange(10))
    logits = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(logits, batch.targets["task"].labels, weight=weights, reduction="sum")
    assert torch.allclose(task.loss(logits, batch), expected)


def test_class_weights_for_a_class_that_does_not_exist_are_refused():
    task, rows = build_task(ClassificationConfig(class_weights={"c": 2.0})), [example("a", label=name) for name in "ab"]
    task.fit(rows)
    with pytest.raises(ConfigError, match="weights for c"):
        task.measure(rows)


def test_what_a_run_keeps_of_a_task_brings_the_same_labels_back():
    task = build_task(ClassificationConfig())
    task.fit([example("ab", label="yes"), example("ab", label="no")])
    again = build_task(ClassificationConfig())
    again.restore(task.state())
    assert again.label_names == task.label_names


# Losses do not depend on how a batch is cut


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (ClassificationConfig(label_smoothing=0.1), [(("ab",), "x"), (("cde", "fg"), "y"), (("abcdefg",), "x")]),
        (ClassificationConfig(multilabel=True), [(("ab",), ["x"]), (("cde",), ["x", "y"]), (("abcdefg",), [])]),
        (RegressionConfig(), [(("ab",), 1.0), (("cde",), 3.5), (("abcdefg",), -2.0)]),
        (TaggingConfig(), [(("ab c",), ["x", "y"]), (("cde",), ["x"]), (("ab cd e",), ["y", "y", "x"])]),
        (SpanConfig(), [(("ab", "cdefg"), [(1, 3)]), (("c", "ab"), []), (("ab", "fghij"), [(0, 5)])]),
        (ChoiceConfig(), [(("ab", "c", "de"), 1), (("c", "abc", "d", "e"), 0), (("ab", "fg", "hij"), 1)]),
    ],
    ids=["classification", "multilabel", "regression", "tagging", "span", "choice"],
)
def test_loss_and_gradient_do_not_depend_on_how_a_batch_is_cut(letters, config, rows):
    examples = [example(*texts, label=label, name=str(n)) for n, (texts, label) in enumerate(rows)]
    task = build_task(config)
    task.fit(examples)
    task.measure(examples)
    source = task.source(examples, letters, Sequencing(16))
    model = model_for(task)
    found = []
    for micro_tokens in (10_000, 1):
        model.zero_grad()
        total = 0.0
        for piece in split(task.batch(source, np.arange(len(source.inputs))), micro_tokens):
            terms = task.forward(model(piece, task.rows(piece)), piece, model.heads["letters"])
            terms["task"].loss.backward()
            total += float(terms["task"].loss.detach())
        found.append((total, [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("budget", [1, 9, 10_000])
def test_row82_metrics_count_every_record_whatever_the_batch(letters, budget):
    rows = [example("abcdefghij"[: n + 1], label="xy"[n % 2], name=str(n)) for n in range(7)]
    task = build_task(ClassificationConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    model = model_for(task)
    predictions = task.predict(source, outputs(task, source, model, budget))
    assert [prediction.id for prediction in predictions] == [row.id for row in rows]
    whole = task.predict(source, outputs(task, source, model))
    assert [p.value for p in predictions] == [p.value for p in whole]
    assert np.allclose([p.logits for p in predictions], [p.logits for p in whole], atol=1e-5)


# Windows come together


def test_the_windows_of_a_record_are_averaged(letters):
    rows = [example("abcdefghij" * 3, label="x"), example("ab", label="y")]
    task = build_task(ClassificationConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(12))
    found = outputs(task, source, model_for(task))
    predictions = task.predict(source, found)
    assert len(found) == 6
    assert np.allclose(predictions[0].logits, np.mean(found[:5], axis=0))


# Regression


def test_row39_whole_numbers_are_numbers_to_regression(letters):
    rows = [example("ab", label=0), example("cd", label=1), example("ef", label=3)]
    task = build_task(RegressionConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    model = model_for(task)
    batch = task.batch(source, np.arange(3))
    task.forward(model(batch, task.rows(batch)), batch, model.heads["letters"])["task"].loss.backward()
    assert batch.targets["task"].labels.dtype == torch.float32
    assert float(batch.targets["task"].labels.mean()) == pytest.approx(0.0, abs=1e-6)


def test_predictions_of_a_regression_are_in_the_unit_of_the_labels(letters):
    rows = [example("ab", label=100.0), example("cd", label=300.0)]
    task = build_task(RegressionConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    values = [prediction.value for prediction in task.predict(source, [np.array([-1.0]), np.array([0.5])])]
    assert values == [100.0, 250.0]


# Tagging


def test_row43_a_word_of_several_pieces_is_learned_and_scored_by_its_first(letters):
    rows = [example("abc de", label=["B-ORG", "O"])]  # a token a letter: three pieces, then two
    task = build_task(TaggingConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    target = task.batch(source, np.array([0])).targets["task"]
    assert target.index.tolist() == [1, 4]
    assert [task.labels[label] for label in target.labels] == ["B-ORG", "O"]


def test_row44_all_words_of_a_long_sentence_are_scored(letters):
    words = 40
    rows = [example(" ".join(["a", "b"] * (words // 2)), label=["x", "y"] * (words // 2))]
    task = build_task(TaggingConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    assert len(source.inputs) > 3
    (prediction,) = task.predict(source, outputs(task, source, model_for(task)))
    assert len(prediction.value) == words
    targets = [task.batch(source, np.array([n])).targets["task"] for n in range(len(source.inputs))]
    assert sum(len(target.index) for target in targets) == words  # in overlapping windows each word counts once


def test_a_word_without_a_token_gets_the_most_frequent_label(letters):
    words = np.array([[0, 2], [2, 2], [3, 5]])
    rows = [example("ab cd", label=["x", "y", "x"], words=words)]
    task = build_task(TaggingConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    (prediction,) = task.predict(source, outputs(task, source, model_for(task)))
    assert len(prediction.value) == 3 and prediction.value[1] == "x"


def test_overlapping_tokens_speak_for_the_symbol_they_begin_with():
    words = np.array([[n, n + 1] for n in range(5)])
    kmers = np.array([[0, 3], [1, 4], [2, 5]])
    assert tokens_of_words(words, kmers).tolist() == [0, 1, 2, 2, 2]


# Spans


def span_task(letters, rows, **config):
    task = build_task(SpanConfig(**config))
    task.fit(rows)
    task.measure(rows)
    return task, task.source(rows, letters, Sequencing(32))


def test_row48_the_gold_span_is_where_the_answer_stands_in_the_packed_sequence(letters):
    rows = [example("ab", "cde fgh", label=[(4, 6)]), example("abcd", "cde fgh", label=[(4, 6)])]
    task, source = span_task(letters, rows)
    for number in range(2):
        batch = task.batch(source, np.array([number]))
        first, last = batch.targets["task"].labels[0].tolist()
        assert [letters.vocabulary.id_to_token(int(i)) for i in batch.ids[first : last + 1]] == ["f", "g"]


def test_row49_a_blank_context_or_question_gets_an_empty_answer_and_a_score(letters):
    rows = [example("ab", " ", label=[]), example("", "cde", label=[(0, 1)]), example("", "", label=[])]
    task, source = span_task(letters, rows)
    predictions = task.predict(source, outputs(task, source, model_for(task)))
    assert [prediction.id for prediction in predictions] == ["r"] * 3
    assert predictions[0].value == predictions[2].value == ""
    assert all(any(answer["text"] == "" for answer in p.details["n_best"]) for p in predictions)
    assert task.scores(source, predictions)["exact_match"].value is not None


def test_row50_every_answer_is_the_text_at_its_place(letters):
    context = "cde  fgh  ij  ab"
    rows = [example("ab", context, label=[(5, 8)])]
    task, source = span_task(letters, rows)
    (prediction,) = task.predict(source, outputs(task, source, model_for(task)))
    for answer in prediction.details["n_best"]:
        assert context[answer["start"] : answer["end"]] == answer["text"]
        assert answer["text"] == answer["text"].strip()
    assert len(prediction.details["n_best"]) > 5


def test_no_answer_wins_where_it_is_likelier_by_more_than_the_threshold(letters):
    rows = [example("a", "bc", label=[(0, 1)]), example("a", "bc", label=[])]
    task, source = span_task(letters, rows, threshold=1.0)
    logits = np.zeros((6, 2))  # [CLS] a [SEP] b c [SEP]
    logits[3] = 2.0
    for null, answer in ((2.4, "b"), (2.6, "")):
        logits[0] = null
        assert task.predict(source, [logits, logits])[0].value == answer


def test_the_threshold_is_what_gives_the_best_f1_on_validation(letters):
    rows = [example("a", "bc", label=[(0, 1)], name="0"), example("a", "bc", label=[], name="1")]
    task, source = span_task(letters, rows)
    answered, silent = np.zeros((6, 2)), np.zeros((6, 2))
    answered[3] = silent[3] = 2.0
    answered[0], silent[0] = 2.5, 3.5
    before = task.predict(source, [answered, silent])
    assert [p.value for p in before] == ["", ""]
    after = task.calibrate(source, before)
    assert [p.value for p in after] == ["b", ""]
    assert 1.0 < task.threshold < 3.0
    assert task.scores(source, after)["f1"].value == 1.0


def test_the_best_answer_of_all_windows_is_given(letters):
    rows = [example("a", "b" * 20 + "cd" + "b" * 20, label=[(20, 22)])]
    task = build_task(SpanConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16, stride=4))
    found = []
    for parts, length in zip(source.inputs.parts.tolist(), source.inputs.lengths, strict=True):
        logits = np.zeros((length, 2))
        base = parts[0][2] - parts[0][1] + 2 - parts[1][1]
        for side, place in enumerate((20, 21)):
            if parts[1][1] <= place < parts[1][2]:
                logits[place + base, side] = 5.0
        found.append(logits)
    (prediction,) = task.predict(source, found)
    assert prediction.value == "cd"
    assert prediction.details["n_best"][0]["start"] == 20


# Choices


def test_records_may_have_different_numbers_of_choices(letters):
    rows = [example("ab", "c", "d", label=1, name="0"), example("ab", "c", "d", "e", label=2, name="1")]
    task = build_task(ChoiceConfig())
    task.fit(rows)
    task.measure(rows)
    source = task.source(rows, letters, Sequencing(16))
    batch = task.batch(source, np.arange(5))
    logits = torch.tensor([[0.0], [1.0], [0.0], [0.0], [2.0]])
    expected = -(F.log_softmax(torch.tensor([0.0, 1.0]), -1)[1] + F.log_softmax(torch.tensor([0.0, 0.0, 2.0]), -1)[2])
    assert float(task.loss(logits, batch)) == pytest.approx(float(expected))
    predictions = task.predict(source, list(logits.numpy()))
    assert [prediction.value for prediction in predictions] == [1, 2]
