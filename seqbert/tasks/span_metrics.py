"""Metrics of answers that are stretches of a text, as SQuAD's evaluation scripts count them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seqbert.errors import TrainingError
from seqbert.tasks.intervals import Scores, measured, share, without_records

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MARGIN = 1.0  # of a threshold beyond all scores, in their unit: nats


def squad_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str], resamples: int = 0) -> Scores:
    """Exact match and F1 of answers (Rajpurkar et al. 2016, 6.1; with questions without answer, 2018, 5).

    Both take the best of a question's gold answers, over answers as :func:`normalised` gives them. F1 is that of
    the words that the two answers share. Where there is no answer, only "" is right. Gold answers of which nothing
    is left are not counted, as in SQuAD 2.0's script. All are shares of 1, where the scripts print percentages.

    Args:
        gold: The texts that are right for each question; none where it has no answer.
        predicted: The predicted text; "" for no answer.
        resamples: Draws of the bootstrap; 0: no intervals.

    Returns:
        ``exact_match`` and ``f1``; where some questions have an answer and some have none also
        ``answerable_exact_match``, ``answerable_f1`` and ``unanswerable_accuracy``.
    """
    pairs = list(zip(gold, predicted, strict=True))
    exact = np.array([exact_match(answers, text) for answers, text in pairs], np.float64)
    f1 = np.array([word_f1(answers, text) for answers, text in pairs], np.float64)
    answerable = np.array([bool(answers) for answers, _ in pairs], np.float64)
    questions = np.ones(len(pairs))

    def statistics(draws: np.ndarray) -> dict[str, np.ndarray]:
        values = {"exact_match": share(exact, questions, draws), "f1": share(f1, questions, draws)}
        if 0 < answerable.sum() < len(pairs):
            values["answerable_exact_match"] = share(exact * answerable, answerable, draws)
            values["answerable_f1"] = share(f1 * answerable, answerable, draws)
            values["unanswerable_accuracy"] = share(exact * (1 - answerable), 1 - answerable, draws)
        return values

    scores = measured(statistics, questions, resamples)
    return scores if pairs else without_records(scores, "there are no questions")


def best_threshold(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], null_minus_best: Sequence[float]
) -> tuple[float, Scores]:
    """The no-answer threshold with the highest F1 (SQuAD 2.0's script; Devlin et al. 2019, 4.3), in O(n log n).

    A question is answered where its score is at most the threshold. Of thresholds that are equally good, the one
    with the fewest answers is taken; it lies midway between the scores that it parts, so that rounding
    elsewhere does not change an answer.

    Args:
        gold: The texts that are right for each question; none where it has no answer.
        predicted: The best answer to each, were it answered.
        null_minus_best: Score of no answer less that of the best answer; plus infinity where nothing can be
            answered.

    Returns:
        The threshold and the scores with it; 0 where no question has a finite score.

    Raises:
        TrainingError: A score is not a number.
    """
    odds = np.asarray(null_minus_best, np.float64)
    if np.isnan(odds).any():
        raise TrainingError(
            f"the no-answer score of question {np.flatnonzero(np.isnan(odds))[0]} (counted from 0) is not a number: "
            "the model's weights cannot be used. Train it again with a lower learning rate or a longer warm-up"
        )
    gains = np.array(
        [word_f1(answers, text) - word_f1(answers, "") for answers, text in zip(gold, predicted, strict=True)]
    )
    finite = np.isfinite(odds)
    levels, group = np.unique(odds[finite], return_inverse=True)
    threshold = 0.0
    if len(levels):
        # Number k of the totals is what is gained where the k lowest levels are answered.
        totals = np.concatenate([[0.0], np.cumsum(np.bincount(group, gains[finite], len(levels)))])
        edges = np.concatenate([[levels[0] - 2 * _MARGIN], levels, [levels[-1] + 2 * _MARGIN]])
        best = int(np.flatnonzero(totals >= totals.max() - 1e-9)[0])  # sums of shares are not exact
        threshold = float((edges[best] + edges[best + 1]) / 2)
    given = [text if score <= threshold else "" for text, score in zip(predicted, odds, strict=True)]
    return threshold, squad_scores(gold, given)


def exact_match(answers: Sequence[str], predicted: str) -> float:
    """Whether a predicted text is one of the right ones after :func:`normalised`, 1 or 0; no answer: only "" is."""
    return float(normalised(predicted) in _counted(answers))


def word_f1(answers: Sequence[str], predicted: str) -> float:
    """The best F1 of the words of a predicted text against those of the right ones; no answer: 1 for "", else 0.

    >>> word_f1(["the cat sat", "a dog"], "cat sits")
    0.5
    """
    words = Counter(normalised(predicted).split())
    best = 0.0
    for answer in _counted(answers):
        gold = Counter(answer.split())
        total = words.total() + gold.total()
        best = max(best, 2 * (words & gold).total() / total if total else 1.0)
    return best


def normalised(answer: str) -> str:
    """An answer as it is compared: in lower case, without ASCII punctuation, without a, an and the, words once apart.

    It is SQuAD's rule for English, kept for every language so that results compare with what is published: other
    languages keep their articles, and in a script without blanks an answer is one word, so that its F1 is its
    exact match.

    >>> normalised("The  U.S.A., an idea")
    'usa idea'
    """
    return " ".join(_ARTICLE.sub(" ", answer.lower().translate(_WITHOUT_PUNCTUATION)).split())


def _counted(answers: Sequence[str]) -> list[str]:
    """The right answers after :func:`normalised`; [""] where nothing is left of any."""
    return [answer for answer in map(normalised, answers) if answer] or [""]
