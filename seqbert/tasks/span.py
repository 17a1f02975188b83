"""Extractive question answering: the stretch of the context that answers a question, or none."""

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
from torch.nn.utils.rnn import pad_sequence

from seqbert.data.augmenting import is_reversed, places_after
from seqbert.data.packing import PackedBatch, Target
from seqbert.data.records import Inputs, Records
from seqbert.data.windows import most_context
from seqbert.domain import Domain, Example
from seqbert.errors import ConfigError, DataError
from seqbert.tasks import metrics
from seqbert.tasks.task import Prediction, Source, Task, check_metric, check_state

METRICS = (
    "f1",
    "exact_match",
    "answerable_f1",
    "answerable_exact_match",
    "unanswerable_accuracy",
    "best_answer_f1",
    "best_answer_exact_match",
)

CANDIDATES = 20
"""Best starts and best ends of a window that are paired (as in BERT's released code)."""


@dataclasses.dataclass
class SpanConfig:
    """Start and end of the answer in the context (Devlin et al. 2019, sections 4.2 and 4.3)."""

    name: Literal["span"] = "span"
    """The task."""
    no_answer: bool | None = None
    """Whether a question may have no answer, as in SQuAD v2.0. Null: whether a training record has none."""
    threshold: float | None = None
    """Say "no answer" where its score exceeds the best answer's by more. Null: what gives the best F1 on validation."""
    max_answer_tokens: int = 30
    """Most tokens of an answer."""
    best: int = 20
    """Answers that are written for each question, the best first."""
    metric: str | None = None
    """What decides which checkpoint is best. Null: f1."""

    def __post_init__(self) -> None:
        check_metric(self.metric, METRICS)
        if self.max_answer_tokens < 1 or self.best < 1:
            raise ConfigError("max_answer_tokens and best must be at least 1.")


@dataclasses.dataclass(slots=True)
class AnswerPlan:
    """Where the answers are.

    Attributes:
        spans: First and last place of the answer in each sequence, ``[sequences, 2]``; 0, the place of [CLS], where
            the sequence does not hold it whole.
        answers: The texts of each record's answers; None where they are not known.
    """

    spans: np.ndarray
    answers: list[list[str]] | None


class SpanAnswering(Task[SpanConfig]):
    """A start and an end score for each token; an answer's score is their sum.

    "No answer" is the span from [CLS] to [CLS]. A context in several windows has the best answer of all of them, each
    token counted where it has the most context, and the lowest no-answer score.
    """

    head = "span"
    shape = "question"
    offsets = True
    default_metric = "f1"

    def __init__(self, config: SpanConfig) -> None:
        super().__init__(config)
        self.no_answer = bool(config.no_answer)
        self.threshold = config.threshold or 0.0

    def fit(self, examples: Sequence[Example]) -> None:
        """Takes whether there are questions without an answer.

        Raises:
            DataError: There are, and the config says there are not; or none has an answer.
        """
        without = sum(not example.label for example in examples)
        if without == len(examples):
            raise DataError("None of the training records has an answer in its context.")
        if self.config.no_answer is None:
            self.no_answer = without > 0
        elif without and not self.config.no_answer:
            raise DataError(
                f"{without:,} training records have no answer, and task.no_answer is false: set it to true, or take "
                "them out."
            )

    def unseen(self, examples: Sequence[Example]) -> Counter[str]:
        """Nothing: any answer may come."""
        return Counter()

    def stratum(self, example: Example) -> Hashable:
        """Whether it has an answer."""
        return bool(example.label)

    def encode_labels(self, records: Records, inputs: Inputs, domain: Domain) -> AnswerPlan:
        """The place of each answer in the sequences, and the answers' texts."""
        spans = np.zeros((len(inputs), 2), np.int64)
        if any(example.label is None for example in records.examples):
            return AnswerPlan(spans, None)
        for sequence, (record, (question, context)) in enumerate(
            zip(inputs.record.tolist(), inputs.parts.tolist(), strict=True)
        ):
            answers = records.examples[record].label
            if not answers:
                continue
            offsets = records.offsets[records.tokens(context[0])]  # type: ignore[index]
            first, last = _tokens_of(answers[0], offsets)
            if context[1] <= first <= last < context[2]:
                base = question[2] - question[1] + 2 - context[1]
                spans[sequence] = first + base, last + base
        texts = [[example.sequences[1][start:end] for start, end in example.label] for example in records.examples]
        return AnswerPlan(spans, texts)

    def state(self) -> dict[str, Any]:
        """Whether there may be no answer, and the threshold."""
        return {"task": "span", "no_answer": self.no_answer, "threshold": self.threshold}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes them from a run."""
        check_state(state, "span")
        self.no_answer, self.threshold = bool(state["no_answer"]), float(state["threshold"])

    @property
    def outputs_size(self) -> int:
        """Two: start and end."""
        return 2

    @property
    def available(self) -> tuple[str, ...]:
        """Scores of questions with and without an answer are for data that has both."""
        return METRICS if self.no_answer else METRICS[:2]

    def target(self, source: Source, chosen: np.ndarray, variants: np.ndarray | None = None) -> Target:
        """First and last place of the answer in each sequence, ``[sequences, 2]``."""
        spans = source.labels.spans[chosen]
        sources = source.batcher.sources(chosen, variants)
        if sources is not None:
            ends = [places_after(moved)[span] for moved, span in zip(sources, spans, strict=True)]
            spans = np.sort(np.array(ends, np.int64).reshape(-1, 2), axis=1)  # where the other way round, end and start
        return Target(torch.arange(len(chosen)), torch.from_numpy(spans), of_sequences=True)

    def logits(self, hidden: Tensor, batch: PackedBatch, heads: Mapping[str, nn.Module]) -> Tensor:
        """``[tokens, 2]``."""
        logits: Tensor = heads[self.head](hidden)
        return logits

    def loss(self, logits: Tensor, batch: PackedBatch) -> Tensor:
        """Mean of the cross-entropies of start and end, each over the places of its sequence."""
        labels = batch.targets[self.term].labels
        padded = pad_sequence(
            list(torch.split(logits, list(batch.lengths))), batch_first=True, padding_value=-torch.inf
        )
        losses = [F.cross_entropy(padded[:, :, side], labels[:, side], reduction="sum") for side in (0, 1)]
        return 0.5 * (losses[0] + losses[1])

    def split_outputs(self, logits: np.ndarray, batch: PackedBatch) -> list[np.ndarray]:
        """``[length, 2]`` for each sequence."""
        return [logits[low:high] for low, high in pairwise(batch.cu_seqlens.tolist())]

    def moved_back(self, source: Source, number: int, output: np.ndarray) -> np.ndarray:
        """The scores at their tokens; where a part is read the other way round, starts and ends change roles."""
        sources = source.batcher.sources(np.array([number]))
        if sources is None:
            return output
        found: np.ndarray = output[places_after(sources[0])]
        base = 1
        for text, first, last in source.inputs.parts[number].tolist():
            if text >= 0:
                here = slice(base, base + last - first)
                if is_reversed(sources[0][here]):
                    found[here] = found[here, ::-1]
                base = here.stop + 1
        return found

    def average(self, source: Source, variants: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """The mean scores of each token."""
        return [np.mean(rows, axis=0) for rows in zip(*variants, strict=True)]

    def predict(self, source: Source, outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """The best answer of each record, others that are nearly as good, and how likely there is none."""
        bounds = source.inputs.of_record()
        predictions = []
        for number in range(len(source.records)):
            here = slice(int(bounds[number]), int(bounds[number + 1]))
            parts, logits = source.inputs.parts[here], outputs[here]
            found = self._candidates(source.records, number, parts, logits)
            null = min(float(window[0].sum()) for window in logits)
            predictions.append(self._decided(self._prediction(source.records, number, found, null)))
        return predictions

    def calibrate(self, source: Source, predictions: list[Prediction]) -> list[Prediction]:
        """Sets the threshold to what gives the best F1, unless the config fixes it."""
        if not self.no_answer or self.config.threshold is not None or source.labels.answers is None:
            return predictions
        best = [prediction.details["best_answer"] for prediction in predictions]
        odds = [float(prediction.logits[0]) for prediction in predictions]
        self.threshold, _ = metrics.best_threshold(source.labels.answers, best, odds)
        return [self._decided(prediction) for prediction in predictions]

    def scores(self, source: Source, predictions: Sequence[Prediction], resamples: int = 0) -> metrics.Scores:
        """Exact match and F1 as SQuAD's script counts them.

        Where there may be no answer, ``best_answer_f1`` and ``best_answer_exact_match`` say beside them how good the
        best answers to answerable questions are, had none been withheld.
        """
        answers = source.labels.answers
        scores = metrics.squad_scores(answers, [str(p.value) for p in predictions], resamples)
        if self.no_answer:
            for name in METRICS[2:5]:
                scores.setdefault(name, metrics.Metric(None, note="the records have questions of one kind only"))
            pairs = [(gold, p.details["best_answer"]) for gold, p in zip(answers, predictions, strict=True) if gold]
            forced = metrics.squad_scores([gold for gold, _ in pairs], [found for _, found in pairs], resamples)
            scores |= {f"best_answer_{name}": forced[name] for name in ("exact_match", "f1")}
        return scores

    def _candidates(
        self, records: Records, number: int, parts: np.ndarray, outputs: Sequence[np.ndarray]
    ) -> list[tuple[float, int, int]]:
        """Score, first and last token of stretches of a record's context, the best first."""
        spans = [(int(start), int(stop)) for _, start, stop in parts[:, 1]]
        owner = most_context(spans, records.length(records.texts[number][1]))
        found: list[tuple[float, int, int]] = []
        for window, ((question, (_, start, stop)), logits) in enumerate(zip(parts.tolist(), outputs, strict=True)):
            base = question[2] - question[1] + 2
            here = logits[base : base + stop - start].astype(np.float64)
            begins = np.argsort(-here[:, 0], kind="stable")[:CANDIDATES]
            ends = np.argsort(-here[:, 1], kind="stable")[:CANDIDATES]
            first, last = np.repeat(begins, len(ends)), np.tile(ends, len(begins))
            valid = (last >= first) & (last - first < self.config.max_answer_tokens)
            valid &= owner[first + start] == window if len(owner) else False
            first, last = first[valid], last[valid]
            values = here[first, 0] + here[last, 1]
            found += zip(values.tolist(), (first + start).tolist(), (last + start).tolist(), strict=True)
        return sorted(found, key=lambda row: (-row[0], row[1], row[2]))

    def _prediction(
        self, records: Records, number: int, found: list[tuple[float, int, int]], null: float
    ) -> Prediction:
        """A record's answers in characters; what to say is decided later."""
        example = records.examples[number]
        offsets = records.offsets[records.tokens(records.texts[number][1])]  # type: ignore[index]
        answers: dict[str, dict[str, Any]] = {}
        for score, first, last in found:
            start, end = _without_blanks(example.sequences[1], int(offsets[first, 0]), int(offsets[last, 1]))
            text = example.sequences[1][start:end]
            if text and text not in answers:
                answers[text] = {"text": text, "start": start, "end": end, "score": round(score, 6)}
            if len(answers) == self.config.best:
                break
        best = list(answers.values())
        odds = null - best[0]["score"] if best else np.inf
        if self.no_answer or not best:
            best.append({"text": "", "start": 0, "end": 0, "score": round(null, 6)})
        raised = np.exp(np.array([answer["score"] for answer in best]) - max(answer["score"] for answer in best))
        for answer, chance in zip(best, raised / raised.sum(), strict=True):
            answer["probability"] = round(float(chance), 6)
        best.sort(key=lambda answer: -answer["score"])
        best_answer = next(iter(answers), "")
        details = {"best_answer": best_answer, "null_odds": None if np.isinf(odds) else round(odds, 6), "n_best": best}
        return Prediction(example.id, best_answer, details, np.array([odds]))

    def _decided(self, prediction: Prediction) -> Prediction:
        """The prediction with no answer where that is likelier by more than the threshold."""
        silent = self.no_answer and prediction.logits[0] > self.threshold
        return dataclasses.replace(prediction, value="" if silent else prediction.details["best_answer"])


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """A stretch less the blanks at its ends."""
    found = text[start:end]
    return start + len(found) - len(found.lstrip()), end - len(found) + len(found.rstrip())


def _tokens_of(answer: tuple[int, int], offsets: np.ndarray) -> tuple[int, int]:
    """First and last token of a stretch of characters."""
    start, end = answer
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1
    return first, last
