"""Pretraining steps of a static shape: what they compute, and that a compiled one is compiled once."""

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from letters import build, objective_and_source, write_documents
from ranks import rows
from runs import settings, write_fasta

import seqbert
from seqbert.data.packing import PackedBatch
from seqbert.data.static import cut
from seqbert.models import encoder
from seqbert.models.config import PRESETS, EncoderConfig
from seqbert.models.model import Model
from seqbert.objectives import Objective, ObjectiveConfig
from seqbert.objectives.causal_lm import CausalLMConfig
from seqbert.objectives.masked_lm import MaskedLMConfig
from seqbert.training import loop
from seqbert.training.device import Device, RunConfig

CPU = torch.device("cpu")

BERT = EncoderConfig(32, 2, 2, 48, max_position_embeddings=32, dropout=0.0)
MODERN = dataclasses.replace(
    PRESETS["modern-tiny"],
    hidden_size=32,
    num_attention_heads=2,
    num_hidden_layers=3,
    intermediate_size=48,
    attention_window=5,
)
ESM = dataclasses.replace(BERT, position="rotary", norm_first=True, type_vocab_size=0, token_dropout=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("letters")
    write_documents(folder / "a.letters", documents=300)
    return build(folder)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Graphs are made as on a GPU, forward and backward, but not turned into machine code, which takes minutes."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    with torch._dynamo.config.patch(error_on_recompile=False):
        yield
    torch._dynamo.reset()


def model_of(config: EncoderConfig, heads: tuple[str, ...] = ("masked_lm", "pair")) -> Model:
    model = Model(config, {"letters": 15}, {"letters": heads}, mask_ids={"letters": 4})
    model.initialise(0)
    return model.train()


def gradients(model: Model, objective: Objective, pieces: list[PackedBatch], step: Any = None) -> list[torch.Tensor]:
    """Losses of all terms, and the gradient of every weight."""
    model.zero_grad(set_to_none=True)
    total: dict[str, torch.Tensor] = {}
    for piece in pieces:
        terms = (step or functools.partial(through, model, objective))(piece)
        sum(term.loss for term in terms.values()).backward()
        for name, term in terms.items():
            total[name] = total.get(name, torch.zeros(())) + term.loss.detach()
    return [*total.values(), *(parameter.grad for parameter in model.parameters())]


def through(model: Model, objective: Objective, piece: PackedBatch, terms: Any = None) -> Any:
    heads = model.heads[piece.vocabulary]
    return (terms or loop._terms)(objective, model(piece, objective.rows(piece)), piece, heads)


def compiled(device: Device, model: Model, objective: Objective) -> Any:
    """The step of a model, compiled as the loop does it."""
    model = device.place(model)
    model.encoder.through = device.compiled(encoder.through)
    return functools.partial(through, model, objective, terms=device.compiled(loop._terms))


OBJECTIVES = {
    "masked_lm": ObjectiveConfig(masked_lm=MaskedLMConfig(z_loss=1e-2), pair="next_sentence"),
    "words": ObjectiveConfig(masked_lm=MaskedLMConfig(unit="word", probability=0.3), pair="sentence_order"),
    "causal_lm": ObjectiveConfig(masked_lm=None, causal_lm=CausalLMConfig(), pair="next_sentence"),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("config", [BERT, MODERN, ESM], ids=["bert", "modern", "esm"])
def test_losses_and_gradients_of_a_static_shape_are_those_of_the_batch(corpus, name: str, config) -> None:
    objective, source = objective_and_source(corpus, OBJECTIVES[name], tokens_per_step=1024)
    model = model_of(dataclasses.replace(config, causal=name == "causal_lm"))
    batch = objective.examples(source, 3)
    expected = gradients(model, objective, [batch])
    for micro_tokens in (1024, 300):
        pieces = cut(batch, objective.shape(source, 3, micro_tokens))
        assert {piece.tokens for piece in pieces} != {batch.tokens}
        for found, right in zip(gradients(model, objective, pieces), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6 * float(right.abs().max()) + 1e-6)


def test_the_tail_has_no_influence_whatever_stands_in_it(corpus) -> None:
    objective, source = objective_and_source(corpus, OBJECTIVES["masked_lm"], tokens_per_step=1024)
    model = model_of(BERT)
    batch = objective.examples(source, 0)
    (piece,) = cut(batch, objective.shape(source, 0, 1024))
    expected = gradients(model, objective, [piece])
    ids = piece.ids.clone()
    ids[batch.tokens :] = 7
    changed = gradients(model, objective, [dataclasses.replace(piece, ids=ids)])
    assert all(torch.equal(found, right) for found, right in zip(changed, expected, strict=True))


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("probability", [0.15, 0.3])
def test_lists_of_targets_have_room_for_every_step(corpus, unit: str, probability: float) -> None:
    masked_lm = MaskedLMConfig(unit=unit, probability=probability)
    objective, source = objective_and_source(corpus, ObjectiveConfig(masked_lm=masked_lm), tokens_per_step=2048)
    for step in range(60):
        assert len(cut(objective.examples(source, step), objective.shape(source, step, 2048))) == 1


def test_row75_a_step_is_compiled_once_for_each_vocabulary_and_never_for_a_length(corpus, traced) -> None:
    from torch._dynamo.utils import counters

    objective, source = objective_and_source(corpus, ObjectiveConfig(), tokens_per_step=256)
    model = model_of(BERT, ("masked_lm",))
    device = Device.of(RunConfig(device="cpu", compile=True))
    step = compiled(device, model, objective)
    counters.clear()
    lengths = set()
    for number in range(200):
        batch = objective.examples(source, number)
        lengths.add(batch.lengths)
        for piece in cut(batch, objective.shape(source, number, 256)):
            sum(term.loss for term in step(piece).values()).backward()
        if number == 0:
            torch._dynamo.config.error_on_recompile = True
    assert len(lengths) > 150
    assert counters["stats"]["unique_graphs"] == 4  # embeddings, blocks, the last block for the targets' rows, the head
    assert not counters["graph_break"]


@pytest.mark.parametrize(
    ("config", "recomputes"),
    [
        pytest.param(BERT, False, id="bert", marks=pytest.mark.slow),
        pytest.param(MODERN, True, id="modern, recomputed"),
        pytest.param(ESM, False, id="esm", marks=pytest.mark.slow),
    ],
)
def test_a_compiled_step_has_the_losses_and_gradients_of_one_that_is_not(
    corpus, traced, config, recomputes: bool
) -> None:
    objective, source = objective_and_source(corpus, OBJECTIVES["masked_lm"], tokens_per_step=512)
    model = model_of(config)
    pieces = cut(objective.examples(source, 0), objective.shape(source, 0, 300))
    expected = gradients(model, objective, pieces)
    device = Device.of(RunConfig(device="cpu", compile=True, activation_checkpointing=recomputes))
    step = compiled(device, model, objective)
    for found, right in zip(gradients(model, objective, pieces, step), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * float(right.abs().max()) + 1e-6)


@pytest.mark.slow
def test_dropout_in_a_compiled_step_follows_the_seed(corpus, traced) -> None:
    objective, source = objective_and_source(corpus, OBJECTIVES["masked_lm"], tokens_per_step=512)
    model = model_of(dataclasses.replace(BERT, dropout=0.1))
    device = Device.of(RunConfig(device="cpu", compile=True))
    step = compiled(device, model, objective)
    pieces = cut(objective.examples(source, 0), objective.shape(source, 0, 512))
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(gradients(model, objective, pieces, step))
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[1], strict=True))
    assert not torch.equal(found[0][0], found[2][0])


def test_a_compiled_run_of_two_domains_has_the_losses_of_one_that_is_not(tmp_path: Path, traced) -> None:
    domains = {"dna": {"data": [str(write_fasta(tmp_path / "dna"))], "validation": 0.1, "weight": 0.4}}
    changes: dict[str, Any] = {
        "domains": domains,
        "model": {"dropout": 0.0, "num_hidden_layers": 2},
        "training": {"steps": 3},
    }
    found = []
    for compiled in (False, True):
        output, run = str(tmp_path / f"compiled {compiled}"), {"compile": compiled, "micro_tokens": 200}
        found.append(rows(seqbert.pretrain(settings(tmp_path, output=output, run=run, **changes)).folder))
    lines = (tmp_path / "compiled True" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    graphs = [row["graphs"] for row in map(json.loads, lines) if "graphs" in row]
    assert len(graphs) == 3 and len(set(graphs)) == 1  # none after the first step
    for plain, static in zip(*found, strict=True):
        if "loss" in plain:
            assert static["loss"] == pytest.approx(plain["loss"], rel=1e-5)
            assert static["gradient_norm"] == pytest.approx(plain["gradient_norm"], rel=1e-4)
            assert static["tokens"] == plain["tokens"]
