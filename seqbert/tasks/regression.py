"""Regression: a number for each sequence or pair."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch
from seqbert.data.records import Inputs, Records
from seqbert.domain import Domain, Example
from seqbert.errors import DataError
from seqbert.tasks import metrics
from seqbert.tasks.task import (
    PooledTask,
    Prediction,
    Source,
    check_metric,
    check_state,
    for_sequences,
    mean_by_record,
)

METRICS = ("pearson", "spearman", "mse", "mae", "r2")

_STRATA = 10
"""Parts of equal size that the numbers are stratified by."""


@dataclasses.dataclass
class RegressionConfig:
    """A number for each sequence or pair, as for STS-B (Devlin et al. 2019, section 4.1)."""

    name: Literal["regression"] = "regression"
    """The task."""
    metric: str | None = None
    """What decides which checkpoint is best. Null: mse; a correlation does not see whether the numbers are right."""

    def __post_init__(self) -> None:
        check_metric(self.metric, METRICS)


class Regression(PooledTask[RegressionConfig]):
    """A linear layer over the pooled first token, and the squared error.

    The numbers are standardised by the mean and deviation of the training records, so that one learning rate suits
    every unit of measurement; predictions, metrics and saved weights are in the original unit.
    """

    head = "classification"
    default_metric = "mse"

    def __init__(self, config: RegressionConfig) -> None:
        super().__init__(config)
        self.mean, self.deviation = 0.0, 1.0
        self._edges = np.zeros(0)

    def fit(self, examples: Sequence[Example]) -> None:
        """Nothing: any number may come."""

    def measure(self, examples: Sequence[Example]) -> None:
        """Takes the mean and the deviation of the numbers.

        Raises:
            DataError: All are equal.
        """
        values = np.array([example.label for example in examples], np.float64)
        self.mean, self.deviation = float(values.mean()), float(values.std())
        if not self.deviation > 0:
            raise DataError(
                f"All {len(values):,} training records have the number {self.mean:g}: nothing can be learned."
            )

    def unseen(self, examples: Sequence[Example]) -> Counter[str]:
        """Nothing: any number may come."""
        return Counter()

    def prepare_strata(self, examples: Sequence[Example]) -> None:
        """Takes the deciles of the numbers, by which a validation share is stratified."""
        values = np.array([example.label for example in examples], np.float64)
        self._edges = np.quantile(values, np.linspace(0, 1, _STRATA + 1)[1:-1]) if len(values) else np.zeros(0)

    def stratum(self, example: Example) -> Hashable:
        """The decile of its number."""
        return int(np.searchsorted(self._edges, example.label))

    def encode_labels(self, records: Records, inputs: Inputs, domain: Domain) -> np.ndarray | None:
        """The standardised numbers, ``[records]`` float32."""
        if any(example.label is None for example in records.examples):
            return None
        values = np.array([example.label for example in records.examples], np.float64)
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def state(self) -> dict[str, Any]:
        """The mean and the deviation."""
        return {"task": "regression", "mean": self.mean, "deviation": self.deviation}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the mean and the deviation of a run."""
        check_state(state, "regression")
        self.mean, self.deviation = float(state["mean"]), float(state["deviation"])

    @torch.no_grad()
    def adopt(self, heads: Mapping[str, nn.Module]) -> None:
        """Makes a saved head give standardised numbers again: in half precision those of the unit may be too coarse."""
        linear = cast(nn.Linear, heads[self.head].get_submodule("classifier"))
        linear.weight.div_(self.deviation)
        linear.bias.sub_(self.mean).div_(self.deviation)

    @property
    def outputs_size(self) -> int:
        """One."""
        return 1

    def loss(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """The squared error, in units of the training records' variance."""
        target = batch.targets[self.term]
        return (logits[target.index, 0] - target.labels).square().sum()

    def average(self, source: Source, variants: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """The mean of the numbers of each record."""
        values = [mean_by_record(source.inputs, outputs, len(source.records)) for outputs in variants]
        return for_sequences(source.inputs, np.mean(values, axis=0))

    def predict(self, source: Source, outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """Numbers in the original unit; windows of a record are averaged."""
        values = mean_by_record(source.inputs, outputs, len(source.records))[:, :1] * self.deviation + self.mean
        return [
            Prediction(example.id, float(f"{float(value[0]):.7g}"), {}, value)
            for example, value in zip(source.records.examples, values, strict=True)
        ]

    def scores(self, source: Source, predictions: Sequence[Prediction], resamples: int = 0) -> metrics.Scores:
        """Pearson and Spearman correlation, and errors in the original unit."""
        gold = np.array([example.label for example in source.records.examples], np.float64)
        found = np.array([prediction.logits[0] for prediction in predictions], np.float64)
        return metrics.regression_scores(gold, found, resamples)
