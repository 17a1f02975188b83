"""A piece of music as bars and notes on the grid, its canonical text, and the way back."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import floor
from typing import NamedTuple

from domains.music.alphabet import (
    DENOMINATORS,
    NUMERATORS,
    PARTS,
    TICKS_PER_QUARTER,
    WORDS,
    amount,
    bar_ticks,
    nearest_tempo,
)
from seqbert.domain import Report
from seqbert.errors import DataError

COMMON_TIME = 4 * TICKS_PER_QUARTER
LONGEST_BAR = 8 * COMMON_TIME
SHORTEST_BAR = Fraction(1, 8)
"""In quarters; a shorter time signature is a mistake, and would fill the memory with bars."""
LONGEST_PIECE = 65_536
"""In quarters: nine hours at 120 a minute. A file that claims more is damaged."""


class Note(NamedTuple):
    """A note in ticks from the beginning of the piece; a grace note has the duration 0."""

    onset: int
    duration: int
    pitch: int

    @property
    def end(self) -> int:
        """The tick at which the note stops."""
        return self.onset + self.duration


class Bar(NamedTuple):
    """A bar in ticks, with the time signature and the key signature in force; None where none was given."""

    start: int
    length: int
    signature: tuple[int, int] | None
    sharps: int | None


@dataclasses.dataclass(slots=True)
class Piece:
    """Music on the grid of 1/24 quarter.

    Attributes:
        bars: One after another from tick 0, without gaps; each is at least one tick long.
        parts: The notes of each part, by onset; at one onset first the grace notes as they are played, then
            the others from low to high.
        tempos: (tick, quarters a minute), by tick.
    """

    bars: list[Bar]
    parts: list[list[Note]]
    tempos: list[tuple[int, int]]

    def segments(self, bars_per_segment: int) -> list[str]:
        """Canonical text in stretches of whole bars.

        A bar holds the notes of all its parts, part by part. Each segment begins by saying again the time
        signature, the key signature and the tempo in force, so that it can be read by itself.
        """
        starts = [bar.start for bar in self.bars]
        music: list[dict[int, list[Note]]] = [{} for _ in self.bars]
        for number, notes in enumerate(self.parts):
            for note in notes:
                music[bisect_right(starts, note.onset) - 1].setdefault(number, []).append(note)
        changes: list[list[tuple[int, int]]] = [[] for _ in self.bars]
        for change in self.tempos:
            changes[bisect_right(starts, change[0]) - 1].append(change)

        segments = []
        words: list[str] = []
        signature = sharps = tempo = None
        for index, bar in enumerate(self.bars):
            fresh = index % bars_per_segment == 0
            if fresh and words:
                segments.append(" ".join(words))
                words = []
            words.append("Bar")
            if bar.signature is not None and (fresh or bar.signature != signature):
                words += (f"Numerator_{bar.signature[0]}", f"Denominator_{bar.signature[1]}")
            signature = bar.signature
            if signature is None or bar.length != bar_ticks(signature):
                words += amount("Length", bar.length)
            if bar.sharps is not None and (fresh or bar.sharps != sharps):
                words.append(f"KeySignature_{bar.sharps}")
            sharps = bar.sharps
            if fresh and tempo is not None and not (changes[index] and changes[index][0][0] == bar.start):
                words += ("Position_0", f"Tempo_{tempo}")
            for tick, tempo in changes[index]:
                words += (*amount("Position", tick - bar.start), f"Tempo_{tempo}")
            for number, notes in music[index].items():
                words.append(f"Part_{number}")
                words += _note_words(notes, bar.start)
        segments.append(" ".join(words))
        return segments


def _note_words(notes: list[Note], bar_start: int) -> Iterator[str]:
    position = -1
    for note in notes:
        if note.onset != position:
            position = note.onset
            yield from amount("Position", position - bar_start)
        yield f"Pitch_{note.pitch}"
        yield from amount("Duration", note.duration)


def parse(text: str) -> Piece:
    """The piece that canonical text describes.

    Text that a model made up is read as far as it makes sense: a word that says nothing where it stands, such
    as a duration without a pitch, is passed over, and so is what is no word of the alphabet.

    Raises:
        DataError: The text holds no bar.
    """
    bars: list[Bar] = []
    parts: dict[int, list[Note]] = {}
    tempos: list[tuple[int, int]] = []
    start = length = position = part = 0
    signature: tuple[int, int] | None = None
    sharps: int | None = None
    numerator: int | None = None
    pitch: int | None = None
    open_bar = False
    previous = ""

    def close() -> None:
        bars.append(Bar(start, length or (bar_ticks(signature) if signature else COMMON_TIME), signature, sharps))

    for word in text.split():
        kind, _, digits = word.partition("_")
        if kind == "Bar":
            if open_bar:
                close()
                start = bars[-1].start + bars[-1].length
            open_bar, length, position, pitch = True, 0, 0, None
        elif open_bar and word in WORDS:
            value = int(digits)
            if kind == "Numerator":
                numerator = value
            elif kind == "Denominator" and previous == "Numerator" and numerator:
                signature = numerator, value
            elif kind == "Length":
                length += value
            elif kind == "KeySignature":
                sharps = value
            elif kind == "Tempo":
                tempos.append((start + position, value))
            elif kind == "Part":
                part, position, pitch = value, 0, None
            elif kind == "Position":
                position = position + value if previous == "Position" else value
            elif kind == "Pitch":
                pitch = value
            elif kind == "Duration" and pitch is not None:
                notes = parts.setdefault(part, [])
                if previous == "Duration":
                    value += notes.pop().duration
                notes.append(Note(start + position, value, pitch))
        previous = kind
    if not open_bar:
        raise DataError(
            'This is not canonical music text: it holds no word "Bar". Such text is what reading a score, or '
            "decoding the tokens of one, gives."
        )
    close()
    return Piece(bars, [_in_order(parts[number]) for number in sorted(parts)], sorted(set(tempos)))


class DraftBar(NamedTuple):
    """A bar that begins ``start`` quarters into the piece, under a time and a key signature, if any."""

    start: Fraction
    signature: tuple[int, int] | None
    sharps: int | None


def bar_quarters(signature: tuple[int, int] | None) -> Fraction:
    """How long a bar is by its time signature; without one, a bar of common time."""
    return Fraction(4 * signature[0], signature[1]) if signature else Fraction(4)


def metered(changes: Sequence[DraftBar], end: Fraction) -> list[DraftBar]:
    """The bars up to ``end`` of music without bar lines: each change begins a bar, which then repeats.

    Of several changes at one time the last counts.

    Raises:
        ValueError: There would be more bars than music has.
    """
    if end > LONGEST_PIECE:
        raise ValueError(f"it lasts more than {LONGEST_PIECE:,} quarters")
    bars: list[DraftBar] = []
    for index, change in enumerate(changes):
        until = changes[index + 1].start if index + 1 < len(changes) else end
        start = change.start
        length = bar_quarters(change.signature)
        if length < SHORTEST_BAR:
            raise ValueError(f"a time signature whose bars last {length} of a quarter")
        while start < min(until, end):
            bars.append(DraftBar(start, change.signature, change.sharps))
            start += length
    return bars


@dataclasses.dataclass(slots=True)
class Draft:
    """What a file says, in exact quarters, before it is put on the grid.

    Attributes:
        bars: In order; the first begins at 0. Empty where the file tells neither bars nor meters.
        end: Where the last bar ends.
        parts: (onset, end, pitch) of the notes of each part; a grace note ends where it begins.
        tempos: (when, quarters a minute).
    """

    bars: list[DraftBar] = dataclasses.field(default_factory=list)
    end: Fraction = Fraction(0)
    parts: list[list[tuple[Fraction, Fraction, int]]] = dataclasses.field(default_factory=list)
    tempos: list[tuple[Fraction, float]] = dataclasses.field(default_factory=list)

    def settle(self, source: str, report: Report) -> Piece | None:
        """Puts the draft on the grid; None, told to the report, where it cannot be used.

        In one part a pitch sounds once at a time, as on a keyboard: a note is cut where the next of its pitch
        begins, and of two that begin together the longer stays.
        """
        sounding = [notes for notes in self.parts if notes]
        if not sounding:
            report.skipped(source, "no notes")
            return None
        end = max(self.end, max(note[1] for notes in sounding for note in notes))
        if end > LONGEST_PIECE:
            report.skipped(source, f"lasts more than {LONGEST_PIECE:,} quarters")
            return None
        if len(sounding) > len(PARTS):
            report.repaired(source, f"parts beyond the {len(PARTS)}th joined to the last")
            rest = [note for notes in sounding[PARTS[-1] :] for note in notes]
            sounding = [*sounding[: PARTS[-1]], rest]
        parts = []
        moved = dropped = trimmed = 0
        for notes in sounding:
            placed = []
            for onset, stop, pitch in notes:
                begin, finish = _tick(onset), _tick(stop)
                moved += begin != onset * TICKS_PER_QUARTER or finish != stop * TICKS_PER_QUARTER
                placed.append(Note(begin, max(finish - begin, 1) if stop > onset else 0, pitch))
            kept, lost, cut = _one_at_a_time(placed)
            dropped += lost
            trimmed += cut
            parts.append(_in_order(kept))
        report.tally("notes moved to the grid of 1/24 quarter", moved)
        report.tally("notes dropped that double another of their part", dropped)
        report.tally("notes cut short where their pitch begins again", trimmed)
        last = max(max(note.end, note.onset + 1) for notes in parts for note in notes)
        return Piece(self._bars(last, source, report), parts, self._tempos(last, report))

    def _bars(self, last: int, source: str, report: Report) -> list[Bar]:
        """The written bars on the grid, and more of the last kind where the music goes on after them."""
        bars: list[Bar] = []
        signature: tuple[int, int] | None = None
        sharps: int | None = None
        if any(bar.signature is not None and not _has_words(bar.signature) for bar in self.bars):
            report.repaired(source, "a time signature without words: its bars say their length")
        ends = [_tick(bar.start) for bar in self.bars[1:]] + [_tick(self.end)]
        for bar, end in zip(self.bars, ends, strict=True):
            sharps = bar.sharps
            if bar.signature is None or _has_words(bar.signature):
                signature = bar.signature
            start = bars[-1].start + bars[-1].length if bars else 0
            if end - start > LONGEST_BAR:
                report.tally(f"bars longer than {LONGEST_BAR // TICKS_PER_QUARTER} quarters cut")
                _fill(bars, end, signature, sharps)
            elif end > start:
                bars.append(Bar(start, end - start, signature, sharps))
        _fill(bars, last, signature, sharps, whole=True)
        return bars

    def _tempos(self, last: int, report: Report) -> list[tuple[int, int]]:
        changes: list[tuple[int, int]] = []
        rounded = 0
        for when, tempo in sorted(self.tempos):
            tick = _tick(when)
            if tempo <= 0 or tick >= last:
                continue
            value = nearest_tempo(tempo)
            rounded += value != tempo
            if changes and changes[-1][0] == tick:
                changes.pop()
            if not changes or changes[-1][1] != value:
                changes.append((tick, value))
        report.tally("tempos rounded to the nearest word", rounded)
        return changes


def _fill(
    bars: list[Bar], end: int, signature: tuple[int, int] | None, sharps: int | None, whole: bool = False
) -> None:
    """Adds bars of their signature's length until ``end``; the last stops there unless it is to be whole."""
    nominal = bar_ticks(signature) if signature else COMMON_TIME
    start = bars[-1].start + bars[-1].length if bars else 0
    while start < end:
        bars.append(Bar(start, nominal if whole else min(nominal, end - start), signature, sharps))
        start += nominal


def _has_words(signature: tuple[int, int]) -> bool:
    return signature[0] in NUMERATORS and signature[1] in DENOMINATORS


def _tick(quarters: Fraction) -> int:
    """The nearest tick; halves go up, so that equal distances stay equal."""
    return floor(quarters * TICKS_PER_QUARTER + Fraction(1, 2))


def _in_order(notes: list[Note]) -> list[Note]:
    return sorted(notes, key=lambda note: (note.onset, note.duration > 0, note.pitch if note.duration else 0))


def _one_at_a_time(notes: list[Note]) -> tuple[list[Note], int, int]:
    """The notes, in which no pitch begins while it sounds, and how many were dropped and cut for it."""
    longest: dict[tuple[int, int], Note] = {}
    for note in notes:
        if note.duration:
            same = longest.get((note.pitch, note.onset))
            if same is None or same.duration < note.duration:
                longest[note.pitch, note.onset] = note
    kept = [note for note in notes if not note.duration]
    dropped = len(notes) - len(kept) - len(longest)
    cut = 0
    following: Note | None = None
    for _, note in sorted(longest.items(), reverse=True):
        if following is not None and following.pitch == note.pitch and note.end > following.onset:
            note = Note(note.onset, following.onset - note.onset, note.pitch)
            cut += 1
        kept.append(note)
        following = note
    return kept, dropped, cut
