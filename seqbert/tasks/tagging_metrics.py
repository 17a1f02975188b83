"""Metrics of a label a word: over words, and over the spans that BIO-like labels spell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqbert.tasks.intervals import Scores, explain, mean_f1, measured, share, without_records

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_SPAN_LABEL = re.compile(r"[BIESLU]-.+", re.DOTALL)
_BEGINS_OR_GOES_ON = ("B", "I")
_INSIDE = ("I", "E", "L")


def tagging_scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    resamples: int = 0,
    labels: Iterable[str] = (),
) -> Scores:
    """Metrics of labelled sentences, resampled by sentence because the words of one depend on each other.

    Args:
        gold: The true labels of the words of each sentence.
        predicted: The predicted ones, as many.
        resamples: Draws of the bootstrap; 0: no intervals.
        labels: Labels of the task that may be absent here; they only help to tell a span scheme.

    Returns:
        ``accuracy`` per word and ``macro_f1`` over the labels in gold or predicted; where labels are a span
        scheme (:func:`is_span_scheme`) also ``span_precision``, ``span_recall`` and ``span_f1`` over the spans of
        all types (micro), 0 by convention where there is nothing to count.

    Raises:
        ValueError: A sentence has more or fewer predicted than true labels.
    """
    _check_lengths(gold, predicted)
    words = np.array([len(sentence) for sentence in gold], np.float64)
    held = sorted({label for sentences in (gold, predicted) for sentence in sentences for label in sentence})
    agreed = [[a for a, b in zip(*pair, strict=True) if a == b] for pair in zip(gold, predicted, strict=True)]
    right = np.array([len(sentence) for sentence in agreed], np.float64)
    hits, true, answered = (_counts(sentences, held) for sentences in (agreed, gold, predicted))
    spans = _span_counts(gold, predicted) if is_span_scheme([*held, *labels]) else None

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        values = {
            "accuracy": share(right, words, draws),
            "macro_f1": mean_f1(hits @ draws, true @ draws, answered @ draws),
        }
        if spans is not None:
            found, there, guessed = spans
            values["span_precision"] = share(found, guessed, draws)
            values["span_recall"] = share(found, there, draws)
            values["span_f1"] = share(2 * found, there + guessed, draws)
        return values

    scores = measured(statistics, np.ones(len(gold), np.int64), resamples)
    if not words.sum():
        return without_records(scores, "there are no labelled words")
    if spans is not None:
        _, there, guessed = (part.sum() for part in spans)
        if not guessed:
            explain(scores, "span_precision", "0 by convention: no span is predicted", 0.0)
        if not there:
            explain(scores, "span_recall", "0 by convention: there is no span to find", 0.0)
        if not there and not guessed:
            explain(scores, "span_f1", "0 by convention: there is no span, and none is predicted", 0.0)
    return scores


def span_report(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, dict[str, float | int | None]]:
    """For each type of span in gold or predicted its ``precision``, ``recall``, ``f1``, ``support`` and ``predicted``.

    ``support`` and ``predicted`` count the spans of that type in gold and in the predictions. A share of nothing is
    None: the precision of a type that is never predicted, the recall of one that is never there.

    >>> span_report([["O", "O"]], [["B-X", "O"]])
    {'X': {'precision': 0.0, 'recall': None, 'f1': 0.0, 'support': 0, 'predicted': 1}}

    Raises:
        ValueError: A sentence has more or fewer predicted than true labels.
    """
    _check_lengths(gold, predicted)
    there, guessed, found = Counter[str](), Counter[str](), Counter[str]()
    for true, answer in zip(gold, predicted, strict=True):
        true_spans, answer_spans = spans_of(true), spans_of(answer)
        there.update(kind for kind, _, _ in true_spans)
        guessed.update(kind for kind, _, _ in answer_spans)
        found.update(kind for kind, _, _ in set(true_spans) & set(answer_spans))
    return {
        kind: {
            "precision": found[kind] / guessed[kind] if guessed[kind] else None,
            "recall": found[kind] / there[kind] if there[kind] else None,
            "f1": 2 * found[kind] / (there[kind] + guessed[kind]),
            "support": there[kind],
            "predicted": guessed[kind],
        }
        for kind in sorted(there | guessed)
    }


def is_span_scheme(labels: Iterable[str]) -> bool:
    """Whether labels spell spans: each is ``O`` or a type after ``B-``, ``I-``, ``E-``, ``S-``, ``L-`` or ``U-``.

    At least one has to begin with ``B-`` or ``I-``; so IOB1, IOB2, IOBES and BILOU are span schemes, and parts of
    speech are not.

    >>> is_span_scheme(["O", "B-PER", "I-PER"]), is_span_scheme(["NOUN", "O"]), is_span_scheme(["O"])
    (True, False, False)
    """
    kinds = {label for label in labels if label != "O"}
    return all(map(_SPAN_LABEL.fullmatch, kinds)) and any(kind[0] in _BEGINS_OR_GOES_ON for kind in kinds)


def spans_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Type, first word and one past the last word of each span, as conlleval (CoNLL-2000) and seqeval count them.

    A span begins at ``B-``, ``S-`` or ``U-``, and also at an ``I-``, ``E-`` or ``L-`` that no word of its type
    goes before; it ends with ``E-``, ``L-``, ``S-`` or ``U-`` and before whatever does not go on with it.

    >>> spans_of(["I-PER", "I-PER", "O", "B-LOC", "I-PER"])
    [('PER', 0, 2), ('LOC', 3, 4), ('PER', 4, 5)]
    """
    spans: list[tuple[str, int, int]] = []
    before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        prefix, _, kind = tag.partition("-")
        if prefix in _INSIDE and before in _BEGINS_OR_GOES_ON and kind == kind_before:
            spans[-1] = (kind, spans[-1][1], place + 1)
        elif prefix != "O":
            spans.append((kind, place, place + 1))
        before, kind_before = prefix, kind
    return spans


def _counts(sentences: Sequence[Sequence[str]], labels: Sequence[str]) -> csr_array:
    """How often each sentence has each label, ``[labels, sentences]``."""
    from scipy.sparse import csr_array

    number = {label: place for place, label in enumerate(labels)}
    rows = np.array([number[label] for sentence in sentences for label in sentence], np.int64)
    columns = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    # Repeated places add up.
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(labels), len(sentences)))


def _span_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> tuple[np.ndarray, ...]:
    """Spans of each sentence that are found, there and predicted, ``[sentences]`` each."""
    pairs = [(set(spans_of(true)), set(spans_of(answer))) for true, answer in zip(gold, predicted, strict=True)]
    counts = [(len(true & answer), len(true), len(answer)) for true, answer in pairs]
    return tuple(np.array(counts, np.float64).reshape(-1, 3).T)


def _check_lengths(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    for number, (true, answer) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(answer):
            raise ValueError(f"sentence {number} has {len(true)} true labels and {len(answer)} predicted ones")
