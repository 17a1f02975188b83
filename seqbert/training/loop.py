"""The one training loop. It knows steps, batches and loss terms; not domains, objectives or files of data."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch, idle, split
from seqbert.data.sampling import counter_hash, stream
from seqbert.errors import CheckpointError, Stopped, TrainingError
from seqbert.models.encoder import through
from seqbert.models.model import Model
from seqbert.training.budget import Budget
from seqbert.training.checkpoint import Checkpoints, Progress, load_weights, newest_checkpoint
from seqbert.training.device import Device
from seqbert.training.evaluation import Metrics, reported
from seqbert.training.logging import Console, MetricsLog
from seqbert.training.parallel import World, exchange, without_exchange
from seqbert.training.signals import NAMES


class Term(Protocol):
    """A loss term of a batch."""

    @property
    def loss(self) -> Tensor:
        """Sum of the loss over the batch's targets, a scalar."""
        ...

    @property
    def of(self) -> str | None:
        """The term whose targets it is summed over, if it has none of its own."""
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
        steps: Most steps; None: as many as there are minutes for.
        minutes: How long it trains; None: as long as the steps take.
        evaluate_first: Whether to validate before the first step.
        patience: Validations without a better score after which training ends early; None: never.
    """

    seed: int
    steps: int | None
    learning_rate: float
    clip_norm: float | None
    evaluate_every: int
    log_every: int
    checkpoint_every: int
    minutes: float | None = None
    evaluate_first: bool = True
    patience: int | None = None


@dataclasses.dataclass
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
        world: The processes that share each step.
        checkpoints: Writes checkpoints.
        validate: Gives the validation metrics of each vocabulary.
        score: One number from those metrics, the lower the better.
        keep_best: Called when the model is the best so far.
        visited: By vocabulary, how many sequences of the epochs' order the steps before a step took.
        console: Speaks to the user.
        log: Writes the metrics.
        progress: How far the run is.
        is_saved: Whether there is a checkpoint of where it stands, or nothing that is worth one.
        best: The checkpoint of the best step so far, where its weights are to be kept as such once more.
        cut: Makes micro-batches of one static shape from a batch of a step, and each step is compiled; None: they are
            as long as they come.
    """

    model: Model
    learnables: Mapping[str, Learnable]
    shares: Mapping[str, float]
    optimizer: torch.optim.Optimizer
    schedule: Callable[[int, int], float]
    settings: LoopSettings
    device: Device
    world: World
    checkpoints: Checkpoints
    validate: Callable[[], dict[str, Metrics]]
    score: Callable[[dict[str, Metrics]], float | None]
    keep_best: Callable[[], None]
    visited: Callable[[int], dict[str, int]]
    console: Console
    log: MetricsLog
    progress: Progress
    is_saved: bool = True
    best: Path | None = None
    cut: Callable[[PackedBatch, int], list[PackedBatch]] | None = None

    def __post_init__(self) -> None:
        if self.device.records:
            for weight in self.model.parameters():  # gradients with a place of their own, which no recording reuses
                weight.grad = torch.zeros_like(weight)
        self._replica = self.world.replicate(_Slot(self))
        self._meter = _Meter()
        settings, progress = self.settings, self.progress
        self._budget = Budget(
            settings.steps,
            settings.minutes,
            settings.evaluate_every,
            settings.checkpoint_every,
            progress.step,
            progress.seconds,
            progress.planned,
            progress.costs,
        )

    def run(self, batches: Iterator[list[PackedBatch]]) -> dict[str, Metrics]:
        """Trains on the steps that ``batches`` gives, each this process' share for every vocabulary.

        Where there are minutes they are taken as long as there is time.

        Returns:
            The validation metrics at the end.

        Raises:
            TrainingError: if a loss is not finite.
            CheckpointError: if a checkpoint cannot be written.
            Stopped: at a signal, after the step is done and saved.
        """
        try:
            with self.world.signals.held():
                try:
                    metrics = self._train(batches)
                    self.checkpoints.wait()
                except Stopped as stop:
                    if not stop.at_once:
                        self._save_at(stop)
                    raise
                except Exception:
                    with suppress(CheckpointError):
                        self.checkpoints.wait()  # what is being written is still good
                    raise
        finally:
            self.console.close()
        return metrics

    def _train(self, batches: Iterator[list[PackedBatch]]) -> dict[str, Metrics]:
        settings, progress, budget, meter = self.settings, self.progress, self._budget, self._meter
        metrics: dict[str, Metrics] | None = None
        if self.best is not None:
            self._keep_best_again(self.best)
        if not self.is_saved:  # what was changed on resuming is not to be forgotten
            self._save()
            self.checkpoints.wait()
        self.console.start(budget.planned, progress.step)
        self.model.train()
        while True:
            is_validated = self._is_evaluation_due()
            if is_validated:
                self._check_finite()
                metrics = self._evaluate()
            stalled = progress.step < budget.planned and self._has_stalled()
            is_best = progress.step == progress.best_step
            is_save_due = stalled or is_best or self._is_due(progress.step, settings.checkpoint_every)
            if is_save_due:
                self._save()
            if is_validated:
                budget.evaluated()
            elif is_save_due:
                budget.saved()
            if stalled:
                self.console.say(
                    f"No better score since step {progress.best_step}: training ends early, after step {progress.step}."
                )
            if stalled or progress.step >= budget.planned:
                return self.validate() if metrics is None else metrics
            self.checkpoints.check()
            sums = self._step(progress.step, meter.waiting_for(batches), meter)
            progress.step += 1
            self.is_saved = False
            budget.stepped()
            due = self._is_due(progress.step, settings.log_every)
            if due or self.device.torch.type == "cpu":
                self._check_finite()
            if due:
                self.log.write(self._record(sums, meter))
                meter.restart()
            self.console.step(progress.step, budget.planned, meter.newest, due, budget.left(progress.step))

    def _step(self, step: int, batches: list[PackedBatch], meter: _Meter) -> dict[str, dict[str, Tensor]]:
        """Forward and backward over the micro-batches, then one update; gives this process' part of the loss terms.

        Raises:
            Stopped: if a process was told to stop; nothing is changed then.
        """
        settings = self.settings
        own = [self._cut(batch, step) for batch in batches]
        slots, counts, tokens, self._budget.planned = self._agree(
            batches, [len(of_batch) for of_batch in own], self._budget.plan(step)
        )
        rate = settings.learning_rate * self.schedule(step, self._budget.planned)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        pieces = [
            of_batch[number] if number < len(of_batch) else self._cut(idle(batch), step)[0]
            for batch, of_batch, most in zip(batches, own, slots, strict=True)
            for number in range(most)
        ]
        sums: dict[str, dict[str, Tensor]] = defaultdict(dict)
        self.optimizer.zero_grad(set_to_none=not self.device.records)  # what is recorded keeps its place in memory
        for number, piece in enumerate(pieces):
            torch.manual_seed(dropout_seed(settings.seed, step, number, self.world.rank))
            is_last = number == len(pieces) - 1
            if self.device.records:
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            with nullcontext() if is_last else without_exchange(self._replica), exchange():
                loss, shares = self._replica(piece.to(self.device.torch), counts[piece.vocabulary])
                loss.backward()
            if piece.counted:
                seen = sums[piece.vocabulary]
                for name, share in shares.items():
                    seen[name] = seen.get(name, 0.0) + share
        limit = settings.clip_norm if settings.clip_norm is not None else math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        self.progress.tokens += tokens
        meter.add(step + 1, tokens, self._total(sums), norm, rate)
        return sums

    def _cut(self, batch: PackedBatch, step: int) -> list[PackedBatch]:
        return split(batch, self.device.micro_tokens) if self.cut is None else self.cut(batch, step)

    def _agree(
        self, batches: list[PackedBatch], pieces: list[int], planned: int
    ) -> tuple[list[int], dict[str, dict[str, int]], int, int]:
        """What the processes must know of each other's shares of a step.

        Returns:
            For each vocabulary the micro-batches that every process goes through, so that all run the same one at the
            same time; the targets of the whole global step, by vocabulary and term; its tokens; and how many steps
            there are to be by the clock of the first process.
        """
        own = [_targets(batch) for batch in batches]
        tokens = sum(batch.tokens for batch in batches if batch.counted)
        row = [planned, tokens, *pieces, *(count for counts in own for count in counts.values())]
        table = self.world.agree(row)
        total = iter(table.sum(0)[2 + len(pieces) :].tolist())
        counts = {
            batch.vocabulary: {name: next(total) for name in names} for batch, names in zip(batches, own, strict=True)
        }
        return table[:, 2 : 2 + len(pieces)].max(0).tolist(), counts, int(table[:, 1].sum()), int(table[0, 0])

    def _total(self, sums: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
        terms = [
            self.shares[vocabulary] * self.learnables[vocabulary].weights[name] * value
            for vocabulary, seen in sums.items()
            for name, value in seen.items()
        ]
        return torch.stack(terms).sum() if terms else torch.zeros((), device=self.device.torch)

    def _evaluate(self) -> dict[str, Metrics]:
        progress = self.progress
        metrics = self.validate()
        values = {f"validation_{name}": reported(row) for name, row in metrics.items()}
        if values:
            self.log.write({"step": progress.step, **values})
        score = self.score(metrics)
        if score is not None and not math.isfinite(score):
            raise self._diverged(f"The validation loss is {score} after step {progress.step}")
        if not progress.step:
            progress.first = metrics
        elif score is None or progress.best_score is None or score < progress.best_score:
            progress.best_score, progress.best_step = score, progress.step
            if self.world.leads:
                self.keep_best()
        progress.evaluated = progress.step
        self.is_saved = not progress.step
        return metrics

    def _keep_best_again(self, path: Path) -> None:
        """Keeps the weights of a checkpoint as the best, with what validation finds of them."""
        now = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        load_weights(path, self.model)
        try:
            self.validate()
            if self.world.leads:
                self.keep_best()
        finally:  # also where a signal comes meanwhile, after which the run is saved
            self.model.load_state_dict(now)

    def _is_evaluation_due(self) -> bool:
        step = self.progress.step
        if step == 0 and not self.settings.evaluate_first:
            return False
        return self.progress.evaluated != step and self._is_due(step, self.settings.evaluate_every)

    def _save(self) -> None:
        if not self.is_saved:
            self._check_finite()
            self.progress.visited = self.visited(self.progress.step)
            if self.settings.minutes is not None:  # otherwise nothing in a checkpoint depends on the clock
                budget = self._budget
                self.progress.seconds, self.progress.planned = budget.spent, budget.planned
                self.progress.costs = budget.costs
            self.checkpoints.save(self.model, self.optimizer, self.progress)
            self.is_saved = True

    def _save_at(self, stop: Stopped) -> None:
        """Saves where a signal stopped the run, and gives the signal's message."""
        step = self.progress.step
        self._save()
        self.checkpoints.wait()
        with suppress(TrainingError):  # others may end at once
            self.world.wait()
        done = f"Its checkpoint is written in {self.checkpoints.folder}" if step else "There was nothing to save yet"
        after = f"stopped by {NAMES[stop.signal]} after step {step:,} of {self._budget.planned:,}"
        stop.args = (f"{after}. {done}. --resume auto goes on from there.",)

    def _record(self, sums: Mapping[str, Mapping[str, Tensor]], meter: _Meter) -> dict[str, Any]:
        """The line of a step, with the loss terms of all processes."""
        names = [(name, term) for name, learnable in self.learnables.items() for term in learnable.weights]
        own = [float(sums[name][term]) if term in sums.get(name, ()) else 0.0 for name, term in names]
        terms: dict[str, dict[str, float]] = defaultdict(dict)
        for (name, term), value in zip(names, self.world.total(np.array(own)).tolist(), strict=True):
            terms[name][term] = value
        loss = sum(self.shares[name] * self.learnables[name].weights[term] * terms[name][term] for name, term in names)
        meter.newest = {
            "step": self.progress.step,
            "loss": loss,
            **terms,
            "learning_rate": meter.rate,
            "gradient_norm": float(meter.norm),
            "tokens": self.progress.tokens,
            "tokens_per_second": round(meter.tokens / meter.seconds(), 1),
            "data_wait": round(meter.waited / meter.seconds(), 5),
        }
        if self.cut is not None:
            meter.newest["graphs"] = self.device.graphs()
        if self.settings.minutes is not None:
            meter.newest |= {"seconds": round(self._budget.spent, 3), "planned_steps": self._budget.planned}
        return meter.newest

    def _check_finite(self) -> None:
        meter = self._meter
        losses = torch.stack([loss for _, loss in meter.unchecked]) if meter.unchecked else torch.zeros(0)
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            step, _ = meter.unchecked[int(bad[0])]
            raise self._diverged(f"The loss or its gradient is not finite (nan or infinite) in step {step}")
        meter.unchecked.clear()

    def _diverged(self, what: str) -> TrainingError:
        with suppress(CheckpointError):
            self.checkpoints.wait()
        good = newest_checkpoint(self.checkpoints.folder)
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
        return step % every == 0 or step == self._budget.planned


class _Meter:
    """What happened since the last log line; tensors stay on their device until one is written."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.tokens = 0
        self.waited = 0.0
        self.norm = torch.zeros(())
        self.rate = 0.0
        self.unchecked: list[tuple[int, Tensor]] = []
        self.newest: dict[str, Any] = {}

    def add(self, step: int, tokens: int, loss: Tensor, norm: Tensor, rate: float) -> None:
        self.tokens += tokens
        self.norm, self.rate = norm, rate
        self.unchecked.append((step, loss + 0.0 * norm))  # not finite if either is not

    def restart(self) -> None:
        self.since, self.tokens, self.waited = time.monotonic(), 0, 0.0

    def waiting_for(self, batches: Iterator[list[PackedBatch]]) -> list[PackedBatch]:
        """The next batches; how long they were waited for is counted."""
        begun = time.monotonic()
        batch = next(batches)
        self.waited += time.monotonic() - begun
        return batch

    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - self.since)


def dropout_seed(seed: int, step: int, micro_batch: int, rank: int = 0) -> int:
    """What dropout is seeded with: a function of its place alone, so that a resumed run draws the same."""
    return int(counter_hash(seed, stream("dropout"), step, micro_batch, rank) >> 1)


def _targets(batch: PackedBatch) -> dict[str, int]:
    return {name: len(target.index) if batch.counted else 0 for name, target in batch.targets.items()}


class _Slot(nn.Module):
    """What a micro-batch adds to the loss of its step: the model and what it is trained on, in one forward pass."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.model = loop.model
        self._learnables, self._shares, self._device = loop.learnables, loop.shares, loop.device
        self._terms = _terms
        if loop.cut is not None:
            loop.model.encoder.through = loop.device.compiled(through)
            self._terms = loop.device.compiled(_terms)

    def forward(self, piece: PackedBatch, counts: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and each term without its weight; both divided by ``counts``, those of the whole global step."""
        learnable = self._learnables[piece.vocabulary]
        with self._device.autocast():
            hidden = cast(Tensor, self.model(piece, learnable.rows(piece)))
            terms = self._terms(learnable, hidden, piece, self.model.heads[piece.vocabulary])
        loss = torch.zeros((), device=self._device.torch)
        shares = {name: term.loss / max(1, counts[term.of or name]) for name, term in terms.items()}
        for name, share in shares.items():
            loss = loss + self._shares[piece.vocabulary] * learnable.weights[name] * share
        return loss if piece.counted else loss * 0.0, {name: share.detach() for name, share in shares.items()}


def _terms(learnable: Learnable, hidden: Tensor, piece: PackedBatch, heads: nn.Module) -> Mapping[str, Term]:
    """The terms of a micro-batch: a function, so that it can be compiled."""
    return learnable.forward(hidden, piece, cast("Mapping[str, nn.Module]", heads))
