"""Choice: which of several continuations or answers is the right one."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from seqbert.data.packing import PackedBatch, Target
from seqbert.data.records import Inputs, Records
from seqbert.domain import Domain, Example
from seqbert.errors import DataError
from seqbert.tasks import metrics
from seqbert.tasks.task import PooledTask, Prediction, Source, check_metric, check_state, log_mean

METRICS = ("accuracy",)


@dataclasses.dataclass
class ChoiceConfig:
    """One right choice of several (Devlin et al. 2019, section 4.4, SWAG)."""

    name: Literal["choice"] = "choice"
    """The task."""
    metric: str | None = None
    """What decides which checkpoint is best. Null: accuracy."""

    def __post_init__(self) -> None:
        check_metric(self.metric, METRICS)


class Choice(PooledTask[ChoiceConfig]):
    """A score for each pair of context and choice, and cross-entropy over the choices of a record.

    Records may have different numbers of choices. A choice in several windows has their mean score.
    """

    head = "choice"
    shape = "choices"
    default_metric = "accuracy"

    def fit(self, examples: Sequence[Example]) -> None:
        """Makes sure that there is something to choose from.

        Raises:
            DataError: A record has fewer than two choices.
        """
        for example in examples:
            if len(example.sequences) < 3:
                raise DataError(f"{example.source}: the record has fewer than two choices.")

    def unseen(self, examples: Sequence[Example]) -> Counter[str]:
        """Nothing: choices are the records' own."""
        return Counter()

    def stratum(self, example: Example) -> Hashable:
        """The number of the right choice."""
        return int(example.label)

    def encode_labels(self, records: Records, inputs: Inputs, domain: Domain) -> np.ndarray | None:
        """The number of the right choice of each record, ``[records]``."""
        if any(example.label is None for example in records.examples):
            return None
        return np.array([example.label for example in records.examples], np.int64)

    def state(self) -> dict[str, Any]:
        """Nothing but the task's name."""
        return {"task": "choice"}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Makes sure that a run is of this task."""
        check_state(state, "choice")

    @property
    def outputs_size(self) -> int:
        """One: a choice's score."""
        return 1

    def target(self, source: Source, chosen: np.ndarray, variants: np.ndarray | None = None) -> Target:
        """The right choice of each record, at its first sequence."""
        record = source.inputs.record[chosen]
        firsts = np.flatnonzero(np.diff(record, prepend=-1))
        labels = torch.from_numpy(source.labels[record[firsts]])
        return Target(torch.from_numpy(firsts), labels, of_sequences=True)

    def loss(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Cross-entropy over the choices of each record."""
        assert batch.choice is not None
        pairs, member = torch.unique_consecutive(
            torch.stack([batch.record, batch.choice], dim=1), dim=0, return_inverse=True
        )
        sums = logits.new_zeros(len(pairs)).index_add(0, member, logits[:, 0])
        means = sums / torch.bincount(member, minlength=len(pairs))
        _, counts = torch.unique_consecutive(pairs[:, 0], return_counts=True)
        padded = pad_sequence(list(torch.split(means, counts.tolist())), batch_first=True, padding_value=-torch.inf)
        return F.cross_entropy(padded, batch.targets[self.term].labels, reduction="sum")

    def average(self, source: Source, variants: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Logarithms of the mean probability of each choice, at each of its windows."""
        means = [_means(source.inputs, outputs) for outputs in variants]
        bounds, found = source.inputs.of_record(), []
        for number, rows in enumerate(zip(*means, strict=True)):
            scores = log_mean([_chances(row) for row in rows])
            choices = source.inputs.choice[bounds[number] : bounds[number + 1]]
            found += list(scores[choices][:, None])
        return found

    def predict(self, source: Source, outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """The best choice of each record and the probability of each."""
        predictions = []
        for example, means in zip(source.records.examples, _means(source.inputs, outputs), strict=True):
            chances = [round(float(chance), 6) for chance in _chances(means)]
            predictions.append(Prediction(example.id, int(means.argmax()), {"probabilities": chances}, means))
        return predictions

    def scores(self, source: Source, predictions: Sequence[Prediction], resamples: int = 0) -> metrics.Scores:
        """Accuracy."""
        found = np.array([prediction.value for prediction in predictions], np.int64)
        choices = max(len(example.sequences) - 1 for example in source.records.examples)
        return metrics.choice_scores(source.labels, found, choices, resamples)


def _means(inputs: Inputs, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each record the score of each choice, the mean over its windows, ``[choices]``."""
    bounds, found = inputs.of_record().tolist(), []
    for low, high in pairwise(bounds):
        scores = np.array([row[0] for row in outputs[low:high]], np.float64)
        choice = inputs.choice[low:high]
        found.append(np.bincount(choice, scores) / np.bincount(choice))
    return found


def _chances(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max())
    return np.asarray(raised / raised.sum())
