"""Tunes in ABC, after the ABC standard 2.1 (https://abcnotation.com/wiki/abc:standard:v2.1).

What a player hears of the written bars is kept: notes, chords, grace notes, ties, tuplets, broken rhythm,
keys, meters and tempos that change, voices and overlays. Repeats are unfolded if that is asked for; chord symbols,
lyrics and ornaments are left out.

music21 reads ABC too, but at a twentieth of the speed, and it misses inline fields, rests of several bars and
broken rhythm beside a staccato dot; where a file names no version, its accidentals end with their note.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from domains.music import repeats as signs
from domains.music.alphabet import PITCHES
from domains.music.piece import Draft, DraftBar, bar_quarters, metered
from domains.music.repeats import Incoherent, Mark

LONGEST_TUNE = 2**20
"""In characters: the longest tune books have tunes of a few thousand."""

_FIELD = re.compile(r"([A-Zmrsw+]):(?![|:])(.*)")
_TOKEN = re.compile(
    r"""
      "[^"]*"? | \+[a-z.<>()]+\+ | y\d*  # annotations, old decorations, spacers: no notes
    | !(?P<decoration>[^!|\n]*)! | (?P<sign>[SO])
    | \[(?P<field>[A-Za-z]):(?P<value>[^\]]*)\]
    | (?P<bar>(?: \[\| | [:|]*\|[|\]:]* | :: ) (?:\[?\d[\d,.-]*)? | \[\d[\d,.-]*)
    | \((?P<p>\d)(?::(?P<q>\d*))?(?::(?P<r>\d*))?
    | (?P<grace>\{/?) | (?P<grace_end>\})
    | (?P<chord>\[) | (?P<chord_end>\])(?P<chord_length>\d*/*\d*)
    | (?P<accidental>\^\^?|__?|=)?(?P<letter>[A-Ga-g])(?P<octave>[,']*)(?P<length>\d*/*\d*)
    | [zx](?P<rest>\d*/*\d*) | [ZX](?P<bars>\d*)
    | (?P<broken>>+|<+) | (?P<tie>-) | (?P<overlay>&)
    | .
    """,
    re.VERBOSE,
)
_LETTERS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_FIFTHS = {"F": -1, "C": 0, "G": 1, "D": 2, "A": 3, "E": 4, "B": 5}
_MODES = {
    "": 0,
    "maj": 0,
    "ion": 0,
    "lyd": 1,
    "mix": -1,
    "dor": -2,
    "m": -3,
    "min": -3,
    "aeo": -3,
    "phr": -4,
    "loc": -5,
}
_ACCIDENTALS = {"^": 1, "^^": 2, "_": -1, "__": -2, "=": 0}
_KEY = re.compile(r"\s*([A-G])([#b]?)\s*(maj|ion|lyd|mix|dor|min|aeo|phr|loc|m(?![a-z]))?", re.IGNORECASE)
_METADATA = {"T": "title", "C": "composer", "R": "rhythm", "O": "origin", "K": "key", "M": "meter"}
_CLEF = re.compile(r"clef|treble|bass|alto|tenor|perc|octave|transpose|exp")
_SIGNS = {
    "segno": signs.SEGNO,
    "s": signs.SEGNO,
    "coda": signs.CODA,
    "o": signs.CODA,
    "dacoda": signs.CODA,
    "fine": signs.FINE,
    **dict.fromkeys(("dc", "dacapo", "dcalfine", "dcalcoda"), signs.DA_CAPO),
    **dict.fromkeys(("ds", "dalsegno", "dsalfine", "dsalcoda"), signs.DAL_SEGNO),
}
"""Decorations, without their dots and spaces, and the letters for them, that tell a player where to go on."""
_TUPLET_TIMES = {2: 3, 3: 2, 4: 3, 6: 2, 8: 3}


class Tune(NamedTuple):
    """One tune of a book: its number (the X: field), the line of the book that it begins on, and its text."""

    number: str
    line: int
    text: str


def tunes(book: str) -> Iterator[Tune]:
    """Cuts a book into tunes, from one X: field to the next, each with the fields of the book's header.

    A text without any X: field is one tune without a number; a text without a K: field is none.
    """
    book = book.replace("\r\n", "\n").replace("\r", "\n")
    header, *stretches = re.split(r"^(?=X:)", book, flags=re.MULTILINE)
    if not stretches:
        if re.search(r"^K:", header, re.MULTILINE):
            yield Tune("", 1, header)
        return
    fields = "".join(f"{line}\n" for line in header.split("\n") if _FIELD.match(line))
    line = header.count("\n") + 1
    for stretch in stretches:
        number = stretch[2:].partition("\n")[0].partition("%")[0].strip()
        yield Tune(number, line, fields + stretch)
        line += stretch.count("\n")


def read_tune(text: str, repeats: str = "written") -> tuple[Draft, dict[str, str], list[str]]:
    """The notes of one tune, its metadata, and what had to be repaired.

    Args:
        text: The tune.
        repeats: "written" takes each bar once; "unfold" plays repeats, endings, D.C., D.S. and the order of the
            parts (a ``P:`` field in the header) out.

    Raises:
        ValueError: The text is longer than :data:`LONGEST_TUNE`, has no K: field, which ends the header of
            every tune, or says something absurd.
    """
    if len(text) > LONGEST_TUNE:
        raise ValueError(f"longer than {LONGEST_TUNE:,} characters")
    return _Reader(repeats == "unfold").read(text)


@dataclasses.dataclass(slots=True)
class _Sounded:
    """A note that lasts until ``end``; ``key`` is the letter and octave as written, by which ties find it."""

    onset: Fraction
    end: Fraction
    pitch: int
    key: tuple[str, int]


class _Written(NamedTuple):
    """A note of a chord as it stands in the text; a note by itself is a chord of one."""

    key: tuple[str, int]
    pitch: int
    length: Fraction
    tied: bool = False


@dataclasses.dataclass(slots=True)
class _Voice:
    """Where a voice stands, and what it has played."""

    meter: tuple[int, int] | None = None
    unit: Fraction | None = None
    sharps: int | None = None
    key: dict[str, int] = dataclasses.field(default_factory=dict)
    key_shift: int = 0
    voice_shift: int = 0
    time: Fraction = Fraction(0)
    bar_start: Fraction = Fraction(0)
    bar_reach: Fraction = Fraction(0)
    bar_meter: tuple[int, int] | None = None
    bar_sharps: int | None = None
    changes: list[DraftBar] = dataclasses.field(default_factory=list)
    bars: list[DraftBar] = dataclasses.field(default_factory=list)
    notes: list[_Sounded] = dataclasses.field(default_factory=list)
    accidentals: dict[str, int] = dataclasses.field(default_factory=dict)
    last: list[_Sounded] = dataclasses.field(default_factory=list)
    last_onset: Fraction | None = None
    ties: list[_Sounded] = dataclasses.field(default_factory=list)
    broken: Fraction = Fraction(1)
    tuplet: Fraction = Fraction(1)
    tuplet_left: int = 0
    marks: list[Mark] = dataclasses.field(default_factory=list)
    waiting: list[str] = dataclasses.field(default_factory=list)  # marks that stand at the end of this bar
    sections: list[tuple[str, Fraction]] = dataclasses.field(default_factory=list)  # P: fields

    @property
    def unit_quarters(self) -> Fraction:
        """The unit note length; without an L: field a sixteenth in meters below 3/4, else an eighth."""
        if self.unit is not None:
            return self.unit
        short = self.meter is not None and Fraction(*self.meter) < Fraction(3, 4)
        return Fraction(1, 4) if short else Fraction(1, 2)


class _Reader:
    def __init__(self, unfold: bool) -> None:
        self.unfold = unfold
        self.order = ""
        self.defaults = _Voice()
        self.shifts: dict[str, int] = {}
        self.voices: dict[str, _Voice] = {}
        self.voice = self.defaults
        self.tempos: list[tuple[Fraction, float]] = []
        self.repairs: list[str] = []

    def read(self, text: str) -> tuple[Draft, dict[str, str], list[str]]:
        metadata: dict[str, str] = {}
        in_header = True
        lines = iter(text.splitlines())
        for line in lines:
            if not line.strip() and any(voice.time for voice in self.voices.values()):
                break
            line = re.sub(r"(?<!\\)%.*", "", line)
            field = _FIELD.match(line)
            if field is None:
                if not in_header:
                    self._music(line)
                continue
            name, value = field[1], field[2].strip()
            if in_header and value and name in _METADATA:
                metadata.setdefault(_METADATA[name], value)
            self._field(name, value, in_header)
            if in_header and name == "K":
                in_header = False
                self._select(next(iter(self.shifts), ""))
        if any(re.match(r"\s*[^%\s]", line) and not _FIELD.match(line) for line in lines):
            self.repairs.append("text after the empty line that ends a tune left out")
        if in_header:
            raise ValueError("no K: field")
        return self._draft(), metadata, self.repairs

    def _draft(self) -> Draft:
        voices = [voice for voice in self.voices.values() if voice.notes]
        draft = Draft(tempos=self.tempos)
        for voice in voices:
            self._close_bar(voice)
            voice.marks += [Mark(voice.bar_start, kind) for kind in voice.waiting]
            draft.parts.append([(note.onset, note.end, note.pitch) for note in voice.notes])
        if voices:
            first = voices[0]
            draft.end = first.bar_start
            draft.bars = first.bars if len(first.bars) > 1 else metered(first.changes, draft.end)
            if self.unfold and (first.marks or self.order):
                try:
                    return signs.unfold(draft, self._spans(first, draft.end))
                except Incoherent:
                    self.repairs.append(signs.REPEATS_KEPT)
        return draft

    def _spans(self, voice: _Voice, end: Fraction) -> list[signs.Span]:
        """What is played of a voice, in its order."""
        if not self.order or not voice.sections:
            return signs.play_order(voice.marks, Fraction(0), end)
        ends = [*(start for _, start in voice.sections[1:]), end]
        stretches = {name: (start, stop) for (name, start), stop in reversed([*zip(voice.sections, ends, strict=True)])}
        spans = []
        for name in signs.part_order(self.order):
            if name not in stretches:
                raise Incoherent(f"there is no part {name}")
            spans += signs.play_order(voice.marks, *stretches[name])
        return spans

    # Fields

    def _field(self, name: str, value: str, in_header: bool) -> None:
        voice = self.voice
        if name == "V":
            identifier, _, properties = value.partition(" ")
            if properties or identifier not in self.shifts:
                self.shifts[identifier] = _shift(properties)
            if not in_header:
                self._select(identifier)
            return
        if name == "P":
            if in_header:
                self.order = value
            else:
                voice.sections.append((value[:1], voice.bar_reach))
            return
        if name == "M":
            voice.meter = self._meter(value)
        elif name == "L":
            length = re.match(r"\s*(\d+)\s*(?:/\s*(\d+))?", value)
            if length and int(length[1]) and int(length[2] or 1):
                voice.unit = Fraction(4 * int(length[1]), int(length[2] or 1))
        elif name == "K":
            self._key(voice, value)
        elif name == "Q":
            tempo = _tempo(value)
            if tempo is not None:
                self.tempos.append((voice.time, tempo))
        else:
            return
        if not in_header:
            voice.changes.append(DraftBar(voice.time, voice.meter, voice.sharps))
            if voice.bar_reach == voice.bar_start:  # a field inside a bar rules the next one
                voice.bar_meter, voice.bar_sharps = voice.meter, voice.sharps

    def _select(self, identifier: str) -> None:
        voice = self.voices.get(identifier)
        if voice is None:
            voice = dataclasses.replace(
                self.defaults,
                key=dict(self.defaults.key),
                bar_meter=self.defaults.meter,
                bar_sharps=self.defaults.sharps,
                changes=[DraftBar(Fraction(0), self.defaults.meter, self.defaults.sharps)],
                bars=[],
                notes=[],
                accidentals={},
                last=[],
                ties=[],
                marks=[],
                waiting=[],
                sections=[],
            )
            self.voices[identifier] = voice
        voice.voice_shift = self.shifts.get(identifier, 0)
        self.voice = voice

    def _meter(self, value: str) -> tuple[int, int] | None:
        value = value.strip()
        if value in ("C", "C|"):
            return (4, 4) if value == "C" else (2, 2)
        match = re.match(r"\(?\s*(\d+(?:\s*\+\s*\d+)*)\s*\)?\s*/\s*(\d+)", value)
        if match and int(match[2]):
            beats = sum(int(number) for number in match[1].split("+"))
            if beats:
                return beats, int(match[2])
        if value and value.lower() != "none":
            self.repairs.append("a meter that is not ABC read as none")
        return None

    def _key(self, voice: _Voice, value: str) -> None:
        if _CLEF.search(value):
            voice.key_shift = _shift(value)
        tonic = _KEY.match(value) if value[:1].isupper() else None
        if value[:2] in ("HP", "Hp"):
            sharps = 2 if value[1] == "p" else 0
        elif tonic is not None:
            sharps = _FIFTHS[tonic[1].upper()] + {"": 0, "#": 7, "b": -7}[tonic[2]]
            sharps += _MODES[(tonic[3] or "").lower()]
        elif not value or value.lower().startswith("none"):
            sharps = 0
        elif _CLEF.search(value):
            sharps = voice.sharps or 0
        else:
            self.repairs.append("a key that is not ABC read as none")
            sharps = 0
        voice.key = {letter: (sharps - index + 6) // 7 for index, letter in enumerate("FCGDAEB")}
        for sign, letter in re.findall(r"(\^\^?|__?|=)([A-Ga-g])", value):
            voice.key[letter.upper()] = _ACCIDENTALS[sign]
        voice.sharps = sharps if abs(sharps) <= 7 else (sharps + 5) % 12 - 5

    # Music

    def _music(self, line: str) -> None:
        grace = False
        chord: list[_Written] | None = None
        for token in _TOKEN.finditer(line):
            voice = self.voice
            if token["letter"]:
                pitch, key = self._pitch(voice, token["accidental"], token["letter"], token["octave"])
                note = _Written(key, pitch, _length(token["length"]))
                if chord is not None:
                    chord.append(note)
                elif grace:
                    voice.notes.append(_Sounded(voice.time, voice.time, pitch, key))
                else:
                    self._play(voice, [note], Fraction(1))
            elif token["chord"]:
                chord = []
            elif token["chord_end"]:
                if chord and grace:
                    voice.notes += [_Sounded(voice.time, voice.time, n.pitch, n.key) for n in chord]
                elif chord:
                    self._play(voice, chord, _length(token["chord_length"]))
                chord = None
            elif token["tie"]:
                if chord:
                    chord[-1] = chord[-1]._replace(tied=True)
                else:
                    voice.ties = list(voice.last)
            elif token["rest"] is not None:
                if chord is None and not grace:
                    self._play(voice, [], _length(token["rest"]))
            elif token["bars"] is not None:
                if int(token["bars"] or 1) > 1000:
                    raise ValueError(f"a rest of {token['bars']} bars")
                for _ in range(int(token["bars"] or 1)):
                    self._close_bar(voice)
                    self._go_on(voice, bar_quarters(voice.meter))
                self._close_bar(voice)
            elif token["bar"]:
                self._close_bar(voice)
                voice.marks += _repeat_marks(token["bar"], voice.bar_start)
                chord = None
            elif token["decoration"] or token["sign"]:
                self._sign(voice, token["decoration"] or token["sign"])
            elif token["p"]:
                self._tuplet(voice, int(token["p"]), token["q"], token["r"])
            elif token["grace"]:
                grace = True
            elif token["grace_end"]:
                grace = False
            elif token["broken"]:
                self._broken(voice, token["broken"])
            elif token["overlay"]:
                voice.time = voice.bar_start
                voice.last, voice.ties, voice.last_onset = [], [], None
            elif token["field"]:
                self._field(token["field"], token["value"].strip(), False)

    def _pitch(self, voice: _Voice, sign: str | None, letter: str, marks: str) -> tuple[int, tuple[str, int]]:
        """MIDI number of a note; an accidental holds for its letter, in all octaves, to the bar's end."""
        name = letter.upper()
        octave = (5 if letter.islower() else 4) + marks.count("'") - marks.count(",")
        key = name, octave
        tied = next((note for note in voice.ties if note.key == key), None)
        if sign:
            voice.accidentals[name] = _ACCIDENTALS[sign]
        elif tied is not None:
            return tied.pitch, key
        alteration = voice.accidentals.get(name, voice.key.get(name, 0))
        pitch = 12 * (octave + 1) + _LETTERS[name] + alteration + voice.key_shift + voice.voice_shift
        if pitch not in PITCHES:
            raise ValueError(f"the note {(sign or '') + letter + marks} is beyond the range of MIDI")
        return pitch, key

    def _play(self, voice: _Voice, notes: list[_Written], factor: Fraction) -> None:
        """A note, a chord (the time goes on by its first note) or, without notes, a rest."""
        scale = voice.unit_quarters * voice.broken * factor
        voice.broken = Fraction(1)
        if voice.tuplet_left:
            scale *= voice.tuplet
            voice.tuplet_left -= 1
        played = []
        ties = []
        for key, pitch, length, tied in notes:
            end = voice.time + length * scale
            held = next((tie for tie in voice.ties if tie.key == key and tie.pitch == pitch), None)
            if held is not None:
                held.end = end
                note = held
            else:
                note = _Sounded(voice.time, end, pitch, key)
                if end > voice.time:
                    voice.notes.append(note)
            played.append(note)
            if tied:
                ties.append(note)
        voice.last, voice.ties, voice.last_onset = played, ties, voice.time
        self._go_on(voice, (notes[0].length if notes else Fraction(1)) * scale)

    def _go_on(self, voice: _Voice, quarters: Fraction) -> None:
        voice.time += quarters
        voice.bar_reach = max(voice.bar_reach, voice.time)

    def _broken(self, voice: _Voice, mark: str) -> None:
        """``a>b``: the first note is half longer, the second half shorter; each further mark halves again."""
        if voice.last_onset is None:
            return
        short = Fraction(1, 2 ** min(len(mark), 8))
        first, voice.broken = (2 - short, short) if mark[0] == ">" else (short, 2 - short)
        longer = (voice.time - voice.last_onset) * (first - 1)
        for note in voice.last:
            note.end += longer
        voice.bar_reach += longer
        voice.time += longer

    def _tuplet(self, voice: _Voice, p: int, q: str | None, r: str | None) -> None:
        """``(p:q:r``: p notes in the time of q, for the next r notes."""
        if p == 0:
            return
        compound = voice.meter is not None and voice.meter[0] % 3 == 0 and voice.meter[0] > 3
        times = int(q) if q and int(q) else _TUPLET_TIMES.get(p, 3 if compound else 2)
        voice.tuplet = Fraction(times, p)
        voice.tuplet_left = int(r) if r and int(r) else p

    def _sign(self, voice: _Voice, decoration: str) -> None:
        """Notes where a player is told to jump, and to where: a segno rules from its bar, the others after theirs."""
        kind = _SIGNS.get(re.sub(r"[.\s]", "", decoration).lower())
        begins = voice.bar_reach == voice.bar_start
        if kind == signs.SEGNO or (kind == signs.CODA and begins):
            voice.marks.append(Mark(voice.bar_start, kind))
        elif kind is not None:
            voice.waiting.append(kind)

    def _close_bar(self, voice: _Voice) -> None:
        if voice.bar_reach > voice.bar_start:
            voice.bars.append(DraftBar(voice.bar_start, voice.bar_meter, voice.bar_sharps))
            voice.bar_start = voice.bar_reach
            voice.marks += [Mark(voice.bar_start, kind) for kind in voice.waiting]
            voice.waiting = []
        voice.time = voice.bar_start
        voice.bar_meter, voice.bar_sharps = voice.meter, voice.sharps
        voice.accidentals = {}


def _repeat_marks(bar: str, time: Fraction) -> list[Mark]:
    """What a bar line says of repeats; ``|::`` begins what sounds three times, and so on.

    >>> [(mark.kind, mark.times, sorted(mark.numbers)) for mark in _repeat_marks(":|1,3", Fraction(0))]
    [('end', 2, []), ('ending', 2, [1, 3])]
    """
    found = re.fullmatch(r"([|:\[\]]*?)\[?(\d.*)?", bar)
    line, numbers = (found[1], found[2] or "") if found is not None else (bar, "")
    marks = []
    before, after = (1, 1) if line == "::" else (len(line) - len(line.lstrip(":")), len(line) - len(line.rstrip(":")))
    if before:
        marks.append(Mark(time, signs.END, before + 1))
    if after:
        marks.append(Mark(time, signs.START, after + 1))
    if not marks and ("||" in line or "|]" in line or "[|" in line):
        marks.append(Mark(time, signs.DOUBLE))
    played: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", numbers):
        played.update(range(int(first), min(int(last or first), int(first) + 99) + 1))
    if played:
        marks.append(Mark(time, signs.ENDING, numbers=frozenset(played)))
    return marks


def _length(written: str) -> Fraction:
    """``3``, ``/``, ``//``, ``3/2`` as a multiple of the unit note length.

    >>> [str(_length(written)) for written in ("", "3", "/", "//", "3/2", "/4")]
    ['1', '3', '1/2', '1/4', '3/2', '1/4']
    """
    upper, slashes, lower = written.partition("/")
    numerator = int(upper or 1)
    if not slashes:
        return Fraction(numerator)
    digits = lower.lstrip("/")
    denominator = int(digits) if digits else 2 ** min(1 + len(lower), 16)
    return Fraction(numerator, denominator or 1)


def _tempo(value: str) -> float | None:
    """Quarters a minute of ``1/4=90``, ``"Allegro" 3/8=60`` or a bare number; None where there is none."""
    value = re.sub(r'"[^"]*"', "", value).strip()
    match = re.match(r"((?:\d+/\d+\s*)+)=\s*(\d+(?:\.\d+)?)", value)
    if match:
        beats = [fraction.split("/") for fraction in match[1].split()]
        if all(int(lower) for _, lower in beats):
            beat = sum((Fraction(int(upper), int(lower)) for upper, lower in beats), Fraction(0))
            return float(4 * beat) * float(match[2])
        return None
    return float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else None


def _shift(value: str) -> int:
    """Semitones that the clef and the properties of a K: or V: field move what is written."""
    shift = 0
    octave_clef = re.search(r"(?:treble|alto|tenor|bass|perc|clef=\S+?)\d?([+-])8", value)
    if octave_clef:
        shift += 12 if octave_clef[1] == "+" else -12
    for name, semitones in (("octave", 12), ("transpose", 1)):
        match = re.search(rf"{name}\s*=\s*([+-]?\d)", value)
        if match:
            shift += semitones * int(match[1])
    return shift
