"""The text domain: documents of sentences, words as masking units, characters as symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer

from domains.text.canonical import INVISIBLE, canonical_form, replace_surrogates
from domains.text.readers import Record, ending, json_records, markdown_record, text_records
from domains.text.sample import text_sample
from domains.text.sentences import split_sentences
from domains.text.tables import sample_tables
from domains.text.wordpiece import CONTINUATION, train_wordpiece
from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Report, Sample
from seqbert.errors import DataError

DEFAULT_VOCAB_SIZE = 8192
"""Entries of the vocabulary where a config names no number: a small model's choice; BERT's own is 30,522."""


@dataclasses.dataclass
class TextOptions:
    """What text is read, and how it is spelled."""

    lowercase: bool = True
    """Lower-case the text, as bert-base-uncased does. Accents and vowel signs stay: see strip_accents."""

    strip_accents: bool = False
    """Remove combining accents (é becomes e). Marks of one script alone, as Indic vowel signs, stay."""

    split_han: bool = True
    """Make each Han character a word of its own, as BERT does."""

    sentence_per_line: bool = False
    """Take each line of a .txt file as a sentence; else line breaks are spaces, and sentences are found."""

    text_field: str = "text"
    """The field of a .jsonl file's objects that holds the text, or a list of sentences."""

    language: str | None = "en"
    """The language whose abbreviations end no sentence, such as "Dr."; null: the rules that all share."""


class Text(Domain):
    """Running text in one language.

    A document is what blank lines separate in ``.txt``, a whole ``.md`` file, or an object of ``.jsonl``;
    a segment is a sentence, or a heading. See :func:`~domains.text.canonical.canonical_form` for the
    spelling and :func:`~domains.text.wordpiece.train_wordpiece` for the tokens.
    """

    name: ClassVar[str] = "text"
    Options: ClassVar[type] = TextOptions
    formats: ClassVar[Mapping[str, str]] = {
        ".txt": "plain text, a blank line between documents",
        ".md": "Markdown, one document a file",
        ".jsonl": "JSON Lines, one document a line",
    }
    symbol: ClassVar[str] = "character"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._canonical_form = canonical_form(self.options.lowercase, self.options.strip_accents)

    @property
    def unit(self) -> str:
        """Whole words are masked together."""
        return "word"

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields the documents of a UTF-8 file in one of the :attr:`formats`, compressed or not.

        Raises:
            DataError: The file has another format, is binary, damaged or cut off, or a line of it is not
                UTF-8.
        """
        skipped_before = report.skipped_records
        record = None
        for record in self.records(path, report):
            self.describe(record, path, report)
            segments = self._segments(record, report)
            if segments:
                yield Document(record.id, segments, record.source, record.metadata)
            else:
                report.skipped(record.source, "no text in it")
        if record is None and report.skipped_records == skipped_before:
            report.skipped(str(path), "the file is empty")

    def records(self, path: Path, report: Report) -> Iterator[Record]:
        """The documents of a file before they are cut into sentences."""
        match ending(path):
            case ".txt":
                return text_records(path, self.options.sentence_per_line)
            case ".md":
                return iter([markdown_record(path)])
            case ".jsonl":
                return json_records(path, self.options.text_field, report)
            case other:
                raise DataError(
                    f'{path} has the ending "{other}"; the domain "{self.name}" reads '
                    f"{', '.join(self.formats)}, compressed or not. Rename the file if it is one of these."
                )

    def describe(self, record: Record, path: Path, report: Report) -> None:
        """Completes a record's metadata before it is cut into sentences; nothing is to be added here."""

    def sentence_language(self, record: Record) -> str:
        """The language whose rules cut a record into sentences."""
        return self.options.language or "und"

    def canonical(self, raw: str) -> str:
        """Text in canonical form, by the normalizer that the tokenizer carries."""
        return str(self._canonical_form.normalize_str(replace_surrogates(raw)))

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """A WordPiece tokenizer learned from ``segments``; at most 8192 entries if ``vocab_size`` is None."""
        size = DEFAULT_VOCAB_SIZE if vocab_size is None else vocab_size
        return train_wordpiece(segments, size, self._canonical_form, self.options.split_han)

    def decode(self, ids: Sequence[int]) -> str:
        """Canonical text of token ids, up to what tokens do not tell.

        Lost are the spaces beside punctuation, symbols and Han characters: they come back as they are
        usual (none before a closing mark, after an opening one, within contractions, hyphenated words and
        numbers, between Han characters; one elsewhere). Special tokens, and with them what was unknown,
        are left out.
        """
        return super().decode(ids)

    def symbols(self, text: str) -> int:
        """Characters: "##ing" has 3, "[UNK]" 1 (it always hides one), the other special tokens none."""
        if text in SPECIAL_TOKENS:
            return int(text == "[UNK]")
        continues = text.startswith(CONTINUATION) and text != CONTINUATION
        return len(text) - len(CONTINUATION) * continues

    def sample(self) -> Sample:
        """The topics of Python's own reference, which every Python installation holds."""
        return dataclasses.replace(text_sample(self.canonical), tables=sample_tables(self))

    def _segments(self, record: Record, report: Report) -> list[str]:
        language = self.sentence_language(record)
        segments = []
        for text, whole in record.blocks:
            report.tally("control characters and invisible marks removed", len(INVISIBLE.findall(text)))
            for sentence in [text] if whole else split_sentences(text, language):
                canonical = self.canonical(sentence)
                if canonical:
                    segments.append(canonical)
        return segments
