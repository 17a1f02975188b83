"""The evaluation passes, for objectives and for tasks: validation during training and the commands alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqbert.data.packing import PackedBatch, split
from seqbert.models.model import Model
from seqbert.objectives import Objective
from seqbert.tasks import Source as TaskSource
from seqbert.tasks import Task
from seqbert.training.device import Device

Metrics = dict[str, float | None]


@torch.no_grad()
def evaluate(
    model: Model,
    objective: Objective,
    batches: Iterable[PackedBatch],
    device: Device,
    unigram_bits: np.ndarray,
) -> Metrics:
    """Metrics over all targets of the batches; sums are kept, not logits.

    Returns:
        For each term its ``_loss`` (nats a target), ``_accuracy`` and ``_targets``; for the token term also
        ``perplexity``, and ``bits_per_symbol`` beside ``unigram_bits_per_symbol`` on the same masks, both None
        where hidden symbols cannot be counted.
    """
    was_training = model.training
    model.eval()
    sums: dict[str, list[float]] = {}
    symbols: float | None = 0.0
    unigram = 0.0
    for batch in (piece for whole in batches for piece in split(whole, device.micro_tokens)):
        target = batch.targets[objective.token_term.name]
        unigram += float(unigram_bits[target.labels.numpy()].sum())
        symbols = None if symbols is None or target.symbols is None else symbols + float(target.symbols.sum())
        on_device = batch.to(device.torch)
        with device.autocast():
            hidden = model(on_device)
            heads = cast("Mapping[str, nn.Module]", model.heads[batch.vocabulary])
            terms = objective.forward(hidden, on_device, heads)
        for name, term in terms.items():
            total = sums.setdefault(name, [0.0, 0.0, 0.0])
            correct = 0.0 if term.correct is None else float(term.correct)
            for place, value in enumerate((float(term.loss), float(term.targets), correct)):
                total[place] += value
    model.train(was_training)
    return _metrics(sums, objective.token_term.name, symbols, unigram)


@torch.no_grad()
def task_outputs(
    model: Model, task: Task[Any], source: TaskSource, device: Device
) -> tuple[list[np.ndarray], float | None]:
    """The outputs of every sequence of labelled or unlabelled records, and the mean loss over their targets.

    Every record counts once, whatever the size of a batch. Outputs leave the device batch by batch.

    Returns:
        Outputs by number of the sequence, and the loss, None where labels are not known.
    """
    was_training = model.training
    model.eval()
    outputs: list[np.ndarray] = [np.zeros(0)] * len(source.inputs)
    labelled = source.labelled
    loss, targets = 0.0, 0
    for chosen in source.batcher.all(device.micro_tokens):
        batch = task.batch(source, chosen).to(device.torch)
        with device.autocast():
            hidden = model(batch, task.rows(batch))
            logits = task.logits(hidden, batch, cast("Mapping[str, nn.Module]", model.heads[batch.vocabulary])).float()
        if labelled:
            count = len(batch.targets[task.term].index)
            loss += float(task.loss(logits, batch)) if count else 0.0
            targets += count
        for number, rows in zip(chosen.tolist(), task.split_outputs(logits.cpu().numpy(), batch), strict=True):
            outputs[number] = rows
    model.train(was_training)
    return outputs, loss / targets if targets else None


def _metrics(sums: dict[str, list[float]], token_term: str, symbols: float | None, unigram: float) -> Metrics:
    metrics: Metrics = {}
    for name, (loss, count, correct) in sums.items():
        metrics[f"{name}_loss"] = loss / count if count else None
        metrics[f"{name}_accuracy"] = correct / count if count else None
        metrics[f"{name}_targets"] = count
    loss, count, _ = sums.get(token_term, (0.0, 0.0, 0.0))
    metrics["perplexity"] = perplexity(loss / count) if count else None
    metrics["bits_per_symbol"] = loss / math.log(2) / symbols if symbols else None
    metrics["unigram_bits_per_symbol"] = unigram / symbols if symbols else None
    return metrics


def perplexity(loss: float) -> float:
    """``exp(loss)``; infinite where that is too large for a number.

    >>> perplexity(0.0), perplexity(800.0)
    (1.0, inf)
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def reported(metrics: Metrics) -> dict[str, Any]:
    """Metrics with as many digits as mean something."""
    return {name: value if value is None else float(f"{value:.6g}") for name, value in metrics.items()}
