"""Labelled tables of the text sample, the topics of Python's reference.

==============  ===========================================================================================
classification  the topic that a sentence stands in: one of the six longest
regression      the share of characters that are neither letters nor spaces: how much of it is code
tagging         how each word is written: lower case, title case, another way, or without letters (truecasing;
                Lita et al. 2003, "tRuEcasIng")
span            the piece of code in a sentence; the reference puts code in quotation marks
choice          which of four stretches ends the sentence that the context begins
==============  ===========================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from domains.tables import Table, by_task, choice, evenly, example
from domains.text.sample import text_sample
from seqbert.domain import Document, Domain, Example

_TOPICS = 6
_FEWEST_WORDS, _MOST_WORDS = 6, 20
_LONGEST_WORD = 16  # longer ones are code, of many tokens
_BEGINNING, _ENDING = 8, 5  # words
_LEAST_CASED = 0.15
_MOST = 1200
_TOPIC_SENTENCES = 80


def sample_tables(domain: Domain) -> dict[str, Table]:
    """The tables by the name of the task that each is for."""
    return by_task(domain, classification, regression, tagging, span, choices)


def classification(domain: Domain) -> Iterator[Example]:
    """Sentences of the topics that have most of them, as many of each."""
    sentences = list(_sentences())
    lengths = Counter(document.id for document, _ in sentences)
    longest = sorted(lengths, key=lambda topic: (-lengths[topic], topic))[:_TOPICS]
    chosen = [
        record
        for topic in longest
        for record in evenly([record for record in sentences if record[0].id == topic], _TOPIC_SENTENCES)
    ]
    for number, (document, sentence) in enumerate(chosen):
        yield example(number, document, (domain.canonical(sentence),), document.id)


def regression(domain: Domain) -> Iterator[Example]:
    """Sentences of all topics."""
    for number, (document, sentence) in enumerate(evenly(list(_sentences()), _MOST)):
        text = domain.canonical(sentence)
        share = sum(not character.isalpha() and character != " " for character in text) / len(text)
        yield example(number, document, (text,), share)


def tagging(domain: Domain) -> Iterator[Example]:
    """Sentences in which more than a few words are not in lower case."""
    records = []
    for document, sentence in _sentences():
        text = domain.canonical(sentence)
        labels = [_case(word) for word in sentence.split()]
        cased = sum(label != "lower" for label in labels) / len(labels)
        if cased >= _LEAST_CASED and len(domain.words(text)) == len(labels):
            records.append((document, text, labels))
    for number, (document, text, labels) in enumerate(evenly(records, _MOST)):
        yield example(number, document, (text,), labels)


def span(domain: Domain) -> Iterator[Example]:
    """Sentences with one pair of quotation marks; the answer begins and ends with them."""
    question = domain.canonical("Which piece of code?")
    records = [(document, sentence) for document, sentence in _sentences() if sentence.count('"') == 2]
    for number, (document, sentence) in enumerate(records):
        answer = (sentence.index('"'), sentence.rindex('"') + 1)
        yield example(number, document, (question, sentence), [answer])


def choices(domain: Domain) -> Iterator[Example]:
    """Sentences without their last five words; the wrong endings stand inside other sentences."""
    records = [record for record in _sentences() if len(record[1].split()) >= _BEGINNING + _ENDING]
    records = evenly(records, _MOST // 3)
    inner = [" ".join(sentence.split()[1 : 1 + _ENDING]) for _, sentence in records]
    for number, (document, sentence) in enumerate(records):
        words = sentence.split()
        context, right, *wrong = map(
            domain.canonical,
            (
                " ".join(words[:-_ENDING][-_BEGINNING:]),
                " ".join(words[-_ENDING:]),
                *(inner[(number + step) % len(inner)] for step in (7, 11, 13)),
            ),
        )
        yield choice(number, document, context, right, wrong)


def _sentences() -> Iterator[tuple[Document, str]]:
    """Each sentence once, as it is printed, if it is neither short nor long."""
    seen = set()
    documents = text_sample(str).documents
    assert documents is not None
    for document in documents():
        for sentence in document.segments:
            words = sentence.split()
            suits = _FEWEST_WORDS <= len(words) <= _MOST_WORDS and max(map(len, words)) <= _LONGEST_WORD
            if suits and sentence[-1] in ".:" and sentence not in seen:
                seen.add(sentence)
                yield document, " ".join(words)


def _case(word: str) -> str:
    if not any(character.isalpha() for character in word):
        return "none"
    if word == word.lower():
        return "lower"
    return "title" if word == word.capitalize() else "other"
