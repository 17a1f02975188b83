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
from seqbert.training.parallel import ALONE, World

Metrics = dict[str, float | None]


@torch.no_grad()
def evaluate(
    model: Model,
    objective: Objective,
    batches: Iterable[PackedBatch],
    device: Device,
    unigram_bits: np.ndarray,
    world: World = ALONE,
) -> Metrics:
    """Metrics over all targets of the batches; sums are kept, not logits.

    Every process makes all batches and runs its part of them; the sums are those of one process, in the same order.

    Returns:
        For each term its ``_loss`` (nats a target), ``_accuracy`` and ``_targets``; for the token term also
        ``perplexity``, and ``bits_per_symbol`` beside ``unigram_bits_per_symbol`` on the same masks, both None
        where hidden symbols cannot be counted.

    Raises:
        Stopped: if a process was told to stop.
    """
    was_training = model.training
    model.eval()
    names = list(objective.weights)
    rows: list[np.ndarray] = []  # of each piece: loss, targets and correct ones, [terms, 3]
    symbols: float | None = 0.0
    unigram = 0.0
    for number, batch in enumerate(piece for whole in batches for piece in split(whole, device.micro_tokens)):
        if world.is_told_to_stop:
            break
        rows.append(np.zeros((len(names), 3)))
        target = batch.targets[objective.token_term.name]
        unigram += float(unigram_bits[target.labels.numpy()].sum())
        symbols = None if symbols is None or target.symbols is None else symbols + float(target.symbols.sum())
        if number % world.size != world.rank:
            continue
        on_device = batch.to(device.torch)
        with device.autocast():
            hidden = model(on_device)
            heads = cast("Mapping[str, nn.Module]", model.heads[batch.vocabulary])
            terms = objective.forward(hidden, on_device, heads)
        for name, term in terms.items():
            correct = 0.0 if term.correct is None else float(term.correct)
            rows[-1][names.index(name)] = float(term.loss), float(term.targets), correct
    model.train(was_training)
    world.agree()
    sums = np.zeros((len(names), 3))
    for row in world.total(np.array(rows).reshape(-1, len(names), 3)):
        sums += row
    return _metrics(dict(zip(names, sums.tolist(), strict=True)), objective.token_term.name, symbols, unigram)


@torch.no_grad()
def task_outputs(
    model: Model, task: Task[Any], source: TaskSource, device: Device, world: World = ALONE
) -> tuple[list[np.ndarray], float | None]:
    """The outputs of every sequence of labelled or unlabelled records, and the mean loss over their targets.

    Every record counts once, whatever the size of a batch and the number of processes. Outputs leave the device batch
    by batch.

    Returns:
        Outputs by number of the sequence, and the loss, None where labels are not known.

    Raises:
        Stopped: if a process was told to stop.
    """
    was_training = model.training
    model.eval()
    outputs: list[np.ndarray | None] = [None] * len(source.inputs)
    labelled = source.labelled
    rows: list[list[float]] = []  # of each batch: loss and targets
    for place, chosen in enumerate(source.batcher.all(device.micro_tokens)):
        if world.is_told_to_stop:
            break
        rows.append([0.0, 0.0])
        if place % world.size != world.rank:
            continue
        batch = task.batch(source, chosen).to(device.torch)
        with device.autocast():
            hidden = model(batch, task.rows(batch))
            logits = task.logits(hidden, batch, cast("Mapping[str, nn.Module]", model.heads[batch.vocabulary])).float()
        if labelled:
            count = len(batch.targets[task.term].index)
            rows[-1] = [float(task.loss(logits, batch)) if count else 0.0, count]
        for number, output in zip(chosen.tolist(), task.split_outputs(logits.cpu().numpy(), batch), strict=True):
            outputs[number] = output
    model.train(was_training)
    world.agree()
    loss, targets = 0.0, 0.0
    for lost, count in world.total(np.array(rows).reshape(-1, 2)).tolist():
        loss, targets = loss + lost, targets + count
    return world.complete(outputs), loss / targets if targets else None


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
