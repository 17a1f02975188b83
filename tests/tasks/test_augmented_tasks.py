"""Variants of labelled sequences: what training is given, and what stands for all of them at prediction."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from strands import FIRST, Strands, mirrored

from domains.dna import DNA, reverse_complement
from seqbert.data.augmenting import chosen_augmentations, in_turn, places_after
from seqbert.data.packing import Share
from seqbert.domain import Augmentation, Example
from seqbert.errors import ConfigError, DomainError
from seqbert.models.config import EncoderConfig
from seqbert.models.model import Model
from seqbert.tasks import Sequencing, build_task
from seqbert.tasks.choice import ChoiceConfig
from seqbert.tasks.classification import ClassificationConfig
from seqbert.tasks.regression import RegressionConfig
from seqbert.tasks.span import SpanConfig
from seqbert.tasks.tagging import TaggingConfig
from seqbert.training.device import Device
from seqbert.training.evaluation import averaged_outputs, task_outputs

SHAPE = EncoderConfig(16, 2, 2, 32, max_position_embeddings=64, dropout=0.0, initializer_range=0.4)
CPU = Device(torch.device("cpu"), bf16=False, micro_tokens=100)


@pytest.fixture
def strands() -> Strands:
    domain = Strands()
    domain.use(domain.tokenizer(iter(()), None))
    return domain


@pytest.fixture
def mirror(strands) -> Augmentation:
    return strands.augmentations()["mirror"]


def example(*sequences: str, label=None, name="r") -> Example:
    return Example(name, sequences, label, f"table:{name}")


def words(seed: int, count: int, length: int = 9) -> list[str]:
    draw = np.random.default_rng(seed)
    return ["".join(draw.choice(list("abcdefghij"), length)) for _ in range(count)]


def spelled(batch) -> list[str]:
    """The letters of each sequence, with | for special tokens."""
    text = "".join("|" if number < FIRST else "abcdefghij"[number - FIRST] for number in batch.ids.tolist())
    edges = batch.cu_seqlens.tolist()
    return [text[low:high] for low, high in pairwise(edges)]


def fitted(config, rows: list[Example]):
    task = build_task(config)
    task.fit(rows)
    task.measure(rows)
    return task


def model_for(task) -> Model:
    model = Model(SHAPE, {"strands": 15}, {"strands": {task.head: task.outputs_size}})
    model.initialise(3)
    return model.eval()


def predictions(
    task, rows: list[Example], domain: Strands, augmentation: Augmentation | None, model: Model | None = None
):
    source = task.source(rows, domain, Sequencing(24))
    outputs, loss = averaged_outputs(model or model_for(task), task, source, CPU, augmentation=augmentation)
    return task.predict(source, outputs), loss


# Which are meant


def test_an_augmentation_that_the_domain_does_not_have_is_refused_with_those_that_it_has(strands):
    with pytest.raises(ConfigError, match=r'domain.augment names "miror".*it has mirror, shift, drop.*mirror'):
        chosen_augmentations(strands, ["miror"], "domain.augment")
    with pytest.raises(ConfigError, match="twice"):
        chosen_augmentations(strands, ["mirror", "mirror"], "domain.average")


def test_several_augmentations_have_every_combination_of_their_variants(strands):
    both = in_turn(chosen_augmentations(strands, ["mirror", "shift"], "domain.augment"))
    assert both is not None and both.variants == 20
    ids = np.array([5, 6, 9])
    found = {tuple(both.change(ids, None, variant)[0].tolist()) for variant in range(20)}
    assert len(found) == 20
    assert both.change(ids, None, 0)[0].tolist() == ids.tolist()
    assert both.change(ids, None, 1)[1].tolist() == [2, 1, 0]
    assert pickle.loads(pickle.dumps(both)).change(ids, None, 3)[0].tolist() == both.change(ids, None, 3)[0].tolist()


# Training


@pytest.fixture
def classified(strands, mirror):
    rows = [example(text, label="xy"[n % 2], name=str(n)) for n, text in enumerate(words(0, 40))]
    task = fitted(ClassificationConfig(), rows)
    return task, task.source(rows, strands, Sequencing(24, seed=7, batch_size=8)).augmented(mirror)


def test_a_record_is_given_a_variant_that_is_drawn_anew_in_each_epoch(classified):
    task, source = classified
    texts = [row.sequences[0] for row in source.records.examples]
    drawn = np.full((4, 40), -1)
    for step in range(20):  # 5 steps an epoch
        batch = task.examples(source, step)
        for record, text in zip(batch.record.tolist(), spelled(batch), strict=True):
            plain = texts[record]
            assert text in (f"|{plain}|", f"|{mirrored(plain)}|")
            drawn[step // 5, record] = text != f"|{plain}|"
    assert drawn.min() == 0
    assert 60 < drawn.sum() < 100  # of 160, with even odds
    assert len({tuple(row) for row in drawn.tolist()}) == 4


def test_the_variant_of_a_record_depends_neither_on_ranks_nor_on_the_size_of_a_step(classified):
    task, source = classified
    together = task.examples(source, 3)
    alone = [task.examples(source, 3, Share(rank, 3)) for rank in range(3)]
    assert sorted(spelled(together)) == sorted(text for batch in alone for text in spelled(batch))
    rest = pickle.loads(pickle.dumps(source))
    rest.go_on(2, 16)
    assert spelled(task.examples(rest, 3)) == spelled(together)


def test_both_texts_of_a_pair_and_all_windows_of_a_record_get_one_variant(strands, mirror):
    first, second, *_ = words(1, 2, 12)
    rows = [example(first * 3, second * 3, label=label, name=label) for label in "xy"]
    task = fitted(ClassificationConfig(), rows)
    source = task.source(rows, strands, Sequencing(30, seed=1, batch_size=2)).augmented(mirror)
    assert source.inputs.windowed == 2
    for step in range(6):
        batch = task.examples(source, step)
        for number, text in enumerate(spelled(batch)):
            _, one, two, _ = text.split("|")
            inside = [one in first * 3, two in second * 3]
            assert inside in ([True, True], [False, False])
            if not inside[0]:
                assert mirrored(one) in first * 3 and mirrored(two) in second * 3
            assert batch.segment_ids[batch.cu_seqlens[number]] == 0
            assert batch.segment_ids[batch.cu_seqlens[number + 1] - 1] == 1


def test_the_labels_of_words_move_with_their_tokens(strands, mirror):
    texts = ["ab cde f", "gh ij"]
    rows = [example(texts[0], label=["x", "y", "z"], name="0"), example(texts[1], label=["y", "z"], name="1")]
    task = fitted(TaggingConfig(), rows)
    source = task.source(rows, strands, Sequencing(24)).augmented(mirror, 1)
    batch = task.batch(source, np.array([1, 0]))
    target = batch.targets["task"]
    named = {
        "abcdefghij"[int(batch.ids[place]) - FIRST]: task.labels[label]
        for place, label in zip(target.index.tolist(), target.labels.tolist(), strict=True)
    }
    assert named == {mirrored("g"): "y", mirrored("i"): "z", mirrored("a"): "x", mirrored("c"): "y", mirrored("f"): "z"}


def test_an_answer_that_is_read_from_the_other_end_begins_where_it_ended(strands, mirror):
    rows = [example("ab", "abcdefghij", label=[(2, 5)])]
    task = fitted(SpanConfig(), rows)
    plain = task.source(rows, strands, Sequencing(24))
    start, end = plain.labels.spans[0].tolist()
    batch = task.batch(plain.augmented(mirror, 1), np.array([0]))
    first, last = batch.targets["task"].labels[0].tolist()
    assert (end - start, first, last) == (2, 1 + 2 + 1 + (10 - 5), 1 + 2 + 1 + (10 - 3))
    letters = batch.ids[first : last + 1] - FIRST
    assert "".join("abcdefghij"[i] for i in letters) == mirrored("cde")


def test_of_overlapping_tokens_the_one_that_begins_with_a_base_speaks_for_it_on_either_strand():
    k, text = 3, "ACGGTTACA"
    dna = DNA(DNA.Options(tokens="kmer", k=k))
    dna.use(dna.tokenizer(iter(()), None))
    vocabulary = dna.vocabulary

    def either(ids, units, variant):
        there = [vocabulary.token_to_id(reverse_complement(vocabulary.id_to_token(int(i)))) for i in ids[::-1]]
        return np.array(there), np.arange(len(ids))[::-1]

    rows = [example(text, label=list("abcdefghi"))]
    task = fitted(TaggingConfig(), rows)
    source = task.source(rows, dna, Sequencing(24)).augmented(Augmentation(2, either), 1)
    batch = task.batch(source, np.array([0]))
    target, bases = batch.targets["task"], reverse_complement(text)
    for place, label in zip(target.index.tolist(), target.labels.tolist(), strict=True):
        base = len(text) - 1 - "abcdefghi".index(task.labels[label])  # on the other strand
        assert place == 1 + min(base, len(text) - k)
        assert vocabulary.id_to_token(int(batch.ids[place])) == bases[place - 1 : place - 1 + k]


def test_what_takes_tokens_out_is_refused_where_tokens_have_labels(strands):
    drop = strands.augmentations()["drop"]
    rows = [example("ab cd", label=["x", "y"])]
    task = fitted(TaggingConfig(), rows)
    with pytest.raises(DomainError, match="takes tokens out"):
        task.batch(task.source(rows, strands, Sequencing(24)).augmented(drop, 1), np.array([0]))
    rows = [example("abcd", label=label) for label in "xy"]
    task = fitted(ClassificationConfig(), rows)
    batch = task.batch(task.source(rows, strands, Sequencing(24)).augmented(drop, 1), np.array([0, 1]))
    assert spelled(batch) == ["|abc|", "|abc|"]


def test_places_after_says_where_each_token_went():
    assert places_after(np.array([2, 0, 1])).tolist() == [1, 2, 0]
    for wrong in ([0, 0, 1], [0, 2, 3]):
        with pytest.raises(DomainError):
            places_after(np.array(wrong))


# Prediction


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        (ClassificationConfig(), ["x", "y"]),
        (ClassificationConfig(multilabel=True), [["x"], ["x", "y"]]),
        (RegressionConfig(), [1.5, 4.0]),
        (ChoiceConfig(), [0, 1]),
    ],
    ids=["classification", "multilabel", "regression", "choice"],
)
def test_the_average_over_both_strands_is_the_same_for_either(strands, mirror, config, labels):
    kept, length = (3, 30) if config.name == "choice" else (1, 33)  # longer than a sequence; the windows lie evenly
    texts = zip(words(2, 6, length), words(3, 6), words(4, 6), strict=True)
    rows = [example(*row[:kept], label=labels[n % 2], name=str(n)) for n, row in enumerate(texts)]
    other = [example(*map(mirrored, row.sequences), label=row.label, name=row.id) for row in rows]
    task = fitted(config, rows)
    (one, loss), (two, other_loss) = (predictions(task, part, strands, mirror) for part in (rows, other))
    (plain, _), (plain_other, _) = (predictions(task, part, strands, None) for part in (rows, other))
    for first, second, third, fourth in zip(one, two, plain, plain_other, strict=True):
        np.testing.assert_allclose(first.logits, second.logits, atol=1e-6)
        assert (
            first.value == pytest.approx(second.value)
            if isinstance(first.value, float)
            else first.value == second.value
        )
        assert np.abs(third.logits - fourth.logits).max() > 1e-3  # without, the two strands differ
    if config.name == "classification":
        assert loss == pytest.approx(other_loss, abs=1e-6)


def test_the_average_is_of_probabilities_of_classes_and_of_numbers(strands, mirror):
    rows = [example(text, label=label, name=label) for text, label in zip(words(5, 2), "xy", strict=True)]
    task = fitted(ClassificationConfig(), rows)
    model, source = model_for(task), task.source(rows, strands, Sequencing(24))
    parts = [task.predict(source, task_outputs(model, task, source.augmented(mirror, v), CPU)[0]) for v in (0, 1)]
    found, _ = predictions(task, rows, strands, mirror, model)
    for number, prediction in enumerate(found):
        for label in "xy":
            mean = np.mean([part[number].details["probabilities"][label] for part in parts])
            assert prediction.details["probabilities"][label] == pytest.approx(mean, abs=1e-6)


def test_the_average_of_tags_is_that_of_the_same_words(strands, mirror):
    texts = ["abc de fghij", "ij ab", " ".join(words(6, 9, 5))]  # the last is longer than a sequence
    tags = [["x", "y", "z"], ["x", "y"], list("xyzxyzxyz")]
    rows = [example(text, label=tag, name=str(n)) for n, (text, tag) in enumerate(zip(texts, tags, strict=True))]
    task = fitted(TaggingConfig(), rows)
    model, source = model_for(task), task.source(rows, strands, Sequencing(24))
    plain, back = (task_outputs(model, task, source.augmented(mirror, v), CPU)[0] for v in (0, 1))
    for number, (first, second) in enumerate(zip(plain, back, strict=True)):
        place = source.labels.place[source.labels.starts[number] : source.labels.starts[number + 1]]
        assert len(first) == len(second) == len(place)
        batch = task.batch(source.augmented(mirror, 1), np.array([number]))
        width = batch.tokens
        logits = model.heads["strands"]["tagging"](model(batch)[torch.from_numpy(width - 1 - place)])
        np.testing.assert_allclose(second, logits.detach().numpy(), atol=1e-5)
    found, _ = predictions(task, rows, strands, mirror, model)
    assert [len(one.value) for one in found] == [3, 2, 9]


def test_the_average_of_answers_is_the_same_for_either_strand(strands, mirror):
    context = words(7, 1, 14)[0]
    rows = [example("abc", context, label=[(2, 5)])]
    other = [example(mirrored("abc"), mirrored(context), label=[(9, 12)])]
    task = fitted(SpanConfig(), rows)
    (one, _), (two, _) = (predictions(task, part, strands, mirror) for part in (rows, other))
    best = [sorted(one[0].details["n_best"], key=lambda a: -a["score"])[:5] for one in (one, two)]
    for first, second in zip(*best, strict=True):
        assert first["score"] == pytest.approx(second["score"], abs=1e-5)
        assert (first["start"], first["end"]) == (14 - second["end"], 14 - second["start"])
