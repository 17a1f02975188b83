"""Labelled tables of the multilingual sample: names that ISO standards list, in 24 languages.

==============  ===========================================================================================
classification  the language of three names
regression      bytes of UTF-8 a character (the byte premium of a language; Arnett et al. 2024)
tagging         the language of each word where languages are mixed (after the shared task on code-switched
                text; Solorio et al. 2014)
span            the one name in a list that is not in the Latin script
choice          which of four names in one language is that of a currency; the context names a country
==============  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from domains.tables import Table, by_task, choice, evenly, example, sample_documents
from seqbert.domain import Document, Domain, Example

_NAMES = 3
_LONGEST_NAME = 20
_A_LANGUAGE = 50  # records
_MOST = 1200
_LATIN = ("de", "fr", "ga", "hu", "id", "it", "nl", "pl", "sv", "tr", "vi")
_OTHER_SCRIPTS = ("ar", "el", "he", "hi", "ja", "ka", "ko", "ru", "th")
_CURRENCY_LANGUAGES = ("de", "fr", "it", "nl", "sv")


def sample_tables(domain: Domain) -> dict[str, Table]:
    """The tables by the name of the task that each is for."""
    return by_task(domain, classification, regression, tagging, span, choices)


def classification(domain: Domain) -> Iterator[Example]:
    """Neighbours of a list, as many records of each language."""
    for number, (document, names) in enumerate(_groups(domain)):
        yield example(number, document, (", ".join(names),), document.metadata["language"])


def regression(domain: Domain) -> Iterator[Example]:
    """The same names, with their bytes a character."""
    for number, (document, names) in enumerate(_groups(domain)):
        text = ", ".join(names)
        yield example(number, document, (text,), len(text.encode()) / len(text))


def tagging(domain: Domain) -> Iterator[Example]:
    """Names of four languages after one another, a label a word."""
    groups = _groups(domain)
    for number, (document, _) in enumerate(groups):
        mixed = [groups[(number + step * _A_LANGUAGE * 5) % len(groups)] for step in range(4)]
        labelled = [(word, other.metadata["language"]) for other, names in mixed for word in names[0].split()]
        words, labels = zip(*labelled, strict=True)
        yield example(number, document, (" ".join(words),), list(labels))


def span(domain: Domain) -> Iterator[Example]:
    """Four names in four languages, of which one is in another script. The question is "abc"."""
    names = {language: iter(found) for language, found in _by_language(domain).items()}
    for index in range(_MOST):
        latin = [_LATIN[(index + step) % len(_LATIN)] for step in (0, 3, 7)]
        drawn = [next(names[language], None) for language in (*latin, _OTHER_SCRIPTS[index % len(_OTHER_SCRIPTS)])]
        found = [record for record in drawn if record is not None]
        if len(found) < len(drawn):
            return
        *others, (document, answer) = found
        place = index % len(drawn)
        listed = [name for _, name in others]
        listed.insert(place, answer)
        start = len("; ".join([*listed[:place], ""]))
        yield example(index, document, ("abc", "; ".join(listed)), [(start, start + len(answer))])


def choices(domain: Domain) -> Iterator[Example]:
    """A currency, a language, a script and a country."""
    number = count()
    lists: dict[tuple[str, str], list[tuple[Document, str]]] = {}
    for document, name in _names(domain):
        lists.setdefault((document.metadata["language"], document.metadata["alignment"].partition("-")[0]), []).append(
            (document, name)
        )
    for language in _CURRENCY_LANGUAGES:
        countries, currencies, languages, scripts = (
            lists[language, title] for title in ("countries", "currencies", "languages", "scripts")
        )
        for index, (document, currency) in enumerate(currencies):
            wrong = [names[index % len(names)][1] for names in (languages, scripts, countries)]
            context = countries[(index + len(countries) // 2) % len(countries)][1]
            yield choice(next(number), document, context, currency, wrong)


def _names(domain: Domain) -> Iterator[tuple[Document, str]]:
    for document in sample_documents(domain):
        for name in document.segments:
            if len(name) <= _LONGEST_NAME:
                yield document, name


def _by_language(domain: Domain) -> dict[str, list[tuple[Document, str]]]:
    found: dict[str, list[tuple[Document, str]]] = {}
    for document, name in _names(domain):
        found.setdefault(document.metadata["language"], []).append((document, name))
    return found


def _groups(domain: Domain) -> list[tuple[Document, list[str]]]:
    """Three neighbouring names of a list at a time, as many times in each language."""
    groups = []
    for names in _by_language(domain).values():
        starts = evenly(range(0, len(names) - _NAMES + 1, _NAMES), _A_LANGUAGE)
        groups += [(names[start][0], [name for _, name in names[start : start + _NAMES]]) for start in starts]
    return groups
