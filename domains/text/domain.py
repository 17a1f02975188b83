"""The text domain: documents of sentences, words as masking units, characters as symbols."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from tokenizers import Tokenizer, models, normalizers

from domains.text.byte_pairs import BYTES, train_byte_pairs
from domains.text.canonical import INVISIBLE, canonical_form, replace_surrogates
from domains.text.formats import FORMATS, Format, ending, format_of, is_certain
from domains.text.lines import read_head
from domains.text.readers import (
    Division,
    Record,
    html_records,
    json_records,
    markdown_records,
    parquet_records,
    table_records,
    text_records,
    wikipedia_records,
)
from domains.text.sample import text_sample
from domains.text.sentences import split_sentences
from domains.text.tables import sample_tables
from domains.text.unigram import BYTE_TOKENS, train_unigram
from domains.text.wordpiece import CONTINUATION, train_wordpiece
from seqbert.data.content import describe
from seqbert.domain import SPECIAL_TOKENS, Document, Domain, Encoded, Report, Sample
from seqbert.errors import ConfigError, DataError

DEFAULT_VOCAB_SIZE = 8192
"""Entries of the vocabulary where a config names no number: a small model's choice; BERT's own is 30,522."""

_Train = Callable[[Iterable[str], int, normalizers.Normalizer, bool], Tokenizer]
_TRAINERS: dict[str, _Train] = {"wordpiece": train_wordpiece, "bpe": train_byte_pairs, "unigram": train_unigram}
_BYTES = frozenset(BYTES)
# What stands for 0x80 to 0xBF, the bytes within a character: the printable ones of Latin-1 stand for themselves, and
# behind the 34 control characters and spaces of ASCII the others follow from U+0122 on.
_INNER_BYTES = frozenset(spelled for spelled in BYTES if 0xA1 <= ord(spelled) < 0xC0 or ord(spelled) >= 0x122)


@dataclasses.dataclass
class TextOptions:
    """What text is read, and how it is spelled."""

    tokens: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """How words are spelled: by WordPiece as in BERT, by pairs of bytes as in GPT-2 and RoBERTa, or by the
    pieces of a unigram language model as in SentencePiece. The last two spell every text and keep its spaces."""

    lowercase: bool = True
    """Lower-case the text, as bert-base-uncased does. Accents and vowel signs stay: see strip_accents."""

    strip_accents: bool = False
    """Remove combining accents (é becomes e). Marks of one script alone, as Indic vowel signs, stay."""

    split_han: bool = True
    """Make each Han character a word of its own, as BERT does."""

    documents: Literal["blank_line", "line", "file"] = "blank_line"
    """What separates the documents of a plain text file: blank lines, the end of each line, or nothing, so
    that a file is one."""

    sentence_per_line: bool = False
    """Take each line of a plain text file as a sentence; else line breaks are spaces, and sentences are found."""

    format: Literal["auto", "text", "markdown", "html", "jsonl", "csv", "tsv", "parquet", "wikipedia"] = "auto"
    """The format of the files; auto: told from the content of each, with its ending as a hint."""

    text_field: str = "text"
    """The field of JSON Lines, or the column of a Parquet, CSV or TSV table, that holds the text. In JSON
    Lines and Parquet it may be a list of sentences."""

    encoding: str = "utf-8"
    """The encoding of the files, by a name that Python knows, such as latin-1, cp1252, shift_jis or utf-16."""

    language: str | None = "en"
    """The language whose abbreviations end no sentence, such as "Dr."; null: the rules that all share."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(TextOptions):
            value = getattr(self, field.name)
            choices = {
                "tokens": tuple(_TRAINERS),
                "documents": get_args(Division),
                "format": ("auto", *get_args(Format)),
            }
            if field.name in choices and value not in choices[field.name]:
                raise ConfigError(f'{field.name} is "{value}": give one of {", ".join(choices[field.name])}.')
        try:
            "".encode(self.encoding)
            codecs.getincrementaldecoder(self.encoding)
        except LookupError:
            raise ConfigError(
                f'encoding is "{self.encoding}", which Python does not know as an encoding of text: give a name such '
                "as utf-8, utf-16, latin-1, cp1252, gb18030 or shift_jis."
            ) from None


class Text(Domain):
    """Running text in one language.

    A document is what blank lines separate in plain text (or a line, or a file: the option ``documents``), a page of
    Markdown or HTML, an article of a Wikipedia extract, an object of JSON Lines, or a row of a table; a segment is a
    sentence, or a heading. See :func:`~domains.text.canonical.canonical_form` for the spelling and
    :func:`~domains.text.wordpiece.train_wordpiece`, :func:`~domains.text.byte_pairs.train_byte_pairs` and
    :func:`~domains.text.unigram.train_unigram` for the tokens.
    """

    name: ClassVar[str] = "text"
    Options: ClassVar[type] = TextOptions
    formats: ClassVar[Mapping[str, str]] = FORMATS
    symbol: ClassVar[str] = "character"
    version: ClassVar[str] = "3"

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._canonical_form = canonical_form(self.options.lowercase, self.options.strip_accents)

    @property
    def unit(self) -> str:
        """Whole words are masked together."""
        return "word"

    def reads(self, path: Path) -> bool:
        """Whether a file's ending is one of :attr:`formats`, or what it holds is certain to be one."""
        if ending(path) in self.formats:
            return True
        try:
            return is_certain(path, self.options.text_field, self.options.encoding)
        except DataError:
            return False

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields the documents of a file in one of the :attr:`formats`, compressed or not.

        Raises:
            DataError: The file has no document, is binary, damaged or cut off, or a line of it is not in the
                encoding.
        """
        skipped_before = report.skipped_records
        found = False
        for record in self.records(path, report):
            self.describe(record, path, report)
            segments = self._segments(record, report)
            if segments:
                found = True
                yield Document(record.id, segments, record.source, record.metadata)
            else:
                report.skipped(record.source, "no text in it")
        if found:
            return
        head = read_head(path)
        if head:
            skipped = report.skipped_records - skipped_before
            raise DataError(
                f"{path} holds no document{f' ({skipped:,} records were skipped)' if skipped else ''}; it looks like "
                f"{describe(head)}."
            )
        if report.skipped_records == skipped_before:
            report.skipped(str(path), "the file is empty")

    def records(self, path: Path, report: Report) -> Iterator[Record]:
        """The documents of a file before they are cut into sentences.

        Raises:
            DataError: as :meth:`read`.
        """
        options = self.options
        encoding, field = options.encoding, options.text_field
        kind = format_of(path, field, encoding) if options.format == "auto" else options.format
        match kind:
            case "markdown":
                return markdown_records(path, report, encoding)
            case "html":
                return html_records(path, report, encoding)
            case "jsonl":
                return json_records(path, field, report, encoding)
            case "csv" | "tsv":
                return table_records(path, field, "," if kind == "csv" else "\t", report, encoding)
            case "parquet":
                return parquet_records(path, field, report)
            case "wikipedia":
                return wikipedia_records(path, report, encoding)
        return text_records(path, options.documents, options.sentence_per_line, report, encoding)

    def describe(self, record: Record, path: Path, report: Report) -> None:
        """Completes a record's metadata before it is cut into sentences; nothing is to be added here."""

    def sentence_language(self, record: Record) -> str:
        """The language whose rules cut a record into sentences."""
        return self.options.language or "und"

    def canonical(self, raw: str) -> str:
        """Text in canonical form, by the normalizer that the tokenizer carries."""
        if raw.isascii() and raw.isprintable():  # the same, several times faster
            return " ".join((raw.lower() if self.options.lowercase else raw).split())
        return str(self._canonical_form.normalize_str(replace_surrogates(raw)))

    def cell(self, raw: str, report: Report, source: str) -> str:
        """See :meth:`canonical`; marks that it takes out are told to ``report``."""
        report.tally(_MARKS_REMOVED, len(INVISIBLE.findall(raw)), source)
        return self.canonical(raw)

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """A tokenizer learned from ``segments``; at most 8192 entries if ``vocab_size`` is None."""
        size = DEFAULT_VOCAB_SIZE if vocab_size is None else vocab_size
        return _TRAINERS[self.options.tokens](segments, size, self._canonical_form, self.options.split_han)

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes the tokenizer, of whatever kind, that :meth:`encode` and :meth:`decode` work with."""
        super().use(tokenizer)
        kind = type(tokenizer.model)
        # Elsewhere a token need not tell whether it begins a word.
        self._tokens_tell_words = kind is models.WordPiece and type(tokenizer.pre_tokenizer).__name__ in _SPLITTERS
        size = tokenizer.get_vocab_size()
        spellings = [tokenizer.id_to_token(number) or "" for number in range(size)]
        self._begins_unit = np.fromiter(map(self.begins_unit, spellings), bool, size)

    def begins_unit(self, token: str) -> bool:
        """Whether a token, as the vocabulary spells it, begins a masking unit wherever it stands.

        In WordPiece every token does that has no "##". The tokens of other kinds begin one with the space before
        them; punctuation and the rest of words without a space are told by the tokenizer.
        """
        if self._tokens_tell_words:
            return not token.startswith(CONTINUATION)
        return token.startswith(("Ġ", " ", "▁"))

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """Tokens of canonical texts, without special tokens around them; words are the masking units."""
        vocabulary = self.vocabulary
        fast = self._tokens_tell_words and not offsets
        encode = vocabulary.encode_batch_fast if fast else vocabulary.encode_batch
        encodings = encode(texts if isinstance(texts, list) else list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        tokens = int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(rows), np.int32, tokens)
        starts = self._begins_unit[ids]
        if not self._tokens_tell_words:
            words = np.fromiter(chain.from_iterable(encoding.word_ids for encoding in encodings), np.int32, tokens)
            starts[1:] |= words[1:] != words[:-1]
        spans = None
        if offsets:
            pairs = chain.from_iterable(encoding.offsets for encoding in encodings)
            spans = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * tokens).reshape(-1, 2)
        return Encoded(ids, lengths, _numbered(starts, lengths), spans)

    def decode(self, ids: Sequence[int], offsets: np.ndarray | None = None) -> str:
        """Canonical text of token ids: exactly the one that was encoded, unless the tokens are WordPiece.

        These do not tell the spaces beside punctuation, symbols and Han characters, which come back as they are
        usual: see :func:`~domains.text.wordpiece.usual_spaces`. Special tokens, and with them what was unknown,
        are left out.

        Args:
            ids: The tokens.
            offsets: Where each token stood, ``[tokens, 2]``, as :meth:`encode` gives it: spaces are put back where
                there were any, so that WordPiece too is exact.
        """
        if offsets is None or not self._tokens_tell_words:
            return super().decode(ids)
        special = {self.vocabulary.token_to_id(token) for token in SPECIAL_TOKENS}
        parts: list[str] = []
        before = 0
        for number, (start, end) in zip(ids, np.asarray(offsets).tolist(), strict=True):
            parts.append(" " * (parts != [] and start > before))
            token = self.vocabulary.id_to_token(int(number)) or ""
            if number not in special:
                parts.append(token.removeprefix(CONTINUATION))
            before = end
        return "".join(parts)

    def symbols(self, text: str) -> int:
        """Characters: "##ing" has 3, "[UNK]" 1 (it always hides one), the other special tokens none.

        Tokens of bpe and unigram count the space that they begin with; one of a character's bytes counts as the
        character if it is the first.
        """
        if text in SPECIAL_TOKENS:
            return int(text == "[UNK]")
        if self.options.tokens == "wordpiece":
            continues = text.startswith(CONTINUATION) and text != CONTINUATION
            return len(text) - len(CONTINUATION) * continues
        if self.options.tokens == "unigram":
            return int(not 0x80 <= int(text[3:5], 16) < 0xC0) if text in _BYTE_TOKENS else len(text)
        if _BYTES.issuperset(text):
            return sum(character not in _INNER_BYTES for character in text)
        return len(text)

    def sample(self) -> Sample:
        """The topics of Python's own reference, which every Python installation holds."""
        return dataclasses.replace(text_sample(self.canonical), tables=sample_tables(self))

    def _segments(self, record: Record, report: Report) -> list[str]:
        language = self.sentence_language(record)
        segments = []
        for text, whole in record.blocks:
            removed = len(INVISIBLE.findall(text))
            report.tally(_MARKS_REMOVED, removed, record.source)
            for sentence in [text] if whole else split_sentences(text, language):
                canonical = self.canonical(sentence)
                if canonical:
                    segments.append(canonical)
        return segments


_MARKS_REMOVED = "control characters and invisible marks removed"

_SPLITTERS = ("Split", "BertPreTokenizer")
_BYTE_TOKENS = frozenset(BYTE_TOKENS)


def _numbered(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The number of each token's unit within its text, from where units begin."""
    firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
    starts[firsts] = True
    units = np.cumsum(starts, dtype=np.int32)
    return np.asarray(units - np.repeat(units[firsts], lengths[lengths > 0]), np.int32)
