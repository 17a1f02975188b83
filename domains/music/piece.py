"""A piece of music as bars and notes on the grid, its canonical text, and the way back."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from domains.music.alphabet import (
    DENOMINATORS,
    DRUMS,
    NUMERATORS,
    PARTS,
    TICKS_PER_QUARTER,
    WORDS,
    amount,
    bar_ticks,
    nearest_tempo,
    velocity_of_bin,
)
from seqbert.domain import Report
from seqbert.errors import DataError

COMMON_TIME = 4 * TICKS_PER_QUARTER
LONGEST_BAR = 8 * COMMON_TIME
SHORTEST_BAR = Fraction(1, 8)
"""In quarters; a shorter time signature is a mistake, and would fill the memory with bars."""
LONGEST_PIECE = 65_536
"""In quarters: nine hours at 120 a minute. A file that claims more is damaged."""
MOST_BARS = 2**17


class Note(NamedTuple):
    """A note in ticks from the beginning of the piece; a grace note has the duration 0, an unsaid velocity is 0."""

    onset: int
    duration: int
    pitch: int
    velocity: int = 0

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


@dataclasses.dataclass(frozen=True, slots=True)
class Wording:
    """What canonical text says beside bars, positions, pitches and durations.

    Attributes:
        velocity_bins: Each note says its velocity, as one of so many; 0: none does.
        tempo: Tempos are said.
        instruments: The MIDI program of each part is said, once a segment.
    """

    velocity_bins: int = 0
    tempo: bool = True
    instruments: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How a draft is put on the grid.

    Attributes:
        grid: Steps in a quarter; it divides 24.
        velocities: Kept rather than forgotten.
        drums: Parts of drums are kept rather than left out.
        merged: All pitched parts become one, and all drum parts another.
    """

    grid: int = TICKS_PER_QUARTER
    velocities: bool = False
    drums: bool = False
    merged: bool = False


@dataclasses.dataclass(slots=True)
class Piece:
    """Music on the grid of 1/24 quarter.

    Attributes:
        bars: One after another from tick 0, without gaps; each is at least one tick long.
        parts: The notes of each part, by onset; at one onset first the grace notes as they are played, then
            the others from low to high.
        tempos: (tick, quarters a minute), by tick.
        programs: The MIDI program of each part, None where it is not known and :data:`DRUMS` for drums, whose
            "pitches" are instruments; shorter than ``parts`` where nothing more is known.
    """

    bars: list[Bar]
    parts: list[list[Note]]
    tempos: list[tuple[int, int]]
    programs: list[int | None] = dataclasses.field(default_factory=list)

    def program(self, part: int) -> int | None:
        """The MIDI program of a part, if it is known."""
        return self.programs[part] if part < len(self.programs) else None

    def segments(self, bars_per_segment: int, wording: Wording | None = None) -> list[str]:
        """Canonical text in stretches of whole bars.

        A bar holds the notes of all its parts, part by part. Each segment begins by saying again the time
        signature, the key signature and the tempo in force, and says again each part's program, so that it can
        be read by itself.
        """
        wording = wording or Wording()
        starts = [bar.start for bar in self.bars]
        music: list[dict[int, list[Note]]] = [{} for _ in self.bars]
        for number, notes in enumerate(self.parts):
            for note in notes:
                music[bisect_right(starts, note.onset) - 1].setdefault(number, []).append(note)
        changes: list[list[tuple[int, int]]] = [[] for _ in self.bars]
        for change in self.tempos if wording.tempo else ():
            changes[bisect_right(starts, change[0]) - 1].append(change)

        segments = []
        words: list[str] = []
        named: set[int] = set()
        signature = sharps = tempo = None
        for index, bar in enumerate(self.bars):
            fresh = index % bars_per_segment == 0
            if fresh and words:
                segments.append(" ".join(words))
                words = []
                named.clear()
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
                program = self.program(number)
                if wording.instruments and program not in (None, DRUMS) and number not in named:
                    words.append(f"Program_{program}")
                    named.add(number)
                kind = "Drum" if program == DRUMS else "Pitch"
                words += _note_words(notes, bar.start, kind, wording.velocity_bins)
        segments.append(" ".join(words))
        return segments


def _note_words(notes: list[Note], bar_start: int, kind: str, velocity_bins: int) -> Iterator[str]:
    position = -1
    for note in notes:
        if note.onset != position:
            position = note.onset
            yield from amount("Position", position - bar_start)
        yield f"{kind}_{note.pitch}"
        if velocity_bins and note.velocity:
            yield f"Velocity_{velocity_of_bin(note.velocity, velocity_bins)}"
        yield from amount("Duration", note.duration)


def parse(text: str) -> Piece:
    """The piece that canonical text describes.

    Text that a model made up is read as far as it makes sense. Passed over are a word that says nothing where it
    stands, such as a duration without a pitch, what is no word of the alphabet, and a note that would begin after
    its bar has ended; a note is cut where its pitch begins again in its part. So every bar is as long as it says.

    Raises:
        DataError: The text holds no bar.
    """
    bars: list[Bar] = []
    parts: dict[tuple[int, bool], list[Note]] = {}
    programs: dict[int, int] = {}
    tempos: list[tuple[int, int]] = []
    in_bar: list[tuple[tuple[int, bool], Note]] = []
    changes: list[tuple[int, int]] = []
    start = length = position = part = velocity = 0
    signature: tuple[int, int] | None = None
    sharps: int | None = None
    numerator: int | None = None
    pitch: int | None = None
    open_bar = drum = False
    previous = ""

    def close() -> None:
        bar = Bar(start, length or (bar_ticks(signature) if signature else COMMON_TIME), signature, sharps)
        bars.append(bar)
        for key, note in in_bar:
            if note.onset < bar.start + bar.length:
                parts.setdefault(key, []).append(note)
        tempos.extend(change for change in changes if change[0] < bar.start + bar.length)
        in_bar.clear()
        changes.clear()

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
                changes.append((start + position, value))
            elif kind == "Part":
                part, position, pitch = value, 0, None
            elif kind == "Program":
                programs.setdefault(part, value)
            elif kind == "Position":
                position = position + value if previous == "Position" else value
            elif kind in ("Pitch", "Drum"):
                pitch, drum, velocity = value, kind == "Drum", 0
            elif kind == "Velocity":
                velocity = value
            elif kind == "Duration" and pitch is not None:
                if previous == "Duration" and in_bar:
                    value += in_bar.pop()[1].duration
                in_bar.append(((part, drum), Note(start + position, value, pitch, velocity)))
        previous = kind
    if not open_bar:
        raise DataError(
            'This is not canonical music text: it holds no word "Bar". Such text is what reading a score, or '
            "decoding the tokens of one, gives."
        )
    close()
    keys = sorted(parts)
    return Piece(
        bars,
        [_in_order(_one_at_a_time(parts[key])[0]) for key in keys],
        _changes(tempos),
        _trimmed([DRUMS if drum else programs.get(number) for number, drum in keys]),
    )


def _changes(tempos: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Tempos by tick, of several at one tick the last, without those that say again what is in force."""
    changes: list[tuple[int, int]] = []
    for tick, tempo in sorted(dict(tempos).items()):
        if not changes or changes[-1][1] != tempo:
            changes.append((tick, tempo))
    return changes


def _trimmed(programs: list[int | None]) -> list[int | None]:
    """Programs without those at the end that are not known."""
    while programs and programs[-1] is None:
        programs.pop()
    return programs


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
        if len(bars) > MOST_BARS:
            raise ValueError(f"it has more than {MOST_BARS:,} bars")
    return bars


class DraftNote(NamedTuple):
    """A note in exact quarters, or what the draft's resolution makes of them; velocity 0: the file says none."""

    onset: Fraction | int
    end: Fraction | int
    pitch: int
    velocity: int = 0


class Instrument(NamedTuple):
    """What a file says of who plays a part: a MIDI program from 0, a name, whether its pitches are drums."""

    program: int | None = None
    name: str = ""
    drums: bool = False


@dataclasses.dataclass(slots=True)
class Draft:
    """What a file says, in exact quarters, before it is put on the grid.

    Attributes:
        bars: In order; the first begins at 0. Empty where the file tells neither bars nor meters.
        end: Where the last bar ends.
        parts: The notes of each part: (onset, end, pitch), and velocity where there is one. A grace note ends
            where it begins.
        tempos: (when, quarters a minute).
        instruments: Who plays each part; shorter than ``parts`` where nothing more is known.
        resolution: The onsets and ends of ``parts`` are in so many parts of a quarter.
    """

    bars: list[DraftBar] = dataclasses.field(default_factory=list)
    end: Fraction = Fraction(0)
    parts: list[Sequence[tuple[Fraction, Fraction, int] | DraftNote]] = dataclasses.field(default_factory=list)
    tempos: list[tuple[Fraction, float]] = dataclasses.field(default_factory=list)
    instruments: list[Instrument] = dataclasses.field(default_factory=list)
    resolution: int = 1

    def settle(self, source: str, report: Report, reading: Reading | None = None) -> Piece | None:
        """Puts the draft on the grid; None, told to the report, where it cannot be used.

        In one part a pitch sounds once at a time, as on a keyboard: a note is cut where the next of its pitch
        begins, and of two that begin together the longer stays.
        """
        reading = reading or Reading()
        unknown = [Instrument()] * (len(self.parts) - len(self.instruments))
        played = [(notes, who) for notes, who in zip(self.parts, [*self.instruments, *unknown], strict=False) if notes]
        if not reading.drums:
            left_out = sum(len(notes) for notes, who in played if who.drums)
            played = [(notes, who) for notes, who in played if not who.drums]
            if left_out and not played:
                report.skipped(source, "no notes but drums")
                return None
            report.tally("drum notes left out", left_out, source)
        if not played:
            report.skipped(source, "no notes")
            return None
        if any(note[0] < 0 or note[1] < note[0] for notes, _ in played for note in notes):
            report.skipped(source, "notes that end before they begin, or begin before the piece")
            return None
        latest = max(note[1] for notes, _ in played for note in notes)
        if max(self.end, Fraction(latest) / self.resolution) > LONGEST_PIECE:
            report.skipped(source, f"lasts more than {LONGEST_PIECE:,} quarters")
            return None
        if reading.merged:
            played = _merged(played)
        if len(played) > len(PARTS):
            report.repaired(source, f"parts beyond the {len(PARTS)}th joined to the last")
            rest = [note for notes, _ in played[PARTS[-1] :] for note in notes]
            played = [*played[: PARTS[-1]], (rest, Instrument())]
        parts = []
        moved = dropped = trimmed = 0
        farthest = 0.0
        for notes, _ in played:
            placed, changed, distance = self._placed(notes, reading)
            moved += changed
            farthest = max(farthest, distance)
            kept, lost, cut = _one_at_a_time(placed)
            dropped += lost
            trimmed += cut
            parts.append(_in_order(kept))
        grid = f"notes moved to the grid of 1/{reading.grid} quarter"
        report.tally(grid, moved, source, f"by up to {farthest:.4f} of a quarter")
        report.largest("largest onset error in quarters", farthest)
        report.tally("notes dropped that double another of their part", dropped, source)
        report.tally("notes cut short where their pitch begins again", trimmed, source)
        last = max(max(note.end, note.onset + 1) for notes in parts for note in notes)
        programs = _trimmed([DRUMS if who.drums else who.program for _, who in played])
        return Piece(self._bars(last, source, report), parts, self._tempos(last, source, report), programs)

    def _placed(
        self, notes: Sequence[tuple[Fraction, Fraction, int] | DraftNote], reading: Reading
    ) -> tuple[list[Note], int, float]:
        """The notes on the grid, how many were moved, and how far at most an onset was, in quarters."""
        grid, resolution = reading.grid, self.resolution
        step = TICKS_PER_QUARTER // grid
        placed = []
        moved = 0
        farthest = 0.0
        for note in notes:
            onset, stop, pitch = note[0], note[1], note[2]
            above, below = grid * onset.numerator, resolution * onset.denominator
            begin = (2 * above + below) // (2 * below)
            off = begin * below - above
            above, below_end = grid * stop.numerator, resolution * stop.denominator
            finish = (2 * above + below_end) // (2 * below_end)
            if off:
                farthest = max(farthest, abs(off) / (below * grid))
                moved += 1
            elif finish * below_end != above:
                moved += 1
            duration = max(finish - begin, 1) * step if stop > onset else 0
            velocity = note[3] if reading.velocities and len(note) > 3 else 0
            placed.append(Note(begin * step, duration, pitch, velocity))
        return placed, moved, farthest

    def _bars(self, last: int, source: str, report: Report) -> list[Bar]:
        """The written bars on the grid, and more of the last kind where the music goes on after them."""
        bars: list[Bar] = []
        signature: tuple[int, int] | None = None
        sharps: int | None = None
        if any(bar.signature is not None and not _has_words(bar.signature) for bar in self.bars):
            report.repaired(source, "a time signature without words: its bars say their length")
        ends = [*(_tick(bar.start) for bar in self.bars[1:]), _tick(self.end)][: len(self.bars)]
        for bar, end in zip(self.bars, ends, strict=True):
            sharps = bar.sharps
            if bar.signature is None or _has_words(bar.signature):
                signature = bar.signature
            start = bars[-1].start + bars[-1].length if bars else 0
            nominal = bar_ticks(signature) if signature else COMMON_TIME
            if end - start > max(LONGEST_BAR, nominal):
                report.tally(f"bars longer than {LONGEST_BAR // TICKS_PER_QUARTER} quarters cut", 1, source)
                _fill(bars, end, signature, sharps)
            elif end > start:
                bars.append(Bar(start, end - start, signature, sharps))
        _fill(bars, last, signature, sharps, whole=True)
        return bars

    def _tempos(self, last: int, source: str, report: Report) -> list[tuple[int, int]]:
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
        report.tally("tempos rounded to the nearest word", rounded, source)
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
    return (2 * TICKS_PER_QUARTER * quarters.numerator + quarters.denominator) // (2 * quarters.denominator)


def _merged(played: list[tuple[Any, Instrument]]) -> list[tuple[Any, Instrument]]:
    """All pitched parts as one and all drum parts as another; a program that they share is kept."""
    merged: list[tuple[Any, Instrument]] = []
    for drums in (False, True):
        alike = [(notes, who) for notes, who in played if who.drums == drums]
        if alike:
            programs = {who.program for _, who in alike}
            notes = sorted(note for notes, _ in alike for note in notes)
            merged.append((notes, Instrument(programs.pop() if len(programs) == 1 else None, "", drums)))
    return merged


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
            note = note._replace(duration=following.onset - note.onset)
            cut += 1
        kept.append(note)
        following = note
    return kept, dropped, cut
