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
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree

from domains.music import cache, containers
from domains.music.alphabet import TICKS_PER_QUARTER, bar_ticks
from domains.music.piece import COMMON_TIME, Bar, Draft, DraftBar, Instrument, Note, Piece, bar_quarters, parse
from domains.music.repeats import REPEATS_KEPT
from seqbert.domain import Report

if TYPE_CHECKING:
    from music21.stream import Score, Stream

_Notes: TypeAlias = list[tuple[Fraction, Fraction, int]]


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
        if any(part.hasMeasures() and not expander(part).isExpandable() for part in _staves(score)):
            return None
        unfolded: Stream[Any] = score.expandRepeats()
    except _music21("exceptions21").Music21Exception:
        return None
    lengths, written = ({part.highestTime for part in _staves(stream)} for stream in (unfolded, score))
    return unfolded if len(lengths) <= len(written) else None


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


def _sounding(flat: Stream[Any], report: Report, source: str) -> tuple[_Notes, _Notes]:
    """Onset, end and pitch of the notes of a part, tied notes joined; and of its drums, whose pitch says which."""
    harmony = _music21("harmony").Harmony
    notes: _Notes = []
    drums: _Notes = []
    tied: dict[tuple[int, Fraction], int] = {}
    for element in flat.notes:
        if isinstance(element, harmony):
            report.tally("chord symbols left out", source=source)
            continue
        onset = Fraction(element.offset)
        end = onset if element.duration.isGrace else onset + Fraction(element.quarterLength)
        for note in getattr(element, "notes", (element,)):
            if not hasattr(note, "pitch"):
                drum = getattr(note.storedInstrument, "percMapPitch", None)
                if drum is None:
                    report.tally("unpitched notes left out, because the score does not say which drum", source=source)
                else:
                    drums.append((onset, end, drum))
                continue
            if note.pitch.ps != int(note.pitch.ps):
                report.tally("microtones rounded to a semitone", source=source)
            pitch = note.pitch.midi
            kind = None if note.tie is None or end == onset else note.tie.type
            held = tied.pop((pitch, onset), None) if kind in ("stop", "continue") else None
            if held is None:
                held = len(notes)
                notes.append((onset, end, pitch))
            else:
                notes[held] = (notes[held][0], end, pitch)
            if kind in ("start", "continue"):
                tied[pitch, end] = held
    return notes, drums


def build(piece: Piece) -> Score:
    """A music21 score with parts, measures, voices where notes overlap, and ties over bar lines."""
    stream, key, meter, tempo = (_music21(name) for name in ("stream", "key", "meter", "tempo"))
    built: Score = stream.Score()
    for number, notes in enumerate(piece.parts or [[]]):
        part = stream.Part(id=f"Part {number}")
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
            _fill_measure(measure, by_bar[index], bar)
            part.coreInsert(_quarters(bar.start), measure)
        part.coreElementsChanged()
        built.insert(0, part)
    return built


def to_musicxml(score: Score) -> bytes:
    """The score as a MusicXML document."""
    return bytes(_music21("musicxml.m21ToXml").GeneralObjectExporter(score).parse())


def _by_bar(notes: list[Note], bars: list[Bar]) -> list[list[tuple[Note, str | None]]]:
    """The notes of each bar, cut at bar lines; with each its type of tie, if any."""
    starts = [bar.start for bar in bars]
    contents: list[list[tuple[Note, str | None]]] = [[] for _ in bars]
    for note in notes:
        index = bisect_right(starts, note.onset) - 1
        onset = note.onset
        while index + 1 < len(bars) and note.end > starts[index + 1]:
            tie = "start" if onset == note.onset else "continue"
            contents[index].append((Note(onset, starts[index + 1] - onset, note.pitch), tie))
            index += 1
            onset = starts[index]
        contents[index].append((Note(onset, note.end - onset, note.pitch), None if onset == note.onset else "stop"))
    return contents


def _fill_measure(measure: Any, contents: list[tuple[Note, str | None]], bar: Bar) -> None:
    stream, chord, note, tie_types = (_music21(name) for name in ("stream", "chord", "note", "tie"))
    voices: list[list[tuple[int, int, Any]]] = []
    reach: list[int] = []
    graces = []
    chords: dict[tuple[int, int], list[Any]] = {}
    for played, tie in contents:
        sounding = note.Note(spelling(played.pitch, bar.sharps or 0))
        if not played.duration:
            graces.append((played.onset - bar.start, sounding.getGrace()))
            continue
        sounding.quarterLength = _quarters(played.duration)
        if tie is not None:
            sounding.tie = tie_types.Tie(tie)
        chords.setdefault((played.onset - bar.start, played.duration), []).append(sounding)
    for (onset, duration), members in sorted(chords.items(), key=lambda item: item[0]):
        element = members[0]
        if len(members) > 1:
            element = chord.Chord(members)
            element.quarterLength = _quarters(duration)
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
