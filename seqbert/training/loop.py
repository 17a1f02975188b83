"""The one training loop. It knows steps, batches and loss terms; not domains, objectives or files of data."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch, split
from seqbert.data.sampling import counter_hash, stream
from seqbert.errors import TrainingError
from seqbert.models.model import Model
from seqbert.training.checkpoint import Progress, newest_checkpoint, save_checkpoint
from seqbert.training.device import Device
from seqbert.training.evaluation import Metrics, reported
from seqbert.training.logging import Console, MetricsLog


class Term(Protocol):
    """A loss term of a batch."""

    @property
    def loss(self) -> Tensor:
        """Sum of the loss over the batch's targets, a scalar."""
        ...


class Learnable(Protocol):
    """What turns hidden states into loss terms: an objective or a task."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each term in the loss."""
        ...

    def rows(self, batch: PackedBatch) -> Tensor | None:
        """The tokens whose hidden states it reads, ``[rows]``; None: all of them."""
        ...

    def forward(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> Mapping[str, Term]:
        """The terms of a batch, from the encoder's output for these, ``[rows, hidden_size]``."""
        ...


@dataclasses.dataclass(slots=True)
class LoopSettings:
    """The numbers that a loop runs by; see the config for what each means.

    Attributes:
        evaluate_first: Whether to validate before the first step.
        patience: Validations without a better score after which training ends early; None: never.
    """

    seed: int
    steps: int
    learning_rate: float
    clip_norm: float | None
    evaluate_every: int
    log_every: int
    checkpoint_every: int
    keep: int
    evaluate_first: bool = True
    patience: int | None = None


@dataclasses.dataclass(slots=True)
class Loop:
    """Trains a model, step by step.

    Attributes:
        model: The model, on its device.
        learnables: What each vocabulary is trained on.
        shares: Weight of each vocabulary in the loss; they sum to 1.
        optimizer: The optimizer over the model's parameters.
        schedule: Factor on the learning rate, by step and number of steps.
        settings: The numbers.
        device: Where it computes.
        folder: Where checkpoints go.
        validate: Gives the validation metrics of each vocabulary.
        score: One number from those metrics, the lower the better.
        keep_best: Called when the model is the best so far.
        console: Speaks to the user.
        log: Writes the metrics.
        progress: How far the run is.
    """

    model: Model
    learnables: Mapping[str, Learnable]
    shares: Mapping[str, float]
    optimizer: torch.optim.Optimizer
    schedule: Callable[[int, int], float]
    settings: LoopSettings
    device: Device
    folder: Path
    validate: Callable[[], dict[str, Metrics]]
    score: Callable[[dict[str, Metrics]], float | None]
    keep_best: Callable[[], None]
    console: Console
    log: MetricsLog
    progress: Progress

    def run(self, batches: Iterator[list[PackedBatch]]) -> dict[str, Metrics]:
        """Trains on the steps that ``batches`` gives, each the global batch of every vocabulary.

        Returns:
            The validation metrics at the end.

        Raises:
            TrainingError: if a loss is not finite.
        """
        settings, progress = self.settings, self.progress
        if progress.step == 0 and settings.evaluate_first:
            progress.first = self._evaluate()
        if progress.step >= settings.steps or self._has_stalled():
            return self.validate()
        metrics = progress.first
        meter = _Meter()
        self.console.start(settings.steps, progress.step)
        self.model.train()
        for step in range(progress.step, settings.steps):
            sums = self._step(step, next(batches), meter)
            progress.step = step + 1
            due = self._is_due(progress.step, settings.log_every)
            if due or self.device.torch.type == "cpu":
                self._check_finite(meter)
            if due:
                self.log.write(self._record(sums, meter))
                meter.restart()
            self.console.step(progress.step, settings.steps, meter.newest, due, meter.left(settings.steps - step - 1))
            if self._is_due(progress.step, settings.evaluate_every):
                self._check_finite(meter)
                metrics = self._evaluate()
            stalled = self._has_stalled()
            if stalled or self._is_due(progress.step, settings.checkpoint_every):
                self._check_finite(meter)
                save_checkpoint(self.folder, self.model, self.optimizer, progress, settings.keep)
            if stalled:
                self.console.say(
                    f"No better score since step {progress.best_step}: training ends early, after step {progress.step}."
                )
                break
        self.console.close()
        return metrics

    def _step(self, step: int, batches: list[PackedBatch], meter: _Meter) -> dict[str, dict[str, Tensor]]:
        """Forward and backward over the micro-batches, then one update; gives the loss terms of the step."""
        settings = self.settings
        rate = settings.learning_rate * self.schedule(step, settings.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        counts = {batch.vocabulary: _targets(batch) for batch in batches}  # of the whole global step
        sums: dict[str, dict[str, Tensor]] = defaultdict(dict)
        self.optimizer.zero_grad(set_to_none=True)
        pieces = [piece for batch in batches for piece in split(batch, self.device.micro_tokens)]
        for number, piece in enumerate(pieces):
            torch.manual_seed(dropout_seed(settings.seed, step, number))
            loss = torch.zeros((), device=self.device.torch)
            for name, term in self._terms(piece.to(self.device.torch)).items():
                weight = self.shares[piece.vocabulary] * self.learnables[piece.vocabulary].weights[name]
                share = term.loss / max(1, counts[piece.vocabulary][name])
                loss = loss + weight * share
                seen = sums[piece.vocabulary]
                seen[name] = seen.get(name, 0.0) + share.detach()
            loss.backward()  # type: ignore[no-untyped-call]
        limit = settings.clip_norm if settings.clip_norm is not None else math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        tokens = sum(batch.tokens for batch in batches)
        self.progress.tokens += tokens
        meter.add(step + 1, tokens, self._total(sums), norm, rate)
        return sums

    def _terms(self, batch: PackedBatch) -> Mapping[str, Term]:
        with self.device.autocast():
            learnable = self.learnables[batch.vocabulary]
            hidden = cast(Tensor, self.model(batch, learnable.rows(batch)))
            heads = cast("Mapping[str, nn.Module]", self.model.heads[batch.vocabulary])
            return learnable.forward(hidden, batch, heads)

    def _total(self, sums: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
        terms = [
            self.shares[vocabulary] * self.learnables[vocabulary].weights[name] * value
            for vocabulary, seen in sums.items()
            for name, value in seen.items()
        ]
        return torch.stack(terms).sum()

    def _evaluate(self) -> dict[str, Metrics]:
        metrics, progress = self.validate(), self.progress
        values = {f"validation_{name}": reported(row) for name, row in metrics.items()}
        self.log.write({"step": progress.step, **values})
        score = self.score(metrics)
        if score is not None and not math.isfinite(score):
            raise self._diverged(f"The validation loss is {score} after step {progress.step}")
        if progress.step and (score is None or progress.best_score is None or score < progress.best_score):
            progress.best_score, progress.best_step = score, progress.step
            self.keep_best()
        return metrics

    def _record(self, sums: Mapping[str, Mapping[str, Tensor]], meter: _Meter) -> dict[str, Any]:
        terms = {name: {term: float(value) for term, value in seen.items()} for name, seen in sums.items()}
        meter.newest = {
            "step": self.progress.step,
            "loss": float(meter.loss),
            **terms,
            "learning_rate": meter.rate,
            "gradient_norm": float(meter.norm),
            "tokens": self.progress.tokens,
            "tokens_per_second": round(meter.tokens / meter.seconds(), 1),
        }
        return meter.newest

    def _check_finite(self, meter: _Meter) -> None:
        losses = torch.stack([loss for _, loss in meter.unchecked]) if meter.unchecked else torch.zeros(0)
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            step, _ = meter.unchecked[int(bad[0])]
            raise self._diverged(f"The loss or its gradient is not finite (nan or infinite) in step {step}")
        meter.unchecked.clear()

    def _diverged(self, what: str) -> TrainingError:
        good = newest_checkpoint(self.folder)
        resume = f'the last good checkpoint is "{good}"' if good else "no checkpoint had been written yet"
        return TrainingError(
            f"{what}, so the run stops here; {resume}. Try a lower training.learning_rate, a longer "
            "training.schedule.warmup, a lower training.clip_norm, or run.precision fp32."
        )

    def _has_stalled(self) -> bool:
        """Whether the last validations, as many as the patience says, brought no better score."""
        settings, progress = self.settings, self.progress
        if settings.patience is None or progress.best_step is None:
            return False
        return progress.step - progress.best_step >= settings.patience * settings.evaluate_every

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.settings.steps


class _Meter:
    """What happened since the last log line; tensors stay on their device until one is written."""

    def __init__(self) -> None:
        self.begun = self.since = time.monotonic()
        self.done = self.tokens = 0
        self.loss = self.norm = torch.zeros(())
        self.rate = 0.0
        self.unchecked: list[tuple[int, Tensor]] = []
        self.newest: dict[str, Any] = {}

    def add(self, step: int, tokens: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        self.done += 1
        self.tokens += tokens
        self.loss, self.norm, self.rate = loss, norm, rate
        self.unchecked.append((step, loss + 0.0 * norm))  # not finite if either is not

    def restart(self) -> None:
        self.since, self.tokens = time.monotonic(), 0

    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - self.since)

    def left(self, steps: int) -> float:
        return (time.monotonic() - self.begun) / max(1, self.done) * steps


def dropout_seed(seed: int, step: int, micro_batch: int, rank: int = 0) -> int:
    """What dropout is seeded with: a function of its place alone, so that a resumed run draws the same."""
    return int(counter_hash(seed, stream("dropout"), step, micro_batch, rank) >> 1)


def _targets(batch: PackedBatch) -> dict[str, int]:
    return {name: len(target.index) for name, target in batch.targets.items()}
