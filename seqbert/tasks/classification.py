"""Classification of a sequence or a pair: one class of several, or any number of them (multi-label)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqbert.data.packing import PackedBatch
from seqbert.data.records import Inputs, Records
from seqbert.domain import Domain, Example
from seqbert.errors import ConfigError
from seqbert.tasks import metrics
from seqbert.tasks.task import (
    PooledTask,
    Prediction,
    Source,
    check_metric,
    check_state,
    for_sequences,
    log_mean,
    mean_by_record,
    order_labels,
)

SINGLE_METRICS = ("accuracy", "f1", "macro_f1", "matthews", "auroc", "auprc")
MULTILABEL_METRICS = ("micro_f1", "macro_f1", "subset_accuracy", "auroc", "auprc")


@dataclasses.dataclass
class ClassificationConfig:
    """A class for each sequence or pair (Devlin et al. 2019, section 4.1)."""

    name: Literal["classification"] = "classification"
    """The task."""
    labels: list[str] | None = None
    """The classes in order; null: those of the training records, numbers by value, else by the alphabet."""
    multilabel: bool = False
    """Any number of classes for a record: a list, or names separated by | in a cell."""
    class_weights: Literal["balanced"] | dict[str, float] | None = None
    """Weight of each class in the loss, or balanced: each class counts alike. Null: each record counts alike."""
    label_smoothing: float = 0.0
    """Share of each target that is spread over all classes (Szegedy et al. 2016, section 7)."""
    metric: str | None = None
    """What decides which checkpoint is best. Null: accuracy, or micro_f1 where multilabel."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"label_smoothing is {self.label_smoothing}; it is at least 0 and below 1.")
        if self.labels is not None and len(set(self.labels)) < max(2, len(self.labels)):
            raise ConfigError("labels must be two or more different ones.")
        if self.multilabel and self.label_smoothing:
            raise ConfigError("label_smoothing is for one class of several; set it to 0 where multilabel is true.")
        check_metric(self.metric, MULTILABEL_METRICS if self.multilabel else SINGLE_METRICS)


class Classification(PooledTask[ClassificationConfig]):
    """A linear layer over the pooled first token, and cross-entropy; sigmoids where classes are independent."""

    head = "classification"
    default_metric = "accuracy"

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__(config)
        self.labels: list[str] = []
        self._class_weights: Tensor | None = None

    def fit(self, examples: Sequence[Example]) -> None:
        """Fixes the classes and their order."""
        found = Counter(label for example in examples for label in _labels_of(example))
        self.labels = order_labels(found, self.config.labels, "classes")

    def measure(self, examples: Sequence[Example]) -> None:
        """Takes the weights of the classes."""
        self._class_weights = self._weights(Counter(label for example in examples for label in _labels_of(example)))

    def unseen(self, examples: Sequence[Example]) -> Counter[str]:
        """Classes that training has not seen."""
        known = set(self.labels)
        return Counter(label for example in examples for label in _labels_of(example) if label not in known)

    def labels_of(self, example: Example) -> Sequence[Hashable]:
        """Its classes."""
        return _labels_of(example)

    def stratum(self, example: Example) -> Hashable:
        """Its class, or its set of classes."""
        return tuple(_labels_of(example))

    def encode_labels(self, records: Records, inputs: Inputs, domain: Domain) -> np.ndarray | None:
        """The number of each record's class, ``[records]``, or 0 and 1 for each class, ``[records, classes]``."""
        if any(example.label is None for example in records.examples):
            return None
        numbers = {label: number for number, label in enumerate(self.labels)}
        if not self.config.multilabel:
            return np.array([numbers[example.label] for example in records.examples], np.int64)
        encoded = np.zeros((len(records), len(self.labels)), np.float32)
        for row, example in enumerate(records.examples):
            encoded[row, [numbers[label] for label in example.label]] = 1.0
        return encoded

    def state(self) -> dict[str, Any]:
        """The classes in order."""
        return {"task": "classification", "labels": self.labels, "multilabel": self.config.multilabel}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the classes of a run."""
        check_state(state, "classification")
        self.labels = list(state["labels"])

    @property
    def outputs_size(self) -> int:
        """One output a class."""
        return len(self.labels)

    @property
    def label_names(self) -> list[str]:
        """The classes."""
        return self.labels

    @property
    def available(self) -> tuple[str, ...]:
        """F1 of one class is for two classes."""
        if self.config.multilabel:
            return MULTILABEL_METRICS
        return tuple(name for name in SINGLE_METRICS if name != "f1" or len(self.labels) == 2)

    @property
    def metric(self) -> str:
        """Accuracy, or micro F1 in multi-label, unless the config names another one."""
        return self.config.metric or ("micro_f1" if self.config.multilabel else "accuracy")

    def loss(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Cross-entropy; for independent classes the mean over them of binary cross-entropy."""
        target = batch.targets[self.term]
        weights = None if self._class_weights is None else self._class_weights.to(logits)
        rows = logits[target.index]
        if self.config.multilabel:
            losses = F.binary_cross_entropy_with_logits(rows, target.labels, weight=weights, reduction="sum")
            return losses / logits.shape[1]
        return F.cross_entropy(
            rows, target.labels, weight=weights, label_smoothing=self.config.label_smoothing, reduction="sum"
        )

    def average(self, source: Source, variants: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Logits of the mean probabilities of each record."""
        logits = [mean_by_record(source.inputs, outputs, len(source.records)) for outputs in variants]
        if not self.config.multilabel:
            return for_sequences(source.inputs, log_mean([_softmax(row) for row in logits]))
        odds = log_mean([_sigmoid(row) for row in logits]) - log_mean([_sigmoid(-row) for row in logits])
        return for_sequences(source.inputs, odds)

    def predict(self, source: Source, outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """The most probable class, or all that are more probable than not; windows of a record are averaged."""
        logits = mean_by_record(source.inputs, outputs, len(source.records))
        predictions = []
        for example, row in zip(source.records.examples, logits, strict=True):
            chances = _sigmoid(row) if self.config.multilabel else _softmax(row)
            details = {"probabilities": {n: round(float(p), 6) for n, p in zip(self.labels, chances, strict=True)}}
            if self.config.multilabel:
                value: Any = [label for label, chance in zip(self.labels, chances, strict=True) if chance > 0.5]
            else:
                value = self.labels[int(row.argmax())]
            predictions.append(Prediction(example.id, value, details, row))
        return predictions

    def scores(self, source: Source, predictions: Sequence[Prediction], resamples: int = 0) -> metrics.Scores:
        """Accuracy, F1, Matthews correlation and areas under curves."""
        logits = np.array([prediction.logits for prediction in predictions]).reshape(-1, len(self.labels))
        gold = np.asarray(source.labels)
        if self.config.multilabel:
            chances = _sigmoid(logits)
            return metrics.multilabel_scores(gold > 0.5, chances > 0.5, chances, self.labels, resamples)
        return metrics.classification_scores(gold, logits.argmax(-1), _softmax(logits), self.labels, resamples)

    def _weights(self, found: Counter[str]) -> Tensor | None:
        """Weights whose mean over the training records is 1, so that the loss keeps its size."""
        asked = self.config.class_weights
        if asked is None:
            return None
        if isinstance(asked, dict):
            unknown = [label for label in asked if label not in self.labels]
            if unknown:
                raise ConfigError(
                    f"task.class_weights has weights for {', '.join(unknown)}, and the classes are "
                    f"{', '.join(self.labels)}."
                )
            weights = np.array([asked.get(label, 1.0) for label in self.labels])
        else:
            weights = np.array([1.0 / max(1, found[label]) for label in self.labels])
        counts = np.array([found[label] for label in self.labels], float)
        return torch.tensor(weights * counts.sum() / max(1e-12, (weights * counts).sum()), dtype=torch.float32)


def _labels_of(example: Example) -> list[str]:
    return list(example.label) if isinstance(example.label, list) else [example.label]


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))
