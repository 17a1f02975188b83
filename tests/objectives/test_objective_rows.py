"""The last block runs on the tokens that are asked about alone, and nothing of the loss shows it."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqbert.data.packing import PackedBatch, Target, pack
from seqbert.models.config import ModelConfig
from seqbert.models.model import Model
from seqbert.objectives import Objective
from seqbert.objectives.objective import ObjectiveConfig

WORDS = 60


def objective(pair: str) -> Objective:
    ordinary = np.arange(WORDS) > 4
    corpus = SimpleNamespace(
        domain="text",
        unit="token",
        special_mask=~ordinary,
        ordinary_ids=np.flatnonzero(ordinary),
        special_ids={"[MASK]": 4},
        symbols=ordinary.astype(np.float32),
        overlap=0,
    )
    return Objective(ObjectiveConfig(pair=cast(Any, pair)), cast(Any, corpus))


def batch_of(pair: str, targets: int) -> PackedBatch:
    random = np.random.default_rng(0)
    batch = pack("text", [random.integers(5, WORDS, length) for length in (3, 9, 9, 20)])
    index = np.sort(random.permutation(batch.tokens)[:targets])
    batch.targets["masked_lm"] = Target(torch.from_numpy(index), torch.from_numpy(random.integers(5, WORDS, targets)))
    if pair != "none":
        batch.targets[pair] = Target(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]), of_sequences=True)
    return batch


@pytest.mark.parametrize("preset", ["bert-tiny", "modern-tiny"])
@pytest.mark.parametrize("targets", [0, 1, 7])
@pytest.mark.parametrize("pair", ["none", "next_sentence"])
def test_loss_and_gradients_are_those_of_all_tokens_with_pytorchs_cross_entropy(
    pair: str, targets: int, preset: str
) -> None:
    made, batch = objective(pair), batch_of(pair, targets)
    model = Model(ModelConfig(preset, dropout=0.0).resolve(), {"text": WORDS}, {"text": made.config.heads}).double()
    model.initialise(seed=0)
    heads = cast(Any, model.heads["text"])

    terms = made.forward(model(batch, made.rows(batch)), batch, heads)
    loss = sum(term.loss for term in terms.values())
    ours = torch.autograd.grad(cast(Any, loss), list(model.parameters()))

    hidden, wanted = model(batch), batch.targets["masked_lm"]
    losses = {"masked_lm": F.cross_entropy(heads["masked_lm"](hidden[wanted.index]), wanted.labels, reduction="sum")}
    if pair != "none":
        asked = batch.targets[pair]
        logits = heads["pair"](hidden[batch.cu_seqlens[asked.index].long()])
        losses[pair] = F.cross_entropy(logits, asked.labels, reduction="sum")
    theirs = torch.autograd.grad(sum(losses.values()), list(model.parameters()))

    for name, expected in losses.items():
        torch.testing.assert_close(terms[name].loss, expected, rtol=1e-9, atol=1e-9)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-7, atol=1e-9)

    with torch.no_grad():
        measured = made.forward(model(batch, made.rows(batch)), batch, heads)
    for name, expected in losses.items():
        torch.testing.assert_close(measured[name].loss, expected.detach(), rtol=1e-9, atol=1e-9)
