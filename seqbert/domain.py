"""The plugin contract: what a domain must say about its files, its text and its tokens.

A domain turns files into :class:`Document` and text into :class:`Encoded` tokens. Everything after that is one
encoder and one training loop that know no domain. A plugin is a subclass of :class:`Domain` that its package
announces under the entry-point group ``seqbert.domains``; nothing in ``seqbert`` names it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from seqbert.errors import DataError, DomainError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Every vocabulary begins with these, in this order; raw data cannot produce them."""

_WORD = re.compile(r"\S+")

Change: TypeAlias = Callable[[np.ndarray, np.ndarray | None, int], tuple[np.ndarray, np.ndarray]]
"""``(ids [tokens], units [tokens] or None, variant) -> (ids [tokens], source [tokens])``: the new ids, and for each of
them the index of the old token whose label and unit it carries."""


@dataclasses.dataclass(frozen=True, slots=True)
class Augmentation:
    """A change that keeps a sequence's meaning, in several variants: either strand, any of twelve keys.

    In training one of the variants is drawn for each sequence; at prediction the outputs over all of them can be
    averaged. An instance can be pickled, for the loader's workers.

    Attributes:
        variants: How many there are; variant 0 leaves the sequence as it is.
        change: Makes one of them.
    """

    variants: int
    change: Change

    def __call__(
        self, ids: np.ndarray, units: np.ndarray | None, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """A variant drawn evenly: the new ids ``[tokens]``, and for each the index of the old token it stems from."""
        return self.change(ids, units, int(generator.integers(self.variants)))


@dataclasses.dataclass(slots=True)
class Document:
    """One natural record: a text, a protein, a contig, a piece of music.

    Attributes:
        id: A name that is unique within its file, such as an accession.
        segments: The document in canonical text, cut where the domain cuts it by nature (a sentence, a whole
            protein, a phrase of bars) and never at a window's length.
        source: Where it came from, for messages and reports: ``file`` or ``file:line`` or ``file:record``.
        metadata: What else is known: language, organism, composer, group, alignment id.
    """

    id: str
    segments: list[str]
    source: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class Encoded:
    """The tokens of one or several texts, end to end.

    Attributes:
        ids: Token ids, ``[tokens]``; no special tokens are added.
        lengths: Number of tokens of each text, ``[texts]``.
        units: Masking-unit id of each token, ``[tokens]``: it starts at 0 in each text and never falls. None
            where every token is a unit of its own.
        offsets: Start and end of each token in the original text, in characters, ``[tokens, 2]``; None where
            the caller asked for none.
    """

    ids: np.ndarray
    lengths: np.ndarray
    units: np.ndarray | None = None
    offsets: np.ndarray | None = None


@dataclasses.dataclass(slots=True)
class Example:
    """One labelled record: one or two sequences, or a text and its choices, or a question and its context.

    Attributes:
        id: A name within its table.
        sequences: Canonical text; but the context of a question as it stands in the file, so that answers keep
            their places.
        label: None where it is not known. Else by task: a class, or several in a list; a number; a label a word;
            the places ``(start, end)`` of the answers in the context; the number of the right choice.
        source: Where it came from, for messages: ``file:row``.
        metadata: What else is known, such as what records are grouped by.
        words: The stretches of the text that its labels stand for, ``[words, 2]``; None: :meth:`Domain.words`.
    """

    id: str
    sequences: tuple[str, ...]
    label: Any = None
    source: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    words: np.ndarray | None = None


@dataclasses.dataclass(slots=True)
class Sample:
    """Real data that works offline once the plugin is installed: files that :meth:`Domain.read` reads, or documents.

    Attributes:
        about: One line for reports: what it is, where it comes from, under which licence.
        files: Files that come with the installation; read like a user's own, by several processes.
        documents: Where there are no files: a function that yields the documents anew on each call, in one order.
        version: Changes whenever ``documents`` yields something else, so that a cached corpus is built again.
        tables: Labelled tables by name, each a function that yields its examples.
    """

    about: str
    files: Sequence[Path] = ()
    documents: Callable[[], Iterator[Document]] | None = None
    version: str = "1"
    tables: Mapping[str, Callable[[], Iterator[Example]]] = dataclasses.field(default_factory=dict)


class Report:
    """What became of each record: the part of the data report that a reader writes.

    Every record that a file holds is *read* (given as it is), *repaired* (given, but changed by a stated rule) or
    *skipped*; a reader calls :meth:`repaired` and :meth:`skipped`, and what it yields without a word counts as
    read. :meth:`tally` counts changes within records: letters upper-cased, gaps removed, notes moved to the grid.
    :meth:`note` and :meth:`largest` say what is worth knowing and changed nothing. The framework counts the files and
    the documents.

    Args:
        strict: Make each of the first three an error that names the place.

    Attributes:
        place: The file that is being read, which errors name where a count comes without a place.
    """

    KEPT_EXAMPLES = 5

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.place = ""
        self.yielded = 0
        self.repaired_records = 0
        self.skipped_records = 0
        self.repairs: Counter[str] = Counter()
        self.skips: Counter[str] = Counter()
        self.tallies: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.most: dict[str, float] = {}
        self.examples: dict[str, list[str]] = {}
        self.files: list[str] = []
        self.skipped_files: list[tuple[str, str]] = []
        self._last_repaired = ""
        self._last_reasons: list[str] = []

    def repaired(self, source: str, reason: str, detail: str = "") -> None:
        """Says that the record at ``source``, which is given all the same, was changed; it may have several reasons.

        Args:
            source: ``file:line`` or ``file:record``.
            reason: One of a small set, so that it can be counted.
            detail: What is particular to this record, such as "'@' at position 4"; only errors tell it.

        Raises:
            DataError: The report is strict.
        """
        self._refuse(source, reason, detail)
        if source != self._last_repaired:
            self.repaired_records += 1
            self._last_repaired, self._last_reasons = source, []
        self.repairs[reason] += 1
        self._last_reasons.append(reason)
        self._keep_example(reason, source)

    def skipped(self, source: str, reason: str, detail: str = "") -> None:
        """Says that the record at ``source`` is left out, and why; as :meth:`repaired`, which it takes back."""
        self._refuse(source, reason, detail)
        if source and source == self._last_repaired:
            self.repaired_records -= 1
            self.repairs -= Counter(self._last_reasons)
            self._last_repaired = ""
        self.skipped_records += 1
        self.skips[reason] += 1
        self._keep_example(reason, source)

    def tally(self, what: str, count: int = 1, source: str = "", detail: str = "") -> None:
        """Adds to a count of changes within records, such as ``"lower-case bases upper-cased"``.

        Args:
            what: What was changed, in words that are the same for all records.
            count: How often; 0 says nothing.
            source: The record; as in :meth:`repaired`.
            detail: As in :meth:`repaired`.

        Raises:
            DataError: ``count`` is above 0, and the report is strict.
        """
        if count:
            self._refuse(source, f"{what} ({count:,})", detail)
            self.tallies[what] += count

    def note(self, what: str, count: int = 1) -> None:
        """Adds to a count of what was met and left as it is: comments, ambiguity codes, repeated names."""
        if count:
            self.notes[what] += count

    def largest(self, what: str, value: float) -> None:
        """Keeps the largest value of what is measured at many places, such as how far an onset was moved."""
        self.most[what] = max(value, self.most.get(what, value))

    def merge(self, other: Report) -> None:
        """Adds what another process counted."""
        self.yielded += other.yielded
        self.repaired_records += other.repaired_records
        self.skipped_records += other.skipped_records
        self.repairs += other.repairs
        self.skips += other.skips
        self.tallies += other.tallies
        self.notes += other.notes
        for what, value in other.most.items():
            self.largest(what, value)
        for reason, sources in other.examples.items():
            kept = self.examples.setdefault(reason, [])
            kept.extend(sources[: self.KEPT_EXAMPLES - len(kept)])
        self.files += other.files
        self.skipped_files += other.skipped_files

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain data; ``records.in`` is the sum of the other three."""
        return {
            "files": len(self.files),
            "skipped_files": [{"file": file, "reason": reason} for file, reason in self.skipped_files],
            "records": {
                "in": self.yielded + self.skipped_records,
                "read": self.yielded - self.repaired_records,
                "repaired": self.repaired_records,
                "skipped": self.skipped_records,
            },
            "repaired": dict(self.repairs),
            "skipped": dict(self.skips),
            "changed": dict(self.tallies),
            "noted": dict(self.notes),
            "largest": dict(self.most),
            "examples": dict(self.examples),
        }

    def to_json(self) -> str:
        """All that is counted, as :meth:`from_json` takes it."""
        return json.dumps({name: value for name, value in vars(self).items() if not name.startswith("_")})

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that another process wrote by :meth:`to_json`."""
        report = cls()
        vars(report).update(json.loads(text))
        for name in ("repairs", "skips", "tallies", "notes"):
            setattr(report, name, Counter(getattr(report, name)))
        report.skipped_files = [(file, reason) for file, reason in report.skipped_files]
        return report

    def _refuse(self, source: str, what: str, detail: str) -> None:
        if self.strict:
            raise DataError(
                f"{source or self.place}: {what}{': ' if detail else ''}{detail}. This is an error because strict is "
                "true: mend the record or leave it out, or set strict to false, which counts it in the data report."
            )

    def _keep_example(self, reason: str, source: str) -> None:
        kept = self.examples.setdefault(reason, [])
        if len(kept) < self.KEPT_EXAMPLES:
            kept.append(source)


@dataclasses.dataclass(frozen=True, slots=True)
class Balance:
    """Smoothed sampling over a metadata key: a group with share ``q`` is drawn in proportion to ``q ** exponent``.

    Multilingual BERT uses the language and 0.7 (https://github.com/google-research/bert/blob/master/multilingual.md).
    """

    key: str
    exponent: float


@dataclasses.dataclass
class NoOptions:
    """A domain without options."""


class Domain(ABC):
    """One kind of sequence. Subclasses say what is particular to it; the defaults suit a language-like domain.

    Class attributes:
        name: The name in configs and on the command line.
        Options: A dataclass; its fields are the keys under ``options:``.
        formats: File endings (without compression) and what they are, for messages and ``seqbert domains``.
        symbol: What bits are counted over, in the singular: "character", "residue", "base", "note".
        pairs: Whether documents have several segments by nature, so that sentence pairs can be drawn from them.
        version: Changes whenever the same text would give other tokens; it is stored with every corpus and run.
    """

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    formats: ClassVar[Mapping[str, str]] = {}
    symbol: ClassVar[str] = "character"
    pairs: ClassVar[bool] = True
    version: ClassVar[str] = "1"

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options
        self._tokenizer: Tokenizer | None = None

    # What the domain is made of

    @property
    def unit(self) -> str:
        """The name of the masking unit beside "token": "word", "codon", "bar". "token" where there is none."""
        return "token"

    @property
    def overlap(self) -> int:
        """How many of its symbols a token shares with the next: k - 1 for overlapping k-mers, else 0."""
        return 0

    @property
    def balance(self) -> Balance | None:
        """The metadata key over which sampling is smoothed, if any."""
        return None

    # Files to documents

    def reads(self, path: Path) -> bool:
        """Whether a file met in a folder belongs to this domain; by its ending unless a plugin looks inside."""
        suffixes = [suffix.lower() for suffix in path.suffixes]
        while suffixes and suffixes[-1] in COMPRESSIONS:
            suffixes.pop()
        return bool(suffixes) and suffixes[-1] in self.formats

    @abstractmethod
    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """Yields the documents of one file of any format that the domain knows.

        A bad record is skipped or repaired and told to ``report``; a file that cannot be read at all raises
        :class:`~seqbert.errors.DataError`. Memory stays bounded by the largest record.
        """

    def examples(self, path: Path, report: Report) -> Iterator[Example] | None:
        """Yields the examples of a labelled file in one of the domain's own formats; None: an ordinary table."""
        return None

    def canonical(self, raw: str) -> str:
        """A table's cell, or what a user typed, as canonical text."""
        return raw

    def cell(self, raw: str, report: Report, source: str) -> str:
        """A table's cell as :meth:`canonical` text, with what that changed told to the report.

        Override it where letters are mapped or taken out, so that the data report of labelled records counts them
        too.
        """
        return self.canonical(raw)

    # Text to tokens and back

    @abstractmethod
    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """A tokenizer over :data:`SPECIAL_TOKENS` and the domain's own tokens, with at most ``vocab_size`` entries.

        A domain with a fixed alphabet does not touch ``segments``. The same input gives the same bytes every time.
        """

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer in use: the one that :meth:`use` was given."""
        if self._tokenizer is None:
            raise DomainError(f'the domain "{self.name}" has no tokenizer yet: call use() with one first')
        return self._tokenizer

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes the tokenizer that :meth:`encode` and :meth:`decode` work with."""
        tokenizer.encode_special_tokens = True  # "[MASK]" in raw text is read as text, not as the mask
        tokenizer.no_truncation()  # foreign tokenizers may come with a length of their own
        tokenizer.no_padding()
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """Tokens of canonical texts, without special tokens around them. By the tokenizer unless overridden.

        Words as the tokenizer's pre-tokenizer finds them are the masking units where :attr:`unit` names one.
        """
        encodings = self.vocabulary.encode_batch(list(texts), add_special_tokens=False)
        lengths = np.fromiter((len(encoding) for encoding in encodings), np.int64, len(encodings))
        ids = _flat([encoding.ids for encoding in encodings], np.int32)
        units = None
        if self.unit != "token":
            units = _flat([[word or 0 for word in encoding.word_ids] for encoding in encodings], np.int32)
        spans = None
        if offsets:
            spans = _flat([encoding.offsets for encoding in encodings], np.int64).reshape(-1, 2)
        return Encoded(ids, lengths, units, spans)

    def encode_long(self, text: str) -> Iterator[Encoded]:
        """The tokens of one long canonical text by parts, in order and without offsets, so that memory stays bounded.

        End to end they are the tokens that :meth:`encode` gives. Each part begins a masking unit, and numbers its
        units anew. One part unless overridden.
        """
        yield self.encode([text], offsets=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Canonical text of token ids; special tokens are left out."""
        return str(self.vocabulary.decode([int(i) for i in ids], skip_special_tokens=True))

    def words(self, text: str) -> np.ndarray:
        """Start and end of each stretch of canonical text that has a label of its own in tagging, ``[words, 2]``.

        What white space separates, unless a domain labels its residues, bases or notes.
        """
        return np.array([match.span() for match in _WORD.finditer(text)], np.int64).reshape(-1, 2)

    def words_of(self, example: Example) -> np.ndarray:
        """The words of a record: those it brings along, else :meth:`words` of its first text, ``[words, 2]``."""
        return self.words(example.sequences[0]) if example.words is None else example.words

    def symbols(self, text: str) -> int:
        """How many symbols a stretch of canonical text, or one token as the vocabulary spells it, stands for."""
        return len(text)

    def separates_words(self, group: str) -> bool:
        """Whether white space separates words in a group of :attr:`balance`, so that tokens a word can be counted."""
        return True

    def token_kinds(self) -> list[str]:
        """What each entry of the vocabulary is, in its order, for the data report: its script. []: all are alike."""
        return []

    def frame(self) -> frozenset[str]:
        """Kinds of tokens (:meth:`token_kinds`) that filling a unit leaves as they stand: what makes it that unit."""
        return frozenset()

    def follows(self) -> Mapping[str, frozenset[str]]:
        """Which kinds of tokens may stand behind each kind, for filling; behind a kind that is not named, any may."""
        return {}

    def begins(self) -> frozenset[str]:
        """The kinds of tokens with which a text that is generated from nothing begins; none: any."""
        return frozenset()

    def augmentations(self) -> Mapping[str, Augmentation]:
        """Changes that keep a sequence's meaning, by name: reverse complement, transposition."""
        return {}

    def write(self, text: str, path: Path) -> None:
        """Writes canonical text as a file that a person opens."""
        path.write_text(text + "\n", encoding="utf-8")

    @abstractmethod
    def sample(self) -> Sample:
        """Real data that needs no download."""


COMPRESSIONS = (".gz", ".bgz", ".xz", ".zst", ".bz2")
"""File endings that say how a file is compressed rather than what it holds."""


def _flat(rows: Sequence[Sequence[Any]], dtype: type) -> np.ndarray:
    filled: list[np.ndarray] = [np.asarray(row, dtype) for row in rows if len(row)]
    return np.concatenate(filled) if filled else np.zeros(0, dtype)
