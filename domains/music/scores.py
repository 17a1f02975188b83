"""Pieces as music21 streams, both ways, and the files that music21 reads and writes for us."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from domains.music import cache, containers
from domains.music.alphabet import DRUMS, PITCHES, TICKS_PER_QUARTER, bar_ticks
from domains.music.piece import (
    COMMON_TIME,
    Bar,
    Draft,
    DraftBar,
    DraftNote,
    Instrument,
    Note,
    Piece,
    bar_quarters,
    parse,
)
from domains.music.repeats import REPEATS_KEPT
from seqbert.domain import Report

if TYPE_CHECKING:
    from music21.stream import Score, Stream

_DRUM_OCTAVES = 100
"""A pitch that is so much higher is a drum: no score has such pitches."""

_DRUM_NOTE = "drum-"

MOST_TIMES = 100
"""A score that has a stretch repeated more often is not music."""


def score(text: str) -> Score:
    """Canonical text as a music21 score, to be shown, analysed or written in any format that music21 writes.

    Raises:
        DataError: The text holds no bar.
    """
    return build(parse(text))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps music21's remarks on odd scores off the user's terminal; it writes them to standard error."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def drafts(path: Path, kind: str, report: Report, repeats: str = "written", encoding: str = "") -> cache.Drafts:
    """The pieces of a file that music21 reads, each with its metadata and what had to be repaired.

    A file is parsed once on a machine (:mod:`domains.music.cache`).

    Args:
        path: The file.
        kind: "musicxml", "mxl", "humdrum" or "mei", as :func:`domains.music.containers.score_format` tells.
        report: Told what is left out, rounded and repaired.
        repeats: "written" takes each bar once; "unfold" plays repeats, endings, D.C. and D.S. out.
        encoding: Of Humdrum texts; XML says its own.

    Raises:
        DataError: The file is damaged, is no such score, or is refused.
        Exception: music21 fails on it in one of its many ways.
    """
    data = containers.read_bytes(path, containers.LARGEST_SCORE)
    inner = str(path)
    if kind == "mxl":
        data, inner = containers.score_in_archive(data, path)
    elif kind == "humdrum":
        data = containers.as_text(data, path, report, encoding).encode()

    def parse(recorder: Report) -> cache.Drafts:
        with quiet():
            return list(_drafts(data, kind, repeats, inner, str(path), recorder))

    return cache.parsed(data, (kind, repeats), parse, str(path), report)


def _drafts(
    data: bytes, kind: str, repeats: str, inner: str, source: str, report: Report
) -> Iterator[tuple[Draft, dict[str, str], list[str]]]:
    repairs: list[str] = []
    if kind == "humdrum":
        found = read_humdrum(data.decode())
    elif kind == "mei":
        found = read_mei(containers.parsed_xml(data, inner))
    else:
        root = containers.score_in_xml(data, inner)
        if _list_parts(root):
            repairs.append("parts that the part list lacks read all the same")
        _pitch_drums(root)
        found = read_musicxml(root)
    for number, score in enumerate(found, start=1):
        piece = f"{source}:{number}" if len(found) > 1 else source
        told = list(repairs)
        if repeats == "unfold" and has_repeats(score):
            unfolded = _unfolded(score)
            if unfolded is None:
                told.append(REPEATS_KEPT)
            else:
                score = unfolded
        yield draft_of(score, report, piece), metadata(score), told


def read_musicxml(root: ElementTree.Element) -> list[Stream[Any]]:
    """The score of a parsed ``score-partwise`` document."""
    importer = _music21("musicxml.xmlToM21").MusicXMLImporter()
    importer.xmlRootToScore(root, importer.stream)  # parts of several staves are put there, not into what it returns
    return [importer.stream]


def _list_parts(root: ElementTree.Element) -> bool:
    """Adds what a MusicXML part list lacks of the parts, which music21 would pass over; tells whether it lacked any."""
    listing = root.find("part-list")
    if listing is None:
        listing = ElementTree.Element("part-list")
        root.insert(0, listing)
    listed = {entry.get("id") for entry in listing.iter("score-part")}
    unlisted = [part for part in root.findall("part") if part.get("id") not in listed]
    for number, part in enumerate(unlisted, start=1):
        part.set("id", part.get("id") or f"unnamed part {number}")
        ElementTree.SubElement(ElementTree.SubElement(listing, "score-part", part.attrib), "part-name")
    return bool(unlisted)


def _pitch_drums(root: ElementTree.Element) -> None:
    """Makes unpitched notes whose drum the score names pitched ones, far above what is heard.

    music21 reads the first instrument of a part only, and of an unpitched note not which one it is. What a drum is
    in General MIDI stands in the part list (MusicXML 4.0, "midi-unpitched", which counts from 1).
    """
    listed = {entry.get("id"): _drums_of(entry) for entry in root.iterfind("part-list/score-part")}
    for part in root.iterfind("part"):
        drums = listed.get(part.get("id"), {})
        for note in part.iter("note") if drums else ():
            unpitched, named = note.find("unpitched"), note.find("instrument")
            only = next(iter(drums)) if len(drums) == 1 else ""
            drum = drums.get(only if named is None else named.get("id", ""))
            if unpitched is None or drum is None:
                continue
            unpitched.clear()
            unpitched.tag = "pitch"
            ElementTree.SubElement(unpitched, "step").text = "CCDDEFFGGAAB"[drum % 12]
            ElementTree.SubElement(unpitched, "alter").text = "010100101010"[drum % 12]
            ElementTree.SubElement(unpitched, "octave").text = str(drum // 12 - 1 + _DRUM_OCTAVES)


def _drums_of(entry: ElementTree.Element) -> dict[str, int]:
    """The drums of a part, by the instrument that plays each."""
    found = {}
    for instrument in entry.iterfind("midi-instrument"):
        number = instrument.findtext("midi-unpitched", "").strip()
        if number.isdecimal() and int(number) - 1 in PITCHES:
            found[instrument.get("id", "")] = int(number) - 1
    return found


def read_mei(root: ElementTree.Element) -> list[Stream[Any]]:
    """The score of a parsed MEI document."""
    converter = _music21("mei.base").MeiToM21Converter()
    converter.documentRoot = root
    return [converter.run()]


def read_humdrum(text: str) -> list[Stream[Any]]:
    """The scores of a ``**kern`` text: one, or several where the text holds several pieces."""
    collection = _music21("humdrum.spineParser").HumdrumDataCollection(text)
    collection.parse()
    parsed = collection.stream
    return list(parsed.scores) if isinstance(parsed, _music21("stream").Opus) else [parsed]


def _staves(score: Stream[Any]) -> list[Any]:
    """The parts of a score, or a stream that has none as its only part."""
    return list(score.parts) if isinstance(score, _music21("stream").Score) and score.parts else [score]


def has_repeats(score: Stream[Any]) -> bool:
    """Whether the score has repeat signs or says D.C. or D.S. anywhere."""
    expander = _music21("repeat").Expander
    return any(part.hasMeasures() and expander(part).isExpandable() is not None for part in _staves(score))


def _unfolded(score: Stream[Any]) -> Stream[Any] | None:
    """The score with its repeats played out; None where they are incoherent, or the parts disagree on them."""
    expander = _music21("repeat").Expander
    try:
        for part in _staves(score):
            if part.hasMeasures() and not (_bounded(part) and expander(part).isExpandable()):
                return None
        unfolded: Stream[Any] = score.expandRepeats()
    except _music21("exceptions21").Music21Exception:
        return None
    lengths, written = ({part.highestTime for part in _staves(stream)} for stream in (unfolded, score))
    return unfolded if len(lengths) <= len(written) else None


def _bounded(part: Stream[Any]) -> bool:
    """Whether no repeat is within another, and none sounds more than :data:`MOST_TIMES`: else music21 never ends."""
    repeat = _music21("bar").Repeat
    inside = False
    for measure in part.getElementsByClass(_music21("stream").Measure):
        for line in (measure.leftBarline, measure.rightBarline):
            if isinstance(line, repeat):
                starts = line.direction == "start"
                if (starts and inside) or (line.times or 2) > MOST_TIMES:
                    return False
                inside = starts
    return True


def metadata(score: Stream[Any]) -> dict[str, str]:
    """Title and composer, where the score names them."""
    found = {}
    if score.metadata is not None:
        for key, value in (("title", score.metadata.bestTitle), ("composer", score.metadata.composer)):
            if value and str(value).strip():
                found[key] = " ".join(str(value).split())
    return found


def draft_of(score: Stream[Any], report: Report, source: str = "") -> Draft:
    """What a music21 stream sounds, bar by bar; tied notes are one note.

    The bars are those of the first part that has any. Transposing instruments are taken at sounding pitch. Unpitched
    percussion is a part of drums of its own as far as the score says which drums of General MIDI they are. Left out
    are chord symbols and other unpitched notes.
    """
    draft = Draft()
    parts = _staves(score)
    if parts != [score]:
        draft.tempos += _tempos(score)
    for part in parts:
        if any(found.transposition is not None for found in part[_music21("instrument").Instrument]):
            part = part.toSoundingPitch()
        if not draft.bars:
            _take_bars(part, draft, report, source)
        flat = part.flatten()
        who = _instrument(part)
        notes, drums = _sounding(flat, report, source)
        if notes or not drums:
            draft.parts.append(notes)
            draft.instruments.append(who)
        if drums:
            draft.parts.append(drums)
            draft.instruments.append(who._replace(program=None, drums=True))
        draft.tempos += _tempos(flat)
    return draft


def _tempos(stream: Stream[Any]) -> Iterator[tuple[Fraction, float]]:
    """Written tempos; music21's own reading of words such as "Allegro" is not taken."""
    for mark in stream.getElementsByClass(_music21("tempo").MetronomeMark):
        quarters = mark.getQuarterBPM()
        if quarters and not mark.numberImplicit:
            yield Fraction(mark.offset), float(quarters)


def _take_bars(part: Stream[Any], draft: Draft, report: Report, source: str) -> None:
    signature: tuple[int, int] | None = None
    sharps: int | None = None
    for measure in part.getElementsByClass(_music21("stream").Measure):
        if measure.timeSignature is not None:
            signature = measure.timeSignature.numerator, measure.timeSignature.denominator
        if measure.keySignature is not None:
            if measure.keySignature.sharps is None or abs(measure.keySignature.sharps) > 7:
                report.tally("key signatures outside the circle of fifths left out", source=source)
            else:
                sharps = measure.keySignature.sharps
        start = Fraction(measure.offset)
        draft.bars.append(DraftBar(start, signature, sharps))
        draft.end = start + (Fraction(measure.highestTime) or bar_quarters(signature))


def _instrument(part: Stream[Any]) -> Instrument:
    """Who plays a part: the MIDI program that the file says, or that music21 knows of such an instrument."""
    found = next(iter(part[_music21("instrument").Instrument]), None)
    if found is None:
        return Instrument()
    name = found.partName or found.instrumentName or ""
    return Instrument(found.midiProgram, " ".join(name.split()))


def _sounding(flat: Stream[Any], report: Report, source: str) -> tuple[list[DraftNote], list[DraftNote]]:
    """The notes of a part, tied notes joined, and its drums, whose pitch says which; velocity 0: none is written."""
    harmony = _music21("harmony").Harmony
    notes: list[DraftNote] = []
    drums: list[DraftNote] = []
    tied: dict[tuple[int, Fraction, bool], int] = {}
    for element in flat.notes:
        if isinstance(element, harmony):
            report.tally("chord symbols left out", source=source)
            continue
        onset = Fraction(element.offset)
        end = onset if element.duration.isGrace else onset + Fraction(element.quarterLength)
        for note in getattr(element, "notes", (element,)):
            if not hasattr(note, "pitch"):
                report.tally("unpitched notes left out, because the score does not say which drum", source=source)
                continue
            is_drum = note.pitch.ps >= 12 * _DRUM_OCTAVES
            if note.pitch.ps != int(note.pitch.ps):
                report.tally("microtones rounded to a semitone", source=source)
            pitch = int(note.pitch.ps) - 12 * _DRUM_OCTAVES if is_drum else note.pitch.midi
            found = drums if is_drum else notes
            kind = None if note.tie is None or end == onset else note.tie.type
            held = tied.pop((pitch, onset, is_drum), None) if kind in ("stop", "continue") else None
            if held is None:
                held = len(found)
                found.append(DraftNote(onset, end, pitch, _velocity(note)))
            else:
                found[held] = found[held]._replace(end=end)
            if kind in ("start", "continue"):
                tied[pitch, end, is_drum] = held
    return notes, drums


def _velocity(note: Any) -> int:
    """What the score says of a note's velocity, from 1; 0 where it says nothing."""
    said = note.volume.velocity if note.hasVolumeInformation() else None
    return min(max(said, 1), 127) if said else 0


def build(piece: Piece) -> Score:
    """A music21 score with parts, measures, voices where notes overlap, and ties over bar lines."""
    stream, key, meter, tempo = (_music21(name) for name in ("stream", "key", "meter", "tempo"))
    built: Score = stream.Score()
    for number, notes in enumerate(piece.parts or [[]]):
        part = stream.Part(id=f"Part {number}")
        program = piece.program(number)
        if program is not None and program != DRUMS:
            who = _music21("instrument").instrumentFromMidiProgram(program)
            who.transposition = None  # the notes are at sounding pitch
            part.insert(0, who)
        by_bar = _by_bar(notes, piece.bars)
        signature = sharps = None
        for index, bar in enumerate(piece.bars):
            measure = stream.Measure(number=index + 1)
            if bar.signature is not None and bar.signature != signature:
                measure.timeSignature = meter.TimeSignature("{}/{}".format(*bar.signature))
            if bar.sharps is not None and bar.sharps != sharps:
                measure.keySignature = key.KeySignature(bar.sharps)
            signature, sharps = bar.signature, bar.sharps
            missing = (bar_ticks(signature) if signature else COMMON_TIME) - bar.length
            if missing > 0:  # else the MusicXML writer fills the bar up with rests
                measure.paddingLeft, measure.paddingRight = (
                    (_quarters(missing), 0.0) if index == 0 else (0.0, _quarters(missing))
                )
            if number == 0:
                for tick, value in piece.tempos:
                    if bar.start <= tick < bar.start + bar.length:
                        measure.insert(_quarters(tick - bar.start), tempo.MetronomeMark(number=value))
            if program == DRUMS and index == 0:
                measure.insert(0, _music21("clef").PercussionClef())
            _fill_measure(measure, by_bar[index], bar, program == DRUMS)
            part.coreInsert(_quarters(bar.start), measure)
        part.coreElementsChanged()
        built.insert(0, part)
    return built


def to_musicxml(score: Score) -> bytes:
    """The score as a MusicXML document; each drum of :func:`build` is an instrument of its part."""
    data = bytes(_music21("musicxml.m21ToXml").GeneralObjectExporter(score).parse())
    if f'id="{_DRUM_NOTE}'.encode() not in data:
        return data
    start = data.index(b"<score-partwise")
    root = ElementTree.fromstring(data[start:])
    for part in root.iterfind("part"):
        numbers = {_name_drum(note) for note in part.iter("note") if note.get("id", "").startswith(_DRUM_NOTE)}
        entry = next(entry for entry in root.iterfind("part-list/score-part") if entry.get("id") == part.get("id"))
        for number in sorted(numbers):
            instrument = ElementTree.SubElement(entry, "score-instrument", id=f"I{number}")
            ElementTree.SubElement(instrument, "instrument-name").text = f"Drum {number}"
        for number in sorted(numbers):
            instrument = ElementTree.SubElement(entry, "midi-instrument", id=f"I{number}")
            ElementTree.SubElement(instrument, "midi-channel").text = "10"
            ElementTree.SubElement(instrument, "midi-unpitched").text = str(number + 1)
    return data[:start] + ElementTree.tostring(root)


def _name_drum(note: ElementTree.Element) -> int:
    """Has a note name its drum as its instrument, which stands behind its duration and ties (MusicXML 4.0, "note")."""
    number = int(note.attrib.pop("id").removeprefix(_DRUM_NOTE))
    before = ("grace", "chord", "unpitched", "duration", "tie")
    place = max(index for index, child in enumerate(note) if child.tag in before) + 1
    note.insert(place, ElementTree.Element("instrument", id=f"I{number}"))
    return number


def _by_bar(notes: list[Note], bars: list[Bar]) -> list[list[tuple[Note, str | None]]]:
    """The notes of each bar, cut at bar lines; with each its type of tie, if any."""
    starts = [bar.start for bar in bars]
    contents: list[list[tuple[Note, str | None]]] = [[] for _ in bars]
    for note in notes:
        index = bisect_right(starts, note.onset) - 1
        onset = note.onset
        while index + 1 < len(bars) and note.end > starts[index + 1]:
            tie = "start" if onset == note.onset else "continue"
            contents[index].append((note._replace(onset=onset, duration=starts[index + 1] - onset), tie))
            index += 1
            onset = starts[index]
        rest = note._replace(onset=onset, duration=note.end - onset)
        contents[index].append((rest, None if onset == note.onset else "stop"))
    return contents


def _fill_measure(measure: Any, contents: list[tuple[Note, str | None]], bar: Bar, drums: bool) -> None:
    stream, note, tie_types = (_music21(name) for name in ("stream", "note", "tie"))
    chord_of = _music21("percussion").PercussionChord if drums else _music21("chord").Chord
    voices: list[list[tuple[int, int, Any]]] = []
    reach: list[int] = []
    graces = []
    chords: dict[tuple[int, int, int], list[Any]] = {}
    for played, tie in contents:
        sounding = note.Unpitched() if drums else note.Note(spelling(played.pitch, bar.sharps or 0))
        if drums:
            sounding.id = f"{_DRUM_NOTE}{played.pitch}"  # to_musicxml makes it an instrument
        if played.velocity:
            sounding.volume.velocity = played.velocity
        if not played.duration:
            graces.append((played.onset - bar.start, sounding.getGrace()))
            continue
        sounding.quarterLength = _quarters(played.duration)
        if tie is not None:
            sounding.tie = tie_types.Tie(tie)
        chords.setdefault((played.onset - bar.start, played.duration, played.velocity), []).append(sounding)
    for (onset, duration, velocity), members in sorted(chords.items(), key=lambda item: item[0]):
        element = members[0]
        if len(members) > 1:
            element = chord_of(members)
            element.quarterLength = _quarters(duration)
            if velocity:
                element.volume.velocity = velocity
        voice = next((index for index, end in enumerate(reach) if end <= onset), len(voices))
        if voice == len(voices):
            voices.append([])
            reach.append(0)
        voices[voice].append((onset, onset + duration, element))
        reach[voice] = onset + duration
    for index, content in enumerate(voices or [[]]):
        target = measure if len(voices) < 2 else stream.Voice(id=str(index + 1))
        if index == 0:
            for onset, grace in graces:
                target.coreInsert(_quarters(onset), grace)
        position = 0
        for onset, end, element in [*content, (bar.length, bar.length, None)]:
            if onset > position:
                target.coreInsert(_quarters(position), note.Rest(quarterLength=_quarters(onset - position)))
            if element is not None:
                target.coreInsert(_quarters(onset), element)
            position = end
        target.coreElementsChanged()
        if target is not measure:
            measure.insert(0, target)


def spelling(pitch: int, sharps: int) -> str:
    """The name, as music21 writes it, of a MIDI pitch under a key signature.

    Of the names of a pitch the one is taken that lies nearest to the key on the line of fifths: from three
    steps below the tonic of the major key to eight above it, in C from E flat to G sharp.

    >>> spelling(63, 0), spelling(68, 0), spelling(70, 4), spelling(59, 7)
    ('E-4', 'G#4', 'A#4', 'B3')
    """
    lowest = sharps - 3
    fifths = lowest + (7 * pitch - lowest) % 12
    alteration, letter = divmod(fifths + 1, 7)
    octave = (pitch - alteration) // 12 - 1
    return "FCGDAEB"[letter] + ("#" * alteration or "-" * -alteration) + str(octave)


def _music21(module: str) -> Any:
    """A module of music21, imported when it is first needed; its types are told in part only."""
    return importlib.import_module(f"music21.{module}")


def _quarters(ticks: int) -> Fraction:
    return Fraction(ticks, TICKS_PER_QUARTER)
