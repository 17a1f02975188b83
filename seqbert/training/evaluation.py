"""The evaluation passes, for objectives and for tasks: validation during training and the commands alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqbert.data.group_figures import Grouping
from seqbert.data.packing import PackedBatch, Target, split
from seqbert.domain import Augmentation
from seqbert.models.model import Model
from seqbert.objectives import Objective
from seqbert.tasks import Source as TaskSource
from seqbert.tasks import Task
from seqbert.training.device import Device
from seqbert.training.parallel import ALONE, World

Metrics = dict[str, Any]
"""Numbers, None where they are not defined; under ``groups`` such metrics by the name of a group."""


@torch.no_grad()
def evaluate(
    model: Model,
    objective: Objective,
    batches: Iterable[PackedBatch],
    device: Device,
    unigram_bits: np.ndarray,
    world: World = ALONE,
    grouping: Grouping | None = None,
) -> Metrics:
    """Metrics over all targets of the batches; sums are kept, not logits.

    Every process makes all batches and runs its part of them; the sums are those of one process, in the same order.

    Returns:
        For each term its ``_loss`` (nats a target), ``_accuracy`` and ``_targets``; for the token term also
        ``perplexity``, and ``bits_per_symbol`` beside ``unigram_bits_per_symbol`` on the same masks, both None
        where hidden symbols cannot be counted. With a grouping, under ``groups`` the same of each group that has
        targets, but for the accuracy, from the losses of the same pass.

    Raises:
        Stopped: if a process was told to stop.
    """
    was_training = model.training
    model.eval()
    names = objective.measured
    token_term = objective.token_term.name
    by_group = None if grouping is None else _GroupSums(grouping)
    rows: list[np.ndarray] = []  # of each piece: loss, targets and correct ones, [terms, 3]
    symbols: float | None = 0.0
    unigram = 0.0
    for number, batch in enumerate(piece for whole in batches for piece in split(whole, device.micro_tokens)):
        if world.is_told_to_stop:
            break
        rows.append(np.zeros((len(names), 3)))
        target = batch.targets[token_term]
        bits = unigram_bits[target.labels.numpy()]
        unigram += float(bits.sum())
        symbols = None if symbols is None or target.symbols is None else symbols + float(target.symbols.sum())
        if by_group is not None:
            by_group.begin(batch, target, bits)
        if number % world.size != world.rank:
            continue
        on_device = batch.to(device.torch)
        with device.autocast():
            hidden = model(on_device, objective.rows(on_device))
            heads = cast("Mapping[str, nn.Module]", model.heads[batch.vocabulary])
            terms = objective.forward(hidden, on_device, heads)
        for name, term in terms.items():
            correct = 0.0 if term.correct is None else float(term.correct)
            rows[-1][names.index(name)] = float(term.loss), float(term.targets), correct
        if by_group is not None and (each := terms[token_term].each) is not None:
            by_group.add(each.cpu().numpy())
    model.train(was_training)
    world.agree()
    sums = np.zeros((len(names), 3))
    for row in world.total(np.array(rows).reshape(-1, len(names), 3)):
        sums += row
    metrics = _metrics(dict(zip(names, sums.tolist(), strict=True)), token_term, symbols, unigram)
    return metrics if by_group is None else metrics | {"groups": by_group.metrics(token_term, world)}


class _GroupSums:
    """Sums over the targets of each group: those of the whole batch, and the losses of what this process runs."""

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._known = np.zeros((3, len(grouping.names)))  # targets, symbols and bits of a unigram model
        self._has_symbols = True
        self._losses: list[np.ndarray] = []
        self._group = np.zeros(0, np.int64)

    def begin(self, batch: PackedBatch, target: Target, unigram_bits: np.ndarray) -> None:
        self._group = self._grouping.of_targets(batch, target)
        self._losses.append(np.zeros(len(self._grouping.names)))
        self._has_symbols = self._has_symbols and target.symbols is not None
        weights = (None, None if target.symbols is None else target.symbols.numpy(), unigram_bits)
        for row, weight in zip(self._known, weights, strict=True):
            row += np.bincount(self._group, weight, minlength=len(row))

    def add(self, losses: np.ndarray) -> None:
        self._losses[-1] = np.bincount(self._group, losses, minlength=len(self._losses[-1]))

    def metrics(self, token_term: str, world: World) -> dict[str, Metrics]:
        losses = np.zeros(len(self._grouping.names))
        for row in world.total(np.array(self._losses).reshape(-1, len(losses))):  # in the order of one process
            losses += row
        found = {}
        for name, loss, targets, symbols, unigram in zip(self._grouping.names, losses, *self._known, strict=True):
            if targets:
                row = _metrics(
                    {token_term: [float(loss), float(targets), 0.0]},
                    token_term,
                    float(symbols) if self._has_symbols else None,
                    float(unigram),
                )
                found[name] = {key: value for key, value in row.items() if key != f"{token_term}_accuracy"}
        return found


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
            outputs[number] = task.moved_back(source, number, output)
    model.train(was_training)
    world.agree()
    loss, targets = 0.0, 0.0
    for lost, count in world.total(np.array(rows).reshape(-1, 2)).tolist():
        loss, targets = loss + lost, targets + count
    return world.complete(outputs), loss / targets if targets else None


def averaged_outputs(
    model: Model,
    task: Task[Any],
    source: TaskSource,
    device: Device,
    world: World = ALONE,
    augmentation: Augmentation | None = None,
) -> tuple[list[np.ndarray], float | None]:
    """As :func:`task_outputs`; with an augmentation, what stands for all its variants, and their mean loss."""
    if augmentation is None:
        return task_outputs(model, task, source, device, world)
    variants = [
        task_outputs(model, task, source.augmented(augmentation, variant), device, world)
        for variant in range(augmentation.variants)
    ]
    losses = [loss for _, loss in variants if loss is not None]
    return task.average(source, [outputs for outputs, _ in variants]), sum(losses) / len(losses) if losses else None


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
    return {
        name: reported(value) if isinstance(value, dict) else value if value is None else float(f"{value:.6g}")
        for name, value in metrics.items()
    }
