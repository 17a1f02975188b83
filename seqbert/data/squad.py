"""Questions with contexts in the layout of SQuAD 1.1 and 2.0, and the check that answers stand where they should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from seqbert.data.table_rows import Reading, Row
from seqbert.errors import DataError


class Answer(NamedTuple):
    """An answer as a file gives it: its text, and where it begins in the context if that is known."""

    text: str
    start: int | None


def is_squad(value: Any) -> bool:
    """Whether the value of a JSON file has SQuAD's layout: articles under "data", with "paragraphs" in them."""
    articles = value.get("data") if isinstance(value, dict) else None
    return isinstance(articles, list) and any(isinstance(item, dict) and "paragraphs" in item for item in articles)


def squad_rows(reading: Reading, value: Any) -> Iterator[Row]:
    """The questions of a SQuAD file (Rajpurkar et al. 2016, 2018), in order, numbered from 1 in their source.

    A question whose "answers" are empty, or that "is_impossible", is unanswerable; one without "answers" has no
    label. The article's title is the metadata "title".

    Raises:
        DataError: The value has not the layout of SQuAD.
    """
    if not is_squad(value):
        raise DataError(
            f'{reading.path} has not the layout of SQuAD: an object with a list "data" of articles, each with '
            '"paragraphs", is expected.'
        )
    number = 0
    for article in _dicts(value["data"]):
        title = article.get("title")
        for paragraph in _dicts(article.get("paragraphs")):
            for question in _dicts(paragraph.get("qas")):
                number += 1
                answers = [] if question.get("is_impossible") is True else question.get("answers")
                yield Row(
                    str(question.get("id", number - 1)),
                    f"{reading.path}:{number}",
                    question.get("question"),
                    paragraph.get("context"),
                    answers,
                    metadata={"title": title} if isinstance(title, str) else {},
                )


def read_answers(label: Any, start: Any) -> list[Answer] | None:
    """The answers of a row: a list of objects, an object of lists, or a text beside a column with its start.

    Returns:
        The answers, none where the question has none; None where the cells are nothing of this kind.
    """
    if isinstance(label, dict):
        texts, starts = label.get("text"), label.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            return None
        found = list(zip(texts, starts, strict=True))
    elif isinstance(label, list):
        if not all(isinstance(answer, dict) for answer in label):
            return None
        found = [(answer.get("text"), answer.get("answer_start")) for answer in label]
    else:
        found = [(label, start)]
    return [Answer(str(text), _whole(place)) for text, place in found if text not in (None, "")]


def place_answers(answers: Sequence[Answer], context: str) -> tuple[list[tuple[int, int]], int, int]:
    """Where answers stand in a context: as they say, else where their text stands if it stands there once.

    Returns:
        The places ``(start, end)`` in characters, each once; how many answers were moved; how many were given up.
    """
    places: dict[tuple[int, int], None] = {}
    moved = lost = 0
    for text, start in answers:
        if start is None or start < 0 or not context.startswith(text, start):
            start = context.find(text)
            if start < 0 or context.find(text, start + 1) >= 0:
                lost += 1
                continue
            moved += 1
        places[start, start + len(text)] = None
    return list(places), moved, lost


def _whole(value: Any) -> int | None:
    """A whole number of a cell that may be text, or a float as pandas writes columns with gaps."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() else None


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
