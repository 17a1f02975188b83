"""The domain "music": scores as bars of notes."""

from __future__ import annotations

import codecs
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from domains.music import abc_notation, containers, merges, midi, scores
from domains.music.alphabet import FOLLOWS, FRAME, TICKS_PER_QUARTER, kind_of, words
from domains.music.corpus import corpus_tables, tune_files
from domains.music.merges import Spelling
from domains.music.piece import Draft, Reading, Wording, parse
from domains.music.tables import sample_tables
from domains.music.transposition import VARIANTS, Merged, Words
from seqbert.data.compressed import without_compression
from seqbert.domain import SPECIAL_TOKENS, Augmentation, Document, Domain, Encoded, Report, Sample
from seqbert.errors import ConfigError, DataError, DomainError, SeqbertError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NOTE = re.compile(r"(?:Pitch|Drum)_\d+")
MERGED_FRAME = "merged frame"
GRIDS = (1, 2, 3, 4, 6, 8, 12, 24)
MOST_VELOCITY_BINS = 127


@dataclasses.dataclass
class MusicOptions:
    """What is read of a score, what canonical text says of it, and how that is cut into tokens.

    With the defaults, text says bars, meters, keys, tempos, parts, positions, pitches and durations.
    """

    bars_per_segment: int = 4
    """Bars in one segment of a document, over all parts; four are a phrase in most metres."""
    tokens: str = "event"
    """What a token is: "event", a word of the alphabet, or "bpe", a frequent run of words within a bar."""
    velocity: int = 0
    """Bins in which the velocities of notes are said, at most 127; 0: they are not said. MidiTok takes 32."""
    tempo: bool = True
    """Whether tempos are said."""
    instruments: bool = False
    """Whether the MIDI program of each part is said."""
    drums: str = "skip"
    """Drums: "skip" leaves them out and counts them, "keep" says them as words of their own."""
    parts: str = "separate"
    """The parts of a score: "separate", or "merged", all pitched parts as one, as on a piano."""
    grid: int = TICKS_PER_QUARTER
    """Steps in a quarter that onsets and ends are moved to: 24 or a divisor of it."""
    repeats: str = "written"
    """Repeats and endings: "written", each bar once as it stands, or "unfold", played out; MIDI has none."""
    damaged_midi: str = "skip"
    """MIDI files whose bytes break the format: "skip" leaves them out, "mend" reads them as far as they make sense."""
    encoding: str = ""
    """Of text formats, by name; "": what the file says, else UTF-8, else Latin-1."""

    def __post_init__(self) -> None:
        if self.bars_per_segment < 1:
            raise ConfigError(f"bars_per_segment is {self.bars_per_segment}; a segment needs at least one bar.")
        if not 0 <= self.velocity <= MOST_VELOCITY_BINS:
            raise ConfigError(
                f"velocity is {self.velocity}; it is a number of bins from 1 to {MOST_VELOCITY_BINS}, or 0 for none."
            )
        if self.grid not in GRIDS:
            raise ConfigError(
                f"grid is {self.grid}; a quarter is cut into {', '.join(map(str, GRIDS[:-1]))} or {GRIDS[-1]} steps."
            )
        for key, values in _CHOICES.items():
            if getattr(self, key) not in values:
                known = " or ".join(f'"{value}"' for value in values)
                raise ConfigError(f'{key} is "{getattr(self, key)}"; it is {known}.')
        if self.encoding:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ConfigError(
                    f'encoding is "{self.encoding}", which Python does not know; "latin-1" and "cp1252" are examples.'
                ) from None

    @property
    def wording(self) -> Wording:
        """What canonical text says."""
        return Wording(self.velocity, self.tempo, self.instruments)

    @property
    def reading(self) -> Reading:
        """How what a file says is put on the grid."""
        return Reading(self.grid, bool(self.velocity), self.drums == "keep", self.parts == "merged")

    @property
    def alphabet(self) -> list[str]:
        """The words that canonical text is made of."""
        return words(self.velocity, self.instruments, self.drums == "keep")


_CHOICES = {
    "tokens": ("event", "bpe"),
    "drums": ("skip", "keep"),
    "parts": ("separate", "merged"),
    "repeats": ("written", "unfold"),
    "damaged_midi": ("skip", "mend"),
}


class Music(Domain):
    """Scores as the words of :mod:`domains.music.alphabet`, bar by bar with all parts together.

    Kept are notes, grace notes, ties (joined), bars, time and key signatures, tempos and parts, and by option
    velocities, instruments and drums; left out are lyrics, chord symbols, ornaments and dynamics. A masking unit is
    a bar.
    """

    name = "music"
    Options = MusicOptions
    formats: ClassVar[Mapping[str, str]] = {
        ".abc": "ABC tunes and tune books",
        ".musicxml": "MusicXML",
        ".xml": "MusicXML or MEI, by its root element",
        ".mxl": "compressed MusicXML",
        ".krn": "Humdrum **kern",
        ".mei": "MEI",
        ".mid": "MIDI",
        ".midi": "MIDI",
    }
    symbol = "note"
    version = "3"

    @property
    def unit(self) -> str:
        """A bar, with its notes in all parts."""
        return "bar"

    def reads(self, path: Path) -> bool:
        """By the content; a file with an ending of ours that holds something else is read to say what is wrong."""
        if containers.score_format(path) is not None:
            return True
        suffix = without_compression(path).suffix.lower()
        return suffix in self.formats and suffix != ".xml"

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """One document a tune of an ABC book, a piece of a Humdrum file, a track of a format-2 MIDI file, else a file.

        Raises:
            DataError: The file cannot be read at all; a tune of a book that cannot is skipped.
        """
        kind = containers.score_format(path)
        if kind is None:
            raise containers.no_score(path)
        if kind == "abc":
            yield from self._read_book(path, report)
            return
        try:
            drafts = self._drafts(path, kind, report)
        except SeqbertError:
            raise
        except Exception as error:
            raise DataError(
                f"{path}: cannot be read as {containers.FORMATS[kind]} ({type(error).__name__}: {_line(error)}). "
                "The file is damaged or of another format; take it out of the data or export it again."
            ) from error
        for number, (draft, metadata, repairs) in enumerate(drafts, start=1):
            several = len(drafts) > 1
            source = f"{path}:{number}" if several else str(path)
            stem = without_compression(path).stem
            name = f"{stem} {number}" if several else stem
            yield from self._document(draft, name, source, metadata, repairs, report)

    def canonical(self, raw: str) -> str:
        """Canonical text as it is, with single spaces; a tune in ABC, as a table may hold it, is read first.

        Raises:
            DataError: The text has an X: or K: field as tunes in ABC have, but cannot be read.
        """
        tune = next(abc_notation.tunes(raw), None)
        if tune is None:
            return " ".join(raw.split())
        try:
            draft = abc_notation.read_tune(tune.text, self.options.repeats)[0]
            piece = draft.settle("", Report(), self.options.reading)
        except ValueError as error:
            raise DataError(
                f"A text that looks like a tune in ABC cannot be read: {_line(error)}. It begins {raw[:50]!r}"
            ) from error
        if piece is None:
            return ""
        return " ".join(piece.segments(self.options.bars_per_segment, self.options.wording))

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """One token a word of the alphabet, whatever ``segments`` are; or, by option, with merges learned from them.

        Raises:
            ConfigError: ``vocab_size`` is smaller than the alphabet.
        """
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        alphabet = [*SPECIAL_TOKENS, *self.options.alphabet]
        if vocab_size is not None and vocab_size < len(alphabet):
            raise ConfigError(
                f"vocab_size is {vocab_size}, but the alphabet of music has {len(alphabet)} words, with the "
                "special tokens. Leave vocab_size out, or give at least that number."
            )
        if self.options.tokens == "bpe":
            return merges.learn(segments, Spelling(self.options.alphabet), vocab_size or merges.DEFAULT_SIZE)
        vocabulary = {word: index for index, word in enumerate(alphabet)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        # "[MASK]" in raw text becomes "(MASK]", an unknown word; special tokens are matched before this.
        tokenizer.normalizer = normalizers.Replace("[", "(")
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return tokenizer

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer, and the dictionary by which :meth:`encode` looks its words up.

        Raises:
            DomainError: The tokenizer's tokens are not those of the option ``tokens``.
        """
        super().use(tokenizer)
        self._ids = {word: index for word, index in tokenizer.get_vocab().items() if word not in SPECIAL_TOKENS}
        self._unknown = tokenizer.get_vocab()["[UNK]"]
        bar = "Bar" if self.options.tokens == "event" else self._spelling(["Bar"])
        if bar not in self._ids:
            raise DomainError(
                f'The vocabulary has no token for a bar as the option tokens, "{self.options.tokens}", spells it: it '
                "was made under another setting. Set tokens as it was then, or have a new vocabulary made."
            )

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """The tokenizer's own ids; units count the bars of each text from 0."""
        tokenizer = self.vocabulary
        if self.options.tokens == "bpe":
            return merges.encode(texts, tokenizer, self._spelling, offsets)
        find, unknown = self._ids.get, self._unknown
        rows = [text.split() for text in texts]
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        total = int(lengths.sum())
        ids = np.fromiter((find(word, unknown) for row in rows for word in row), np.int32, total)

        bars = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids == self._ids["Bar"])])
        firsts = np.cumsum(lengths) - lengths
        begins_with_bar = bars[np.minimum(firsts + 1, total)] - bars[firsts]
        units = bars[1:] - np.repeat(bars[firsts] + begins_with_bar, lengths)

        spans = None
        if offsets:
            found = [match.span() for text in texts for match in re.finditer(r"\S+", text)]
            spans = np.array(found, np.int64).reshape(-1, 2)
        return Encoded(ids, lengths, units.astype(np.int32), spans)

    def decode(self, ids: Sequence[int]) -> str:
        """Canonical text of token ids; special tokens are left out."""
        if self.options.tokens == "event":
            return super().decode(ids)
        tokens = (self.vocabulary.id_to_token(int(index)) or "" for index in ids)
        return " ".join(word for token in tokens if token not in SPECIAL_TOKENS for word in self._spelling.back(token))

    def words(self, text: str) -> np.ndarray:
        """Every note, by its ``Pitch`` or ``Drum`` word, ``[notes, 2]``."""
        return np.array([match.span() for match in _NOTE.finditer(text)], np.int64).reshape(-1, 2)

    def symbols(self, text: str) -> int:
        """The number of notes: ``Pitch`` and ``Drum`` words."""
        if self.options.tokens == "bpe" and " " not in text:
            text = " ".join(self._spelling.back(text))
        return sum(word.startswith(("Pitch_", "Drum_")) for word in text.split())

    def token_kinds(self) -> list[str]:
        """What each token is: the kind of its word, such as "Pitch".

        Several words are "merged", or "merged frame" where some of them are of :meth:`frame`.
        """
        return [self._kind(self.vocabulary.id_to_token(i) or "") for i in range(self.vocabulary.get_vocab_size())]

    def frame(self) -> frozenset[str]:
        """The kinds of words that say when a bar begins, how long it is and in which key; and parts of long sums.

        What is filled in never begins a sum, or a note of nine quarters could be made out of any two words.
        """
        return FRAME | {MERGED_FRAME, "longest Position", "longest Duration"}

    def follows(self) -> Mapping[str, frozenset[str]]:
        """Which kinds of words follow each other in canonical text; nothing is known of tokens of several words."""
        return FOLLOWS if self.options.tokens == "event" else {}

    def begins(self) -> frozenset[str]:
        """Nothing sounds before the first bar; of tokens of several words, those in which a bar may begin."""
        return frozenset({"Bar", MERGED_FRAME})

    def _kind(self, token: str) -> str:
        if token in SPECIAL_TOKENS:
            return "special"
        words = self._spelling.back(token) if self.options.tokens == "bpe" else [token]
        kinds = {kind_of(word) for word in words}
        if len(words) == 1:
            return kinds.pop()
        return MERGED_FRAME if kinds & FRAME else "merged"

    def augmentations(self) -> Mapping[str, Augmentation]:
        """``transposition``: to any of the twelve keys, as far as the pitches stay within the alphabet."""
        change: Words | Merged
        if self.options.tokens == "bpe":
            change = Merged.of(self.vocabulary, self._spelling)
        else:
            change = Words.of(self.vocabulary.get_vocab())
        return {"transposition": Augmentation(VARIANTS, change)}

    @functools.cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.options.alphabet)

    def write(self, text: str, path: Path) -> None:
        """Canonical text as MIDI (``.mid``, ``.midi``) or MusicXML (``.musicxml``, ``.xml``), by the ending.

        Raises:
            DataError: The ending is another one, or the text holds no bar.
        """
        suffix = path.suffix.lower()
        piece = parse(text)
        if suffix in (".mid", ".midi"):
            data = midi.to_midi(piece)
        elif suffix in (".musicxml", ".xml"):
            with scores.quiet():
                data = scores.to_musicxml(scores.build(piece))
        else:
            raise DataError(
                f"{path}: music is written as MIDI (.mid, .midi) or MusicXML (.musicxml, .xml). Give the "
                "file one of these endings."
            )
        path.write_bytes(data)

    def sample(self) -> Sample:
        """Every third tune of Ryan's Mammoth Collection, which music21 brings along."""
        files = tune_files()
        return Sample(
            about=(
                f"{len(files[::3])} fiddle tunes in ABC: every third of Ryan's Mammoth Collection (1883, "
                "public domain), transcribed by Ray Davies and others; part of music21, whose corpus is "
                "distributed by permission of the transcribers"
            ),
            files=files[::3],
            tables=sample_tables(self) | corpus_tables(self),
        )

    def _read_book(self, path: Path, report: Report) -> Iterator[Document]:
        data = containers.read_bytes(path, containers.LARGEST_SCORE)
        text = containers.as_text(data, path, report, self.options.encoding)
        seen: dict[str, int] = {}
        tunes = 0
        for tune in abc_notation.tunes(text):
            tunes += 1
            source = f"{path}:{tune.number or tune.line}"
            try:
                draft, metadata, repairs = abc_notation.read_tune(tune.text, self.options.repeats)
            except ValueError as error:
                report.skipped(source, f"not ABC: {_line(error)}")
                continue
            name = f"{tune.number} {metadata.get('title', '')}".strip() or without_compression(path).stem
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name = f"{name} ({seen[name]})"
            yield from self._document(draft, name, source, metadata, repairs, report)
        if not tunes:
            raise DataError(
                f"{path}: no tune in ABC: a tune begins with an X: field and its header ends with a K: field."
            )

    def _drafts(self, path: Path, kind: str, report: Report) -> list[tuple[Draft, dict[str, str], list[str]]]:
        options = self.options
        if kind != "midi":
            return scores.drafts(path, kind, report, options.repeats, options.encoding)
        data = containers.read_bytes(path, midi.LARGEST_FILE)
        return midi.read_midi(data, report, str(path), options.drums == "keep", options.damaged_midi == "mend")

    def _document(
        self,
        draft: Draft,
        name: str,
        source: str,
        metadata: dict[str, str],
        repairs: Sequence[str],
        report: Report,
    ) -> Iterator[Document]:
        piece = draft.settle(source, report, self.options.reading)
        if piece is None:
            return
        for repair in repairs:
            report.repaired(source, repair)
        yield Document(name, piece.segments(self.options.bars_per_segment, self.options.wording), source, metadata)


def _line(error: Exception) -> str:
    """The first line of an error's message, not too long for a report."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
