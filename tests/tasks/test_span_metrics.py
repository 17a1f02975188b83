import collections
import json
import re
import string
from pathlib import Path

import numpy as np
import pytest

from seqbert.errors import TrainingError
from seqbert.tasks.metrics import best_threshold, squad_scores
from seqbert.tasks.span_metrics import normalised, word_f1

WORDS = ["the", "a", "red", "Red", "fox", "fox,", "jumps", "over", "lazy", "dog", "U.S.", "1/2"]


def questions(seed: int, count: int) -> tuple[list[list[str]], list[str], np.ndarray]:
    """Gold answers, predicted ones, and no-answer scores that know a little about the gold."""
    generator = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(generator.choice(WORDS, generator.integers(1, 5)))

    gold = [[text() for _ in range(generator.integers(0, 4))] for _ in range(count)]
    predicted = [answers[0] if answers and generator.random() < 0.5 else text() for answers in gold]
    odds = np.array([(not answers) + generator.normal() for answers in gold])
    return gold, predicted, odds


def by_the_rule(answers: list[str], predicted: str) -> tuple[float, float]:
    """Exact match and F1 as the two SQuAD papers state them, counted step by step."""

    def plain(text: str) -> list[str]:
        text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    golds = [words for words in map(plain, answers) if words] or [[]]
    given = plain(predicted)
    best = 0.0
    for words in golds:
        shared = sum((collections.Counter(words) & collections.Counter(given)).values())
        if not words or not given:
            best = max(best, float(words == given))
        elif shared:
            precision, recall = shared / len(given), shared / len(words)
            best = max(best, 2 * precision * recall / (precision + recall))
    return float(given in golds), best


def test_exact_match_and_f1_follow_the_rule_of_squad() -> None:
    gold, predicted, _ = questions(0, 500)
    rows = np.array([by_the_rule(*pair) for pair in zip(gold, predicted, strict=True)])
    there = np.array([bool(answers) for answers in gold])
    scores = squad_scores(gold, predicted)
    assert {name: metric.value for name, metric in scores.items()} == pytest.approx(
        {
            "exact_match": rows[:, 0].mean(),
            "f1": rows[:, 1].mean(),
            "answerable_exact_match": rows[there, 0].mean(),
            "answerable_f1": rows[there, 1].mean(),
            "unanswerable_accuracy": rows[~there, 0].mean(),
        }
    )


@pytest.mark.parametrize(
    ("answer", "compared"),
    [
        ("The Eiffel Tower", "eiffel tower"),
        ("  an   apple\n", "apple"),
        ("U.S.", "us"),
        ("a", ""),
        ("1/2", "12"),
        ("theatre", "theatre"),
        ("rock-the-boat", "rocktheboat"),
        ("café «noir»", "café «noir»"),
        ("東京都", "東京都"),
    ],
)
def test_answers_are_compared_without_case_ascii_punctuation_and_articles(answer: str, compared: str) -> None:
    assert normalised(answer) == compared


def test_worked_example_of_f1() -> None:
    """Two of three predicted words are among the two gold ones: precision 2/3, recall 1, F1 4/5."""
    assert word_f1(["red fox", "nothing"], "a quick red fox") == pytest.approx(0.8)


def test_repeated_words_count_as_often_as_both_have_them() -> None:
    """Precision 1/3, recall 1."""
    assert word_f1(["dog"], "dog dog dog") == pytest.approx(0.5)


def test_a_question_without_answer_is_right_only_if_nothing_is_given() -> None:
    scores = squad_scores([[], []], ["", "something"])
    assert scores["exact_match"].value == scores["f1"].value == 0.5
    assert "unanswerable_accuracy" not in scores, "there are no answerable questions to set it apart from"


def test_gold_answers_of_articles_alone_are_not_counted() -> None:
    assert word_f1(["The", "red fox"], "") == 0
    assert word_f1(["The"], "") == 1


def test_no_questions_give_no_values() -> None:
    scores = squad_scores([], [], resamples=10)
    assert {(metric.value, metric.note) for metric in scores.values()} == {(None, "there are no questions")}
    assert best_threshold([], [], []) == (0.0, scores)


def test_the_threshold_is_the_best_of_all() -> None:
    gold, predicted, odds = questions(1, 300)
    odds = odds.round(1)  # with ties
    threshold, scores = best_threshold(gold, predicted, odds)
    for other in [-np.inf, *np.unique(odds)]:
        given = [text if score <= other else "" for text, score in zip(predicted, odds, strict=True)]
        assert squad_scores(gold, given)["f1"].value <= scores["f1"].value + 1e-12
    given = [text if score <= threshold else "" for text, score in zip(predicted, odds, strict=True)]
    assert squad_scores(gold, given) == scores
    assert np.abs(odds - threshold).min() > 1e-6, "a score at the threshold would hang on rounding"


def test_the_threshold_may_lie_beyond_all_scores() -> None:
    threshold, scores = best_threshold([[], []], ["x", "y"], [-3.0, 2.0])
    assert threshold < -3 and scores["f1"].value == 1
    threshold, scores = best_threshold([["x"], ["y"]], ["x", "y"], [-3.0, 2.0])
    assert threshold > 2 and scores["f1"].value == 1


def test_of_equally_good_thresholds_the_one_with_the_fewest_answers_is_taken() -> None:
    threshold, _ = best_threshold([["x"], ["y"], []], ["x", "wrong", "wrong"], [0.0, 1.0, 2.0])
    assert threshold == 0.5


def test_questions_that_cannot_be_answered_have_an_infinite_score() -> None:
    threshold, scores = best_threshold([["x"], []], ["x", "y"], [0.0, np.inf])
    assert np.isfinite(threshold) and scores["f1"].value == 1
    threshold, scores = best_threshold([["x"], []], ["x", ""], [-np.inf, np.inf])
    assert threshold == 0 and scores["f1"].value == 1


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(TrainingError, match="question 1 .*not a number"):
        best_threshold([["x"], ["y"]], ["x", "y"], [0.0, np.nan])


def test_questions_asked_twenty_times_have_the_threshold_of_one_time() -> None:
    gold, predicted, odds = questions(2, 1000)
    threshold, scores = best_threshold(gold * 20, predicted * 20, np.tile(odds, 20))
    once, scores_once = best_threshold(gold, predicted, odds)
    assert threshold == once
    assert scores["f1"].value == pytest.approx(scores_once["f1"].value)


def test_the_interval_of_exact_match_is_that_of_a_share() -> None:
    gold = [["x"]] * 400
    metric = squad_scores(gold, ["x"] * 100 + ["y"] * 300, resamples=1000)["exact_match"]
    error = 1.96 * np.sqrt(0.25 * 0.75 / 400)
    assert metric.low == pytest.approx(0.25 - error, abs=0.01)
    assert metric.high == pytest.approx(0.25 + error, abs=0.01)


def test_real_questions_answered_with_their_own_answers_are_all_right(shared_data: Path) -> None:
    path = shared_data / "text" / "squad2_cs224n_dev" / "dev-v2.0.json"
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    rows = [question for article in articles for part in article["paragraphs"] for question in part["qas"]]
    gold = [[answer["text"] for answer in row["answers"]] for row in rows]
    own = squad_scores(gold, [answers[0] if answers else "" for answers in gold])
    assert {metric.value for metric in own.values()} == {1.0}
    stops = [answers for answers in gold if "." in answers]  # gold answers of which the rule leaves nothing
    assert stops and squad_scores(stops, ["."] * len(stops))["f1"].value == 0
    empty = squad_scores(gold, [""] * len(gold))
    unanswerable = sum(not answers for answers in gold) / len(gold)
    assert empty["f1"].value == pytest.approx(unanswerable)
    assert empty["answerable_f1"].value == 0
