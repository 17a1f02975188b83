"""The domain "music": scores as bars of notes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from domains.music import abc_notation, containers, midi, scores
from domains.music.alphabet import KEYS, PITCHES, transposed_key, words
from domains.music.corpus import corpus_tables, tune_files
from domains.music.piece import Draft, parse
from domains.music.tables import notes, sample_tables
from seqbert.data.compressed import without_compression
from seqbert.domain import SPECIAL_TOKENS, Augmentation, Document, Domain, Encoded, Report, Sample
from seqbert.errors import ConfigError, DataError, SeqbertError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TRANSPOSITIONS = range(-5, 7)
"""In semitones: every key once."""


@dataclasses.dataclass
class MusicOptions:
    """How scores are cut.

    Attributes:
        bars_per_segment: Bars in one segment of a document, over all parts; four are a phrase in most metres.
    """

    bars_per_segment: int = 4

    def __post_init__(self) -> None:
        if self.bars_per_segment < 1:
            raise ConfigError(f"bars_per_segment is {self.bars_per_segment}; a segment needs at least one bar.")


class Music(Domain):
    """Scores as the words of :mod:`domains.music.alphabet`, bar by bar with all parts together.

    Repeats are not unfolded: the bars are those that are written. Kept are notes, grace notes, ties (joined),
    bars, time and key signatures, tempos and parts; left out are lyrics, chord symbols, ornaments, dynamics,
    instruments and unpitched percussion. A masking unit is a bar.
    """

    name = "music"
    Options = MusicOptions
    formats: ClassVar[Mapping[str, str]] = {
        ".abc": "ABC tunes and tune books",
        ".musicxml": "MusicXML",
        ".xml": "MusicXML, by its root element",
        ".mxl": "compressed MusicXML",
        ".krn": "Humdrum **kern",
        ".mid": "MIDI",
        ".midi": "MIDI",
    }
    symbol = "note"
    version = "1"

    @property
    def unit(self) -> str:
        """A bar, with its notes in all parts."""
        return "bar"

    def reads(self, path: Path) -> bool:
        """By the ending, compressed or not; an ``.xml`` file only where it holds a score."""
        suffix = without_compression(path).suffix.lower()
        return suffix in self.formats and (suffix != ".xml" or containers.holds_score(path))

    def read(self, path: Path, report: Report) -> Iterator[Document]:
        """One document a tune of an ABC book, a piece of a Humdrum file, else a file.

        Raises:
            DataError: The file cannot be read at all; a tune of a book that cannot is skipped.
        """
        suffix = without_compression(path).suffix.lower()
        if suffix == ".abc":
            yield from self._read_book(path, report)
            return
        if suffix not in self.formats:
            raise DataError(
                f"{path}: no score by its ending. Rename or unpack the file if it is one of these: "
                f"{', '.join(self.formats)}."
            )
        try:
            with scores.quiet():
                drafts = list(self._drafts(path, suffix, report))
        except SeqbertError:
            raise
        except Exception as error:
            raise DataError(
                f"{path}: cannot be read as {self.formats[suffix]} ({type(error).__name__}: {_line(error)}). "
                "The file is damaged or of another format; take it out of the data or export it again."
            ) from error
        for number, (draft, metadata) in enumerate(drafts, start=1):
            several = len(drafts) > 1
            source = f"{path}:{number}" if several else str(path)
            stem = without_compression(path).stem
            name = f"{stem} {number}" if several else stem
            yield from self._document(draft, name, source, metadata, report)

    def canonical(self, raw: str) -> str:
        """Canonical text as it is, with single spaces; a tune in ABC, as a table may hold it, is read first.

        Raises:
            DataError: The text has an X: or K: field as tunes in ABC have, but cannot be read.
        """
        tune = next(abc_notation.tunes(raw), None)
        if tune is None:
            return " ".join(raw.split())
        try:
            piece = abc_notation.read_tune(tune.text)[0].settle("", Report())
        except ValueError as error:
            raise DataError(
                f"A text that looks like a tune in ABC cannot be read: {_line(error)}. It begins {raw[:50]!r}"
            ) from error
        return " ".join(piece.segments(self.options.bars_per_segment)) if piece is not None else ""

    def tokenizer(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """One token a word of the alphabet; ``segments`` are not looked at.

        Raises:
            ConfigError: ``vocab_size`` is smaller than the alphabet.
        """
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        alphabet = [*SPECIAL_TOKENS, *words()]
        if vocab_size is not None and vocab_size < len(alphabet):
            raise ConfigError(
                f"vocab_size is {vocab_size}, but the alphabet of music has {len(alphabet)} words, with the "
                "special tokens. Leave vocab_size out, or give at least that number."
            )
        vocabulary = {word: index for index, word in enumerate(alphabet)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        # "[MASK]" in raw text becomes "(MASK]", an unknown word; special tokens are matched before this.
        tokenizer.normalizer = normalizers.Replace("[", "(")
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return tokenizer

    def use(self, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer, and the dictionary by which :meth:`encode` looks its words up."""
        super().use(tokenizer)
        self._ids = {word: index for word, index in tokenizer.get_vocab().items() if word not in SPECIAL_TOKENS}
        self._unknown = tokenizer.get_vocab()["[UNK]"]

    def encode(self, texts: Sequence[str], offsets: bool = True) -> Encoded:
        """The tokenizer's own ids, looked up word by word; units count the bars of each text from 0."""
        _ = self.vocabulary
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

    def words(self, text: str) -> np.ndarray:
        """Every note, by its ``Pitch`` word, ``[notes, 2]``."""
        return notes(text)

    def symbols(self, text: str) -> int:
        """The number of notes: ``Pitch`` words."""
        return sum(word.startswith("Pitch_") for word in text.split())

    def augmentations(self) -> Mapping[str, Augmentation]:
        """``transposition``: to any of the twelve keys, as far as the pitches stay within the alphabet."""
        return {"transposition": Transposition.of(self.vocabulary)}

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
        text = containers.as_text(containers.read_bytes(path, containers.LARGEST_SCORE), path, report)
        seen: dict[str, int] = {}
        tunes = 0
        for tune in abc_notation.tunes(text):
            tunes += 1
            source = f"{path}:{tune.number or tune.line}"
            try:
                draft, metadata, repairs = abc_notation.read_tune(tune.text)
            except ValueError as error:
                report.skipped(source, f"not ABC: {_line(error)}")
                continue
            name = f"{tune.number} {metadata.get('title', '')}".strip() or without_compression(path).stem
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                name = f"{name} ({seen[name]})"
            for document in self._document(draft, name, source, metadata, report):
                for repair in repairs:
                    report.repaired(source, repair)
                yield document
        if not tunes:
            raise DataError(
                f"{path}: no tune in ABC: a tune begins with an X: field and its header ends with a K: field."
            )

    def _drafts(self, path: Path, suffix: str, report: Report) -> Iterator[tuple[Draft, dict[str, str]]]:
        if suffix in (".mid", ".midi"):
            yield midi.read_midi(containers.read_bytes(path, midi.LARGEST_FILE), report), {}
            return
        data = containers.read_bytes(path, containers.LARGEST_SCORE)
        if suffix == ".krn":
            found = scores.read_humdrum(containers.as_text(data, path, report))
        else:
            source = str(path)
            if suffix == ".mxl":
                data, source = containers.score_in_archive(data, path)
            found = scores.read_musicxml(containers.score_in_xml(data, source))
        for score in found:
            yield scores.draft_of(score, report), scores.metadata(score)

    def _document(
        self, draft: Draft, name: str, source: str, metadata: dict[str, str], report: Report
    ) -> Iterator[Document]:
        piece = draft.settle(source, report)
        if piece is not None:
            yield Document(name, piece.segments(self.options.bars_per_segment), source, metadata)


@dataclasses.dataclass(frozen=True, slots=True)
class Transposition:
    """Shifts all pitches of a sequence by one number of semitones, and its key signatures with them.

    Attributes:
        pitches: Id of each pitch of the alphabet, ``[128]``.
        pitch_of: Pitch of each id, -1 where it is none, ``[vocabulary]``.
        moved: For each shift what every id becomes, pitches aside, ``[shifts, vocabulary]``.
    """

    pitches: np.ndarray
    pitch_of: np.ndarray
    moved: np.ndarray

    @classmethod
    def of(cls, vocabulary: Tokenizer) -> Transposition:
        """The shifts for the ids of a tokenizer."""
        ids = vocabulary.get_vocab()
        pitches = np.array([ids[f"Pitch_{pitch}"] for pitch in PITCHES])
        pitch_of = np.full(len(ids), -1)
        pitch_of[pitches] = PITCHES
        moved = np.tile(np.arange(len(ids)), (len(TRANSPOSITIONS), 1))
        for row, semitones in enumerate(TRANSPOSITIONS):
            for sharps in KEYS:
                key = f"KeySignature_{transposed_key(sharps, semitones)}"
                moved[row, ids[f"KeySignature_{sharps}"]] = ids[key]
        return cls(pitches, pitch_of, moved)

    def __call__(
        self, ids: np.ndarray, units: np.ndarray | None, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids after a shift drawn evenly from those that keep every pitch in the alphabet."""
        pitch = self.pitch_of[ids]
        noted = pitch >= 0
        lowest, highest = (int(pitch[noted].min()), int(pitch[noted].max())) if noted.any() else (0, 0)
        low = max(TRANSPOSITIONS[0], PITCHES[0] - lowest)
        high = min(TRANSPOSITIONS[-1], PITCHES[-1] - highest)
        semitones = int(generator.integers(low, high + 1))
        shifted = self.moved[semitones - TRANSPOSITIONS[0]][ids]
        shifted[noted] = self.pitches[pitch[noted] + semitones]
        return shifted.astype(ids.dtype), np.arange(len(ids))


def _line(error: Exception) -> str:
    """The first line of an error's message, not too long for a report."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
