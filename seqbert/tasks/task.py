"""What a task is: it makes targets from labels, loss terms from hidden states, and predictions from outputs.

A task knows its labels once :meth:`Task.fit` has seen the training records; :meth:`Task.state` is what a trained run
keeps of it, so that the same labels come back in the same order.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from seqbert.data.packing import WHOLE, PackedBatch, Share, Target
from seqbert.data.records import Batcher, Inputs, Long, Records, Shape, lay_out
from seqbert.domain import SPECIAL_TOKENS, Augmentation, Domain, Example
from seqbert.errors import CheckpointError, ConfigError, DataError, nearest
from seqbert.models.losses import Term, in_full_precision
from seqbert.tasks.metrics import Scores

Config = TypeVar("Config")

LOWER_IS_BETTER = ("mse", "mae")
"""Metrics that are errors."""

SHOWN = 5
"""Wrong labels or records that a message names."""


@dataclasses.dataclass(slots=True)
class Prediction:
    """What a model says of one record.

    Attributes:
        id: The record's.
        value: The answer in the user's terms: a label or several, a number, a label a word, an answer's text, the
            number of a choice.
        details: What else is worth knowing, as plain data: probabilities, places, other answers.
        logits: The outputs that it rests on, the record's windows brought together.
    """

    id: str
    value: Any
    details: dict[str, Any]
    logits: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Sequencing:
    """How records become sequences and steps.

    Attributes:
        max_length: Most tokens of a sequence, special tokens included.
        long: What becomes of longer records.
        stride: Tokens from the start of one window to that of the next; None: half a window.
        seed: Keys the order of the records in each epoch.
        batch_size: Records (windows of them, where they are long) in a step.
    """

    max_length: int
    long: Long = "window"
    stride: int | None = None
    seed: int = 0
    batch_size: int = 32


@dataclasses.dataclass(slots=True)
class Source:
    """Labelled records as a task draws from them; it goes to the loader's workers.

    Attributes:
        batcher: The records, their sequences, and the order of steps.
        labels: What the task made of the labels.
    """

    batcher: Batcher
    labels: Any

    @property
    def labelled(self) -> bool:
        """Whether the records have labels."""
        return all(example.label is not None for example in self.records.examples)

    @property
    def vocabulary(self) -> str:
        """Name of the vocabulary."""
        return self.batcher.vocabulary

    @property
    def records(self) -> Records:
        """The records."""
        return self.batcher.records

    def visited(self, step: int) -> int:
        """Records, or windows and choices of them, that the steps before this one took."""
        return self.batcher.visited(step)

    def go_on(self, step: int, visited: int) -> None:
        """Takes the epochs' order up at a step, after so many records."""
        self.batcher = dataclasses.replace(self.batcher, begun=(step, visited))

    def augmented(self, augmentation: Augmentation | None, variant: int = 0) -> Source:
        """The same records in variants: steps draw one for each of them, and what is no step has this one."""
        return Source(dataclasses.replace(self.batcher, augmentation=augmentation, variant=variant), self.labels)

    @property
    def inputs(self) -> Inputs:
        """Their sequences."""
        return self.batcher.inputs


class Task(ABC, Generic[Config]):
    """One way to use an encoder; its loss, its metrics and the form of its predictions.

    Class attributes:
        head: The kind of head it needs.
        shape: What the texts of a record are.
        offsets: Whether it needs to know where tokens stand in the text.
        default_metric: What decides which checkpoint is best, unless the config names another metric.
        term: Name of its loss term.
    """

    head: ClassVar[str]
    shape: ClassVar[Shape] = "texts"
    offsets: ClassVar[bool] = False
    default_metric: ClassVar[str]
    term: ClassVar[str] = "task"

    def __init__(self, config: Config) -> None:
        self.config = config

    # Labels

    @abstractmethod
    def fit(self, examples: Sequence[Example]) -> None:
        """Takes from all training records, also those that train_size leaves out, the labels and their order.

        Raises:
            DataError: The labels do not suit the task.
        """

    @abstractmethod
    def unseen(self, examples: Sequence[Example]) -> Counter[str]:
        """Labels that training has not seen, and how often they occur."""

    @abstractmethod
    def encode_labels(self, records: Records, inputs: Inputs, domain: Domain) -> Any:
        """The labels of records as numbers, and what else of them a batch needs; None where nothing is needed.

        Args:
            records: The records; either all of them have a label, or none.
            inputs: Their sequences.
            domain: Says what a word is.
        """

    def source(self, examples: Sequence[Example], domain: Domain, how: Sequencing) -> Source:
        """Encodes records and lays them out as sequences.

        Raises:
            DataError: A record is too long, and none may be.
        """
        records = Records.encode(examples, domain, self.shape, self.offsets)
        inputs = lay_out(records, self.shape, how.max_length, how.long, how.stride)
        cls_id, sep_id = (domain.vocabulary.token_to_id(token) for token in SPECIAL_TOKENS[2:4])
        assert cls_id is not None and sep_id is not None
        batcher = Batcher(
            records, inputs, domain.name, cls_id, sep_id, how.seed, how.batch_size, self.shape == "choices"
        )
        return Source(batcher, self.encode_labels(records, inputs, domain))

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a run keeps of the task, as plain data."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what :meth:`state` gave."""

    def prepare_strata(self, examples: Sequence[Example]) -> None:
        """Takes from all labelled records what :meth:`stratum` needs."""

    def adopt(self, heads: Mapping[str, nn.Module]) -> None:
        """Takes the head of a saved model, which gives outputs as other programs expect them."""

    def measure(self, examples: Sequence[Example]) -> None:
        """Takes from the records that are trained on what is a matter of their numbers: weights of classes, scale."""

    def labels_of(self, example: Example) -> Sequence[Hashable]:
        """The labels of a record that training must have seen to know them."""
        return ()

    def stratum(self, example: Example) -> Hashable:
        """What a validation share is stratified by."""
        return None

    @property
    @abstractmethod
    def outputs_size(self) -> int:
        """Outputs of the head."""

    @property
    def label_names(self) -> list[str] | None:
        """The labels in the order of the outputs; None where it has none."""
        return None

    # Learning

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each term in the loss."""
        return {self.term: 1.0}

    def examples(self, source: Source, step: int, share: Share = WHOLE) -> PackedBatch:
        """A process' share of a step's global batch, with targets."""
        own = source.batcher.step(step, share)
        chosen = own if len(own) else source.batcher.step(step, Share(0, source.batcher.batch_size))
        batch = self.batch(source, chosen, source.batcher.drawn(step, chosen))
        batch.counted = len(own) > 0
        return batch

    def batch(self, source: Source, chosen: np.ndarray, variants: np.ndarray | None = None) -> PackedBatch:
        """The sequences of these numbers, with targets where labels are known.

        Args:
            source: The records.
            chosen: Numbers of sequences.
            variants: The variant that each is given, ``[sequences]``; None: the source's.
        """
        batch = source.batcher.pack(chosen, variants)
        if source.labels is not None:
            batch.targets[self.term] = self.target(source, chosen, variants)
        return batch

    @abstractmethod
    def target(self, source: Source, chosen: np.ndarray, variants: np.ndarray | None = None) -> Target:
        """What is to be predicted for the sequences of these numbers, in their variants as in :meth:`batch`."""

    def rows(self, batch: PackedBatch) -> Tensor | None:
        """The tokens whose hidden states the head reads, as numbers, ``[rows]``; None: all of them."""
        return None

    @abstractmethod
    def logits(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> Tensor:
        """The head's outputs for a batch, from the hidden states of :meth:`rows`, ``[rows, width]``."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Sum of the loss over the batch's targets."""

    def forward(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> dict[str, Term]:
        """Loss terms of a batch, from the hidden states of :meth:`rows`, ``[rows, width]``."""
        logits = in_full_precision(self.logits(hidden, batch, heads))
        target = batch.targets[self.term]
        loss = self.loss(logits, batch) if len(target.index) else logits.sum() * 0.0
        return {self.term: Term(loss, len(target.index), None)}

    # Answers

    @abstractmethod
    def split_outputs(self, logits: np.ndarray, batch: PackedBatch) -> list[np.ndarray]:
        """The outputs of each sequence of a batch."""

    def moved_back(self, source: Source, number: int, output: np.ndarray) -> np.ndarray:
        """The output of a sequence in the source's variant, with its rows where they are in the sequence itself."""
        return output

    @abstractmethod
    def average(self, source: Source, variants: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Outputs that stand for those of several variants of the same sequences, moved back.

        What :meth:`predict` makes of them is the mean over the variants: of the probabilities of classes, labels and
        choices, of numbers, and of the scores of starts and ends.
        """

    @abstractmethod
    def predict(self, source: Source, outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """One prediction a record, from the outputs of all sequences; windows are brought together."""

    @abstractmethod
    def scores(self, source: Source, predictions: Sequence[Prediction], resamples: int = 0) -> Scores:
        """The metrics of predictions for labelled records, with intervals from ``resamples`` resamples."""

    def calibrate(self, source: Source, predictions: list[Prediction]) -> list[Prediction]:
        """Sets what is tuned on validation data, such as a threshold, and gives the predictions it leads to."""
        return predictions

    @property
    def metric(self) -> str:
        """The metric that decides which checkpoint is best."""
        chosen: str | None = getattr(self.config, "metric", None)
        return chosen or self.default_metric

    @property
    def available(self) -> tuple[str, ...]:
        """The metrics that there are for the labels that training has; all that the config may name, or fewer."""
        return ()

    def check_metric(self) -> None:
        """Makes sure that there is the metric which decides, now that the labels are known.

        Raises:
            ConfigError: There is not.
        """
        if self.available and self.metric not in self.available:
            raise ConfigError(
                f'task.metric is "{self.metric}", which these labels do not have: it is one of '
                f"{', '.join(self.available)}."
            )

    def rank(self, values: Mapping[str, float | None]) -> float | None:
        """What the best checkpoint is found by, the lower the better; None where the metric is undefined."""
        value = values[self.metric]
        return value if value is None or self.metric in LOWER_IS_BETTER else -value


class PooledTask(Task[Config]):
    """A task whose head reads one token of each sequence and gives a row of outputs a sequence.

    Attributes:
        reads_last: Whether it is the last token, as for a causal encoder, whose first one has seen nothing but itself
            (Radford et al. 2018, section 3.2); else it is the first.
    """

    reads_last = False

    def target(self, source: Source, chosen: np.ndarray, variants: np.ndarray | None = None) -> Target:
        """The label of each sequence's record."""
        return Target(
            torch.arange(len(chosen)),
            torch.from_numpy(source.labels[source.inputs.record[chosen]]),
            of_sequences=True,
        )

    def rows(self, batch: PackedBatch) -> Tensor:
        """The token of each sequence that is read, ``[sequences]``."""
        return batch.cu_seqlens[1:].long() - 1 if self.reads_last else batch.cu_seqlens[:-1].long()

    def logits(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> Tensor:
        """``[sequences, outputs]``."""
        logits: Tensor = heads[self.head](hidden)
        return logits

    def split_outputs(self, logits: np.ndarray, batch: PackedBatch) -> list[np.ndarray]:
        """A row a sequence."""
        return list(logits)


def check_metric(metric: str | None, known: Sequence[str]) -> None:
    """Makes sure that a task's metric exists.

    Raises:
        ConfigError: It does not.
    """
    if metric is not None and metric not in known:
        raise ConfigError(f'metric is "{metric}"; it is one of {", ".join(known)}.{nearest(metric, known)}')


def mean_by_record(inputs: Inputs, outputs: Sequence[np.ndarray], records: int) -> np.ndarray:
    """Outputs of windows, averaged for each record: ``[records, outputs]``."""
    stacked = np.stack(outputs) if len(outputs) else np.zeros((0, 1), np.float32)
    counts = np.bincount(inputs.record, minlength=records)
    sums = np.zeros((records, stacked.shape[1]), np.float64)
    np.add.at(sums, inputs.record, stacked)
    return sums / np.maximum(counts, 1)[:, None]


def for_sequences(inputs: Inputs, rows: np.ndarray) -> list[np.ndarray]:
    """For each sequence the row of its record, ``[records, outputs]``: the mean over a record's windows is the row."""
    return list(rows[inputs.record])


def log_mean(chances: Sequence[np.ndarray]) -> np.ndarray:
    """The logarithm of the mean of several arrays of probabilities; of those of classes, logits that give the mean.

    >>> log_mean([np.array([0.5, 0.5]), np.array([0.7, 0.3])]).round(3).tolist()
    [-0.511, -0.916]
    """
    return np.asarray(np.log(np.maximum(np.mean(np.stack(chances), axis=0), np.finfo(np.float64).tiny)))


def order_labels(found: Counter[str], declared: Sequence[str] | None, what: str) -> list[str]:
    """The labels of a run in order: as declared, else numbers by value, else by the alphabet.

    Raises:
        DataError: A label of the training records was not declared, or there is only one.
    """
    if declared is not None:
        extra = [label for label in found if label not in declared]
        if extra:
            raise DataError(
                f"The training records have {what} that task.labels does not list: {listed(extra, found)}. Add them, "
                "or mend the records."
            )
        labels = list(declared)
    else:
        labels = sorted(found, key=_label_key)
    if len(labels) < 2:
        only = f'only the {what.removesuffix("s")} "{labels[0]}"' if labels else f"no {what}"
        raise DataError(f"The training records have {only}, and there is nothing to tell apart: two are needed.")
    return labels


def listed(labels: Sequence[str], counts: Mapping[str, int]) -> str:
    """Some labels with their counts, for a message."""
    shown = ", ".join(f'"{label}" ({counts[label]:,})' for label in labels[:SHOWN])
    return shown + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")


def check_state(state: Mapping[str, Any], name: str) -> None:
    """Makes sure that what a run kept is of the same task.

    Raises:
        CheckpointError: It is of another one.
    """
    if state.get("task") != name:
        raise CheckpointError(f"The run was trained for {state.get('task')}, and its config says {name}.")


def _label_key(label: str) -> tuple[bool, float, str]:
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
