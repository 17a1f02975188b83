"""Tagging: a label for each word, residue, base or note."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqbert.data.augmenting import is_reversed, places_after
from seqbert.data.packing import PackedBatch, Target
from seqbert.data.records import Inputs, Records
from seqbert.data.windows import most_context
from seqbert.domain import Domain, Example
from seqbert.errors import ConfigError
from seqbert.tasks import metrics
from seqbert.tasks.task import Prediction, Source, Task, check_metric, check_state, log_mean, order_labels

METRICS = ("accuracy", "macro_f1", "span_f1", "span_precision", "span_recall")

OUTSIDE = "O"
"""The label of a word that belongs to no span."""

NO_TOKEN = -1
"""Place of a word that has no token."""


@dataclasses.dataclass
class TaggingConfig:
    """A label for each word (Devlin et al. 2019, sections 4 and 5.3)."""

    name: Literal["tagging"] = "tagging"
    """The task."""
    labels: list[str] | None = None
    """The labels in order; null: those of the training records, numbers by value, else by the alphabet."""
    metric: str | None = None
    """What decides which checkpoint is best. Null: span_f1 where the labels are BIO tags, else accuracy."""

    def __post_init__(self) -> None:
        check_metric(self.metric, METRICS)
        if self.labels is not None and len(set(self.labels)) < max(2, len(self.labels)):
            raise ConfigError("labels must be two or more different ones.")


@dataclasses.dataclass(slots=True)
class WordPlan:
    """Which token speaks for each word, and in which sequence.

    Attributes:
        labels: The number of each word's label, or -1 where it is not known, ``[words]``, all records end to end.
        words: Where the words of each record begin, and the end, ``[records + 1]``.
        order: The words that have a token, in the order of the sequences that speak for them.
        place: The place in its sequence of the token of each of these, ``[len(order)]``.
        starts: Where the words of each sequence begin in ``order``, and the end, ``[sequences + 1]``.
        within: Characters from the beginning of that token to that of the word, ``[len(order)]``.
        overlap: Symbols that a token shares with the next.
    """

    labels: np.ndarray
    words: np.ndarray
    order: np.ndarray
    place: np.ndarray
    starts: np.ndarray
    within: np.ndarray
    overlap: int

    def places(self, sequence: int, source: np.ndarray | None) -> np.ndarray:
        """The places of the tokens that speak for a sequence's words, in a variant in which they come from ``source``.

        A token goes where its label goes. But of tokens that overlap the first that begins in a word speaks for it,
        and where they are read the other way round that is the one which ended with it.
        """
        here = slice(int(self.starts[sequence]), int(self.starts[sequence + 1]))
        place = self.place[here]
        if source is None:
            return place
        if self.overlap and is_reversed(source[1:-1]):
            place = np.maximum(place + self.within[here] - self.overlap, 1)
        return np.asarray(places_after(source)[place])


class Tagging(Task[TaggingConfig]):
    """A linear layer over the first token of each word, and cross-entropy.

    Words that are cut into several pieces are learned and scored once, by their first piece, as in the paper; where
    a token spans several symbols it speaks for each of them. In overlapping windows a word is learned and judged in
    the one where it has the most context. A word without any token gets the most frequent label.
    """

    head = "tagging"
    offsets = True
    default_metric = "accuracy"

    def __init__(self, config: TaggingConfig) -> None:
        super().__init__(config)
        self.labels: list[str] = []
        self.most_frequent = ""

    def fit(self, examples: Sequence[Example]) -> None:
        """Fixes the labels and their order."""
        found = Counter(label for example in examples for label in example.label)
        self.labels = order_labels(found, self.config.labels, "labels")

    def measure(self, examples: Sequence[Example]) -> None:
        """Takes the most frequent label."""
        found = Counter(label for example in examples for label in example.label)
        self.most_frequent = max(self.labels, key=lambda label: found[label])

    def unseen(self, examples: Sequence[Example]) -> Counter[str]:
        """Labels that training has not seen."""
        known = set(self.labels)
        return Counter(label for example in examples for label in example.label if label not in known)

    def labels_of(self, example: Example) -> Sequence[Hashable]:
        """Its words' labels."""
        return list(example.label)

    def encode_labels(self, records: Records, inputs: Inputs, domain: Domain) -> WordPlan:
        """Which token speaks for each word of the records, with the words' labels."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        places, within, labels, edges = [], [], [], [0]
        for example, texts in zip(records.examples, records.texts, strict=True):
            words = domain.words_of(example)
            assert records.offsets is not None
            offsets = records.offsets[records.tokens(texts[0])]
            found = tokens_of_words(words, offsets)
            places.append(found)
            within.append(words[:, 0] - offsets[found, 0] if len(offsets) else np.zeros(len(words), np.int64))
            known = example.label if example.label is not None else []
            labels.append([numbers[label] for label in known] if known else [-1] * len(words))
            edges.append(edges[-1] + len(words))
        numbered = np.array([number for row in labels for number in row], np.int64)
        return plan_words(records, inputs, places, within, numbered, edges, domain.overlap)

    def state(self) -> dict[str, Any]:
        """The labels in order."""
        return {"task": "tagging", "labels": self.labels, "most_frequent": self.most_frequent}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the labels of a run."""
        check_state(state, "tagging")
        self.labels, self.most_frequent = list(state["labels"]), str(state["most_frequent"])

    @property
    def outputs_size(self) -> int:
        """One output a label."""
        return len(self.labels)

    @property
    def label_names(self) -> list[str]:
        """The labels."""
        return self.labels

    @property
    def available(self) -> tuple[str, ...]:
        """Scores over spans are for BIO tags."""
        is_spans = metrics.is_span_scheme(self.labels)
        return tuple(name for name in METRICS if is_spans or not name.startswith("span"))

    @property
    def metric(self) -> str:
        """F1 over spans where the labels are BIO tags, else accuracy, unless the config names another one."""
        return self.config.metric or ("span_f1" if metrics.is_span_scheme(self.labels) else "accuracy")

    def target(self, source: Source, chosen: np.ndarray, variants: np.ndarray | None = None) -> Target:
        """The label of each word at its token, in the order of the words, whatever the order of their tokens."""
        plan: WordPlan = source.labels
        lengths = source.inputs.lengths[chosen]
        sources = source.batcher.sources(chosen, variants)
        index, labels = [], []
        for row, (base, sequence) in enumerate(
            zip((np.cumsum(lengths) - lengths).tolist(), chosen.tolist(), strict=True)
        ):
            index.append(base + plan.places(sequence, None if sources is None else sources[row]))
            labels.append(plan.labels[plan.order[plan.starts[sequence] : plan.starts[sequence + 1]]])
        return Target(torch.from_numpy(np.concatenate(index)), torch.from_numpy(np.concatenate(labels)))

    def logits(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> Tensor:
        """``[targets, labels]``, at the words' tokens."""
        logits: Tensor = heads[self.head](hidden[batch.targets[self.term].index])
        return logits

    def loss(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(logits, batch.targets[self.term].labels, reduction="sum")

    def split_outputs(self, logits: np.ndarray, batch: PackedBatch) -> list[np.ndarray]:
        """The rows of each sequence's words, ``[words, labels]``."""
        edges = np.searchsorted(batch.targets[self.term].index.cpu().numpy(), batch.cu_seqlens.cpu().numpy())
        return [logits[low:high] for low, high in pairwise(edges)]

    def average(self, source: Source, variants: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Logarithms of the mean probabilities of each word's labels."""
        return [log_mean([_softmax(row) for row in rows]) for rows in zip(*variants, strict=True)]

    def predict(self, source: Source, outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """A label for each word."""
        plan: WordPlan = source.labels
        total = int(plan.words[-1])
        logits = np.zeros((total, len(self.labels)), np.float32)
        logits[:, self.labels.index(self.most_frequent)] = 1.0
        if total and len(plan.order):
            logits[plan.order] = np.concatenate(list(outputs))
        best = logits.argmax(-1)
        predictions = []
        for number, example in enumerate(source.records.examples):
            low, high = plan.words[number : number + 2]
            tags = [self.labels[label] for label in best[low:high]]
            predictions.append(Prediction(example.id, tags, {}, logits[low:high]))
        return predictions

    def scores(self, source: Source, predictions: Sequence[Prediction], resamples: int = 0) -> metrics.Scores:
        """Accuracy over words; precision, recall and F1 over spans where the labels are BIO tags."""
        gold = [list(example.label) for example in source.records.examples]
        return metrics.tagging_scores(
            gold, [list(prediction.value) for prediction in predictions], resamples, self.labels
        )


def tokens_of_words(words: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The token that speaks for each word: the first that begins in it, else the last that covers its first character.

    Args:
        words: Start and end of each word, ``[words, 2]``.
        offsets: Start and end of each token, ``[tokens, 2]``, the starts rising.

    Returns:
        Numbers of tokens, ``[words]``; :data:`NO_TOKEN` where none touches the word.

    >>> tokens_of_words(np.array([[0, 5], [6, 9]]), np.array([[0, 2], [2, 5], [6, 9]])).tolist()
    [0, 2]
    >>> tokens_of_words(np.array([[0, 1], [1, 2]]), np.array([[0, 2]])).tolist()
    [0, 0]
    """
    if not len(offsets):
        return np.full(len(words), NO_TOKEN)
    starts, ends = words[:, 0], words[:, 1]
    first = np.searchsorted(offsets[:, 0], starts, side="left")
    inside = (first < len(offsets)) & (offsets[np.minimum(first, len(offsets) - 1), 0] < ends)
    before = np.maximum(first - 1, 0)
    covers = (first > 0) & (offsets[before, 1] > starts) & (ends > starts)
    return np.where(inside, first, np.where(covers, before, NO_TOKEN))


def plan_words(
    records: Records,
    inputs: Inputs,
    tokens: Sequence[np.ndarray],
    within: Sequence[np.ndarray],
    labels: np.ndarray,
    edges: Sequence[int],
    overlap: int = 0,
) -> WordPlan:
    """Gives each word that has a token to the sequence in which the token has the most context."""
    owner = np.full(int(edges[-1]), -1, np.int64)
    place = np.zeros(int(edges[-1]), np.int64)
    bounds = inputs.of_record()
    for number, found in enumerate(tokens):
        low, high = int(bounds[number]), int(bounds[number + 1])
        spans = [(int(start), int(stop)) for _, start, stop in inputs.parts[low:high, 0]]
        length = records.length(records.texts[number][0])
        if len(spans) == 1 and spans[0] == (0, length):
            chosen = np.zeros(length, np.int64)
        else:
            chosen = most_context(spans, length)
        reached = np.zeros(length, bool)
        for start, stop in spans:
            reached[start:stop] = True
        known = (found >= 0) & (reached[np.maximum(found, 0)] if length else False)
        here = edges[number] + np.flatnonzero(known)
        window = chosen[found[known]]
        owner[here] = low + window
        place[here] = 1 + found[known] - np.array([start for start, _ in spans], np.int64)[window]
    spoken = np.flatnonzero(owner >= 0)
    order = spoken[np.lexsort((place[spoken], owner[spoken]))]
    starts = np.searchsorted(owner[order], np.arange(len(inputs) + 1))
    inside = np.concatenate([np.zeros(0, np.int64), *within])[order]
    return WordPlan(labels, np.asarray(edges, np.int64), order, place[order], starts, inside, overlap)


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp((logits - logits.max(axis=-1, keepdims=True)).astype(np.float64))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
