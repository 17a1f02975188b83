"""The multilingual domain: text whose documents each have a language."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from domains.multilingual.languages import UNKNOWN, language_code, language_of_path
from domains.multilingual.sample import multilingual_sample
from domains.multilingual.tables import sample_tables
from domains.text import Text
from domains.text.domain import TextOptions
from domains.text.readers import Record, ending, html_record
from seqbert.domain import Balance, Report, Sample
from seqbert.errors import ConfigError


@dataclasses.dataclass
class MultilingualOptions(TextOptions):
    """What text is read, how it is spelled, and how its languages are balanced."""

    lowercase: bool = False
    """Lower-case the text. Off, as in cased multilingual BERT: languages differ in what case tells."""

    language: str | None = None
    """The language of all documents, such as "de"; null: told from each document or its file."""

    smoothing: float = 0.7
    """The power that a language's share is raised to in sampling: 1 leaves the shares, 0 makes them equal.
    0.7 as in multilingual BERT."""


class Multilingual(Text):
    """Text in many languages.

    Each document's metadata "language" is the shortest ISO 639 code of its language, or "und", from the
    first of: the option ``language``, the JSON Lines field "language" or "lang", the HTML attribute
    ``lang``, the file's name (``eng.html``, ``news.de.txt``), its folder's name (``de/news.txt``).
    Accents and case are kept.
    """

    name: ClassVar[str] = "multilingual"
    Options: ClassVar[type] = MultilingualOptions
    formats: ClassVar[Mapping[str, str]] = {
        **Text.formats,
        ".html": "HTML, one document a file",
        ".htm": "HTML, one document a file",
    }

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if not 0 <= self.options.smoothing <= 1:
            raise ConfigError(
                f"The option smoothing of the domain {self.name} is {self.options.smoothing}: give a power "
                "from 0 (every language alike) to 1 (as the data is)."
            )
        if self.options.language is not None and language_code(self.options.language) is None:
            raise ConfigError(
                f'The option language of the domain {self.name} is "{self.options.language}", which ISO 639 '
                'does not know: give a code such as "de" or "deu", or null to tell it from the file.'
            )

    @property
    def balance(self) -> Balance:
        """Sampling is smoothed over the language."""
        return Balance("language", self.options.smoothing)

    def records(self, path: Path, report: Report) -> Iterator[Record]:
        """The documents of a file before they are cut into sentences."""
        if ending(path) in (".html", ".htm"):
            return iter([html_record(path)])
        return super().records(path, report)

    def describe(self, record: Record, path: Path, report: Report) -> None:
        """Sets the language. If one is declared that ISO 639 lacks, it is unknown: the file is not asked."""
        declared = self.options.language or record.metadata.get("language") or record.metadata.get("lang")
        language = language_code(declared) if declared else language_of_path(path)
        if language is None:
            reason = "ISO 639 lacks what they declare" if declared else "nothing tells it"
            report.tally(f"documents of unknown language: {reason}")
        record.metadata["language"] = language or UNKNOWN

    def sentence_language(self, record: Record) -> str:
        """The record's own language."""
        return record.metadata["language"]

    def sample(self) -> Sample:
        """Names of countries, languages, currencies and scripts in many languages, from pycountry."""
        return dataclasses.replace(multilingual_sample(self.canonical), tables=sample_tables(self))
