"""Figures by group: what documents come to in the data report, and what an evaluation finds of each."""

import math

import numpy as np
import pytest
import torch
from letters import GroupedLetters, Letters, build, source_of, write_documents
from torch.nn import functional as F

from seqbert.data.corpus import VALIDATION
from seqbert.data.group_figures import Grouping
from seqbert.data.packing import split
from seqbert.models.config import EncoderConfig
from seqbert.models.losses import cross_entropy
from seqbert.models.model import Model
from seqbert.objectives import Objective, ObjectiveConfig
from seqbert.training.device import Device
from seqbert.training.evaluation import evaluate, reported

CPU = Device(torch.device("cpu"), bf16=False, micro_tokens=300)


class TwoLetters(GroupedLetters):
    """In the group y nobody knows where words end, and every letter stands for two symbols."""

    def separates_words(self, group: str) -> bool:
        return group != "y"

    def symbols(self, text: str) -> int:
        return 2 * len(text)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_documents(folder / "a.letters", 30, seed=1, group="x")
    write_documents(folder / "b.letters", 12, seed=2, group="y")
    return build(folder, TwoLetters(), validation=0.3)


def test_the_report_counts_documents_tokens_symbols_and_words_of_each_group(corpus, tmp_path):
    for group, name in (("x", "a"), ("y", "b")):
        text = (tmp_path / "data" / f"{name}.letters").read_text(encoding="utf-8").replace(f"#{group}\n", "")
        letters, words = len("".join(text.split())), len(text.split())
        row = corpus.report["groups"][group]
        assert row["documents"] == len(text.strip().split("\n\n"))
        assert (row["tokens"], row["symbols"]) == (letters, 2 * letters)
        assert row["tokens_per_symbol"] == 0.5
        if group == "x":
            assert row["words"] == words
            assert row["tokens_per_word"] == pytest.approx(letters / words, abs=1e-5)
        else:
            assert row["words"] is row["tokens_per_word"] is None


def test_a_domain_without_groups_has_no_such_figures(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_documents(folder / "a.letters", 10)
    corpus = build(folder, Letters())
    assert "groups" not in corpus.report
    assert Grouping.of(corpus, corpus.split(VALIDATION)) is None


def test_an_evaluation_says_of_each_group_what_its_own_targets_cost(corpus):
    config = ObjectiveConfig()
    objective = Objective(config, corpus)
    source = source_of(corpus, config, VALIDATION)
    shape = EncoderConfig(16, 2, 2, 32, max_position_embeddings=64, dropout=0.0, initializer_range=0.4)
    model = Model(shape, {"letters": corpus.vocab_size}, {"letters": objective.config.heads})
    model.initialise(3)
    grouping = Grouping.of(corpus, source.split)
    batches = list(objective.validation(source, 10_000))
    plain = evaluate(model, objective, batches, CPU, corpus.unigram_bits)
    found = evaluate(model, objective, batches, CPU, corpus.unigram_bits, grouping=grouping)
    groups = found.pop("groups")
    assert found == plain  # the same bits, to the last
    assert set(groups) == {"x", "y"}

    names = {row: grouping.names[source.split.group[n]] for n, row in enumerate(source.split.row.tolist())}
    costs: dict[str, list[float]] = {"x": [], "y": []}
    unigram = {"x": 0.0, "y": 0.0}
    with torch.no_grad():
        for batch in (piece for whole in batches for piece in split(whole, 300)):
            target = batch.targets["masked_lm"]
            logits = model.heads["letters"]["masked_lm"](model(batch)[target.index])
            losses = F.cross_entropy(logits, target.labels, reduction="none").tolist()
            for place, loss, label in zip(target.index.tolist(), losses, target.labels.tolist(), strict=True):
                sequence = int((batch.cu_seqlens <= place).sum()) - 1
                name = names[int(batch.record[sequence])]
                costs[name].append(loss)
                unigram[name] += corpus.unigram_bits[label]
    for name, row in groups.items():
        count = len(costs[name])
        assert row["masked_lm_targets"] == count > 10
        assert row["masked_lm_loss"] == pytest.approx(np.mean(costs[name]), rel=1e-5)
        assert row["bits_per_symbol"] == pytest.approx(sum(costs[name]) / math.log(2) / (2 * count), rel=1e-5)
        assert row["unigram_bits_per_symbol"] == pytest.approx(unigram[name] / (2 * count), rel=1e-9)
        assert row["perplexity"] == pytest.approx(math.exp(np.mean(costs[name])), rel=1e-4)
    assert sum(row["masked_lm_targets"] for row in groups.values()) == plain["masked_lm_targets"]
    assert reported(found | {"groups": groups})["groups"]["x"]["masked_lm_targets"] == len(costs["x"])


def test_the_loss_is_the_same_to_the_last_bit_whether_or_not_that_of_each_target_is_kept():
    generator = torch.Generator().manual_seed(0)
    for count, width in ((1, 7), (501, 301), (1000, 5000)):
        logits = torch.randn(count, width, generator=generator) * 3
        labels = torch.randint(width, (count,), generator=generator)
        with torch.no_grad():
            term = cross_entropy(logits, labels)
        assert term.loss.item() == cross_entropy(logits, labels).loss.item()
        assert term.each is not None and term.each.shape == (count,)
        assert term.each.double().sum().item() == pytest.approx(term.loss.item(), rel=1e-5)


def test_documents_of_which_the_end_is_held_out_are_of_their_group_too(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_documents(folder / "a.letters", 1, (60, 60), seed=1, group="x")  # one long document: its end is held out
    write_documents(folder / "b.letters", 30, seed=2, group="y")
    corpus = build(folder, TwoLetters(), validation=0.3)
    assert corpus.report["held_out"]["ends_of_documents"] == 1
    split_ = corpus.split(VALIDATION)
    grouping = Grouping.of(corpus, split_)
    assert np.all(np.diff(grouping.rows) > 0)
    found = {int(row): int(group) for row, group in zip(grouping.rows, grouping.group, strict=True)}
    assert found == {int(row): int(group) for row, group in zip(split_.row, split_.group, strict=True)}
    assert set(found.values()) == {0, 1}
