from collections import Counter

import pytest

from seqbert.data.vocabulary_text import vocabulary_text
from seqbert.domain import Balance, Document


def documents() -> list[Document]:
    """Nine documents in German for one in Sorbian, all of ten characters."""
    languages = ["hsb" if number % 10 == 3 else "de" for number in range(200)]
    return [Document(str(number), [code * 2] * 5, "", {"language": code}) for number, code in enumerate(languages)]


@pytest.mark.parametrize("exponent", [1.0, 0.7, 0.0])
def test_a_vocabulary_is_learned_from_the_smoothed_sample(exponent: float) -> None:
    characters = Counter[str]()
    for document in documents():
        characters[document.metadata["language"]] += sum(map(len, document.segments))
    smoothed = {code: count**exponent for code, count in characters.items()}
    given = Counter[str]()
    for segment in vocabulary_text(documents, Balance("language", exponent)):
        given["hsb" if "h" in segment else "de"] += len(segment)
    assert given["hsb"] / given.total() == pytest.approx(smoothed["hsb"] / sum(smoothed.values()), abs=0.01)
    assert given.total() == pytest.approx(characters.total(), rel=0.02)


def test_without_groups_every_segment_comes_once() -> None:
    assert list(vocabulary_text(documents, None)) == [s for document in documents() for s in document.segments]
