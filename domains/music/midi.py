"""Standard MIDI files: what they sound as a draft on their own bar lines, and a piece as such a file.

The bytes are read here and not by music21, whose way to a score moves the notes to a coarser grid and takes
seconds a file. Each channel of each track is a part; the tenth channel is drums and left out.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import struct
from collections import Counter, deque
from collections.abc import Iterator
from fractions import Fraction
from math import floor
from typing import Any

from domains.music.alphabet import DRUMS, PITCHES, TICKS_PER_QUARTER, bar_ticks, signature_of
from domains.music.piece import Draft, DraftBar, DraftNote, Instrument, Note, Piece, bar_quarters, metered
from seqbert.domain import Report

LARGEST_FILE = 16 * 2**20
"""In bytes."""
MOST_NOTES = 1_000_000

COMMON_TIME = (4, 4)
DRUM_CHANNEL = 9
"""Counted from 0, as in the file: the tenth channel of General MIDI."""

NOTE_OFF = 0x80
NOTE_ON = 0x90
PROGRAM_CHANGE = 0xC0
TWO_BYTE_MESSAGES = (NOTE_OFF, NOTE_ON, 0xA0, 0xB0, 0xE0)
ONE_BYTE_MESSAGES = (PROGRAM_CHANGE, 0xD0)
SYSTEM_EXCLUSIVE = (0xF0, 0xF7)
META = 0xFF
TRACK_NAME = 0x03
END_OF_TRACK = 0x2F
SET_TEMPO = 0x51
TIME_SIGNATURE = 0x58
KEY_SIGNATURE = 0x59

MIDI_TICKS = 20
"""MIDI ticks in one of ours when writing: 480 a quarter, the resolution that most programs expect."""
VELOCITY = 80
GRACE_TICKS = 2
LONGEST_PLAIN_TRACK = 2**16
"""In bytes: at three bytes an event, and 2**16 ticks from each to the next, no time is above 2**31 - 2**28."""
NEVER = 2**28 - 1
_NEVER = b"\xff\xff\xff\x7f"
_NAME = bytes((META, TRACK_NAME))
_ALL_OFF = b"".join(bytes((0, pitch, 0)) for pitch in PITCHES)
_DELTA, _DATA = rb"(?:[\x80-\x83]?[\x80-\xff])?[\x00-\x7f]", rb"[\x00-\x7f]"
_CONTENT = b"|".join(rb"\x%02x.{%d}" % (length, length) for length in range(128))
_META_EVENT = (
    rb"\xff(?:\x51\x03(?!\x00{3}).{3}|\x58\x04[^\x00][\x00-\x06]..|\x59\x02[\xf9-\xff\x00-\x07]."
    rb"|[\x00-\x2e\x30-\x50\x52-\x57\x5a-\x7f](?:" + _CONTENT + rb"))"
)
_HEAD = rb"((?:" + _DELTA + _META_EVENT + rb")*)"
_FIRST_MESSAGE = re.compile(_HEAD + _DELTA + rb"[\x80-\xef]", re.DOTALL)
_CHANNELS = [channel for channel in range(16) if channel != DRUM_CHANNEL]


@dataclasses.dataclass(slots=True)
class _Track:
    """What one track says, in ticks.

    Attributes:
        notes: (onset, end, pitch, velocity) by channel.
        programs: (when, program) by channel.
        endless: Notes that nothing ends; they are among ``notes``, up to the end of the track.
        senseless: What was passed over, and how often.
    """

    name: str = ""
    notes: dict[int, list[tuple[int, int, int, int]]] = dataclasses.field(default_factory=dict)
    programs: dict[int, list[tuple[int, int]]] = dataclasses.field(default_factory=dict)
    tempos: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    signatures: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    keys: dict[int, int] = dataclasses.field(default_factory=dict)
    endless: int = 0
    senseless: Counter[str] = dataclasses.field(default_factory=Counter)


def read_midi(
    data: bytes, report: Report, source: str = "", drums: bool = False, mend: bool = False
) -> list[tuple[Draft, dict[str, str], list[str]]]:
    """The pieces of a MIDI file: one, but each track of a file of format 2 is a piece of its own.

    A note-off ends the note of its pitch and channel that began first; a note that is never ended lasts to
    the end of its track. Until a file gives a time signature it is in 4/4 (Standard MIDI Files 1.0), and
    until it gives a tempo it has none here, which players take as 120. In SMPTE time half a second is a
    quarter.

    Args:
        data: The file.
        report: Told what is passed over or mended.
        source: The file's name, for the report.
        drums: Whether the piece lasts as long as its drums, which are the notes of the tenth channel.
        mend: Read broken bytes as far as they make sense. Values above 127 are clipped, bytes that belong to no
            event are passed over, and of a track or file that breaks off what came before is kept.

    Returns:
        Each piece with its metadata (title, and the programs and names of its parts), and what was mended.

    Raises:
        ValueError: The bytes break the format and are not to be mended, or cannot; the message says how.
    """
    faults: list[str] = []
    format_number, resolution, unit, timed, chunks = _open(data, faults if mend else None)
    tracks = [_read_track(chunk, faults if mend else None) for chunk in chunks]
    mended = list(dict.fromkeys(faults))
    if format_number != 2:
        return [(*_draft(tracks, resolution, unit, timed, report, source, drums), mended)]
    return [(*_draft([track], resolution, unit, timed, report, source, drums), mended) for track in tracks]


def _draft(
    tracks: list[_Track], resolution: int, unit: int, timed: bool, report: Report, source: str, drums: bool
) -> tuple[Draft, dict[str, str]]:
    """The piece that tracks play together, whose ticks are ``unit / resolution`` of a quarter."""
    draft = Draft(resolution=resolution)
    signatures = {0: COMMON_TIME}
    keys: dict[int, int] = {}
    shortest = Fraction(resolution, TICKS_PER_QUARTER)
    lengthless = changed_programs = 0
    for track in tracks:
        if timed:
            draft.tempos += [(Fraction(when, resolution), 60_000_000 / value) for when, value in track.tempos]
        signatures |= track.signatures
        keys |= track.keys
        report.tally("notes without an end ended with their track", track.endless, source)
        for what, count in track.senseless.items():
            report.tally(what, count, source)
        for channel in sorted(track.notes):
            played = track.notes[channel]
            is_drums = channel == DRUM_CHANNEL
            notes: list[Any] = sorted(played)
            without_length = sum(end <= onset for onset, end, _, _ in notes)
            if unit != 1 or without_length:
                lengthless += without_length
                notes = [
                    DraftNote(onset * unit, end * unit if end > onset else onset * unit + shortest, pitch, velocity)
                    for onset, end, pitch, velocity in notes
                ]
            draft.parts.append(notes)
            program = None
            changes = track.programs.get(channel, [])
            for when, number in changes:
                if when > notes[0][0] // unit and program is not None:
                    changed_programs += number != program
                else:
                    program = number
            draft.instruments.append(Instrument(None if is_drums else program, track.name, is_drums))
    report.tally(f"MIDI notes of no length made 1/{TICKS_PER_QUARTER} quarter long", lengthless, source)
    report.note("changes of program within a part passed over", changed_programs)
    if sum(map(len, draft.parts)) > MOST_NOTES:
        raise ValueError(f"it has more than {MOST_NOTES:,} notes")
    heard = [notes for notes, who in zip(draft.parts, draft.instruments, strict=True) if drums or not who.drums]
    latest = Fraction(max((note[1] for notes in heard for note in notes), default=0)) / resolution
    # A note that ends just over a bar line begins no bar: on the grid it ends with the bar.
    draft.end = Fraction(floor(latest * TICKS_PER_QUARTER + Fraction(1, 2)), TICKS_PER_QUARTER)
    changes_of_meter = [
        DraftBar(Fraction(when * unit, resolution), signatures[when], None) for when in sorted(signatures)
    ]
    bars = metered(changes_of_meter, draft.end)
    draft.bars = _with_keys(bars, {Fraction(when * unit, resolution): sharps for when, sharps in keys.items()})
    if bars:
        draft.end = bars[-1].start + bar_quarters(bars[-1].signature)
    return draft, _metadata(tracks, draft)


def _metadata(tracks: list[_Track], draft: Draft) -> dict[str, str]:
    """Title, programs and part names, where the file says any; a first track without notes is named as the piece."""
    found = {}
    if tracks and tracks[0].name and (len(tracks) == 1 or not tracks[0].notes):
        found["title"] = tracks[0].name
    programs = ["drums" if who.drums else "" if who.program is None else str(who.program) for who in draft.instruments]
    if any(programs):
        found["programs"] = ", ".join(programs)
    names = [who.name for who in draft.instruments]
    if len(set(names)) > 1 or (names and names[0] and "title" not in found):
        found["parts"] = ", ".join(names)
    return found


def to_midi(piece: Piece) -> bytes:
    """The piece as a Standard MIDI File of format 1: a track of bars, keys and tempos, then one a part.

    A bar of irregular length is written as a time signature of its own: MIDI tells bars by signatures only.
    Grace notes are played just before the note that they adorn, 1/12 quarter each.
    """
    conductor: list[tuple[int, bytes]] = []
    for tick, tempo in piece.tempos:
        conductor.append((tick, _meta(SET_TEMPO, round(60_000_000 / tempo).to_bytes(3, "big"))))
    shown: tuple[int, int] | None = None
    sharps: int | None = None
    for bar in piece.bars:
        signature = bar.signature
        if signature is None or bar_ticks(signature) != bar.length:
            signature = signature_of(bar.length) or signature
        if signature is not None and signature != shown:
            shown = signature
            power = signature[1].bit_length() - 1
            conductor.append((bar.start, _meta(TIME_SIGNATURE, bytes((signature[0], power, 24, 8)))))
        if bar.sharps is not None and bar.sharps != sharps:
            sharps = bar.sharps
            conductor.append((bar.start, _meta(KEY_SIGNATURE, sharps.to_bytes(1, "big", signed=True) + b"\0")))
    end = piece.bars[-1].start + piece.bars[-1].length
    tracks = [_track(conductor, end)]
    for number, notes in enumerate(piece.parts):
        program = piece.program(number)
        channel = DRUM_CHANNEL if program == DRUMS else _CHANNELS[number % len(_CHANNELS)]
        events = []
        if program is not None and program != DRUMS:
            events.append((0, bytes((PROGRAM_CHANGE | channel, program))))
        for onset, stop, pitch, velocity in _played(notes):
            events.append((onset, bytes((NOTE_ON | channel, pitch, velocity or VELOCITY))))
            events.append((stop, bytes((NOTE_OFF | channel, pitch, 0))))
        tracks.append(_track(events, end))
    return _header(1, len(tracks), TICKS_PER_QUARTER * MIDI_TICKS) + b"".join(tracks)


def _header(format_number: int, tracks: int, division: int) -> bytes:
    return b"MThd" + struct.pack(">IHHH", 6, format_number, tracks, division)


def _played(notes: list[Note]) -> Iterator[tuple[int, int, int, int]]:
    """Onset, end, pitch and velocity of each note; grace notes share the time before their own onset."""
    waiting: list[Note] = []
    for note in notes:
        if not note.duration:
            waiting.append(note)
            continue
        for ahead, grace in enumerate(reversed(waiting)):
            stop = max(grace.onset - ahead * GRACE_TICKS, 1)
            yield max(stop - GRACE_TICKS, 0), stop, grace.pitch, grace.velocity
        waiting = []
        yield note.onset, note.end, note.pitch, note.velocity


def _track(events: list[tuple[int, bytes]], end: int) -> bytes:
    """A chunk of events; at one tick note-offs come first, so that a repeated pitch sounds again."""
    body = bytearray()
    now = 0
    for tick, message in sorted(events, key=lambda event: (event[0], event[1][0] & 0xF0 == NOTE_ON)):
        body += _variable_length((tick - now) * MIDI_TICKS) + message
        now = tick
    body += _variable_length(max(end - now, 0) * MIDI_TICKS) + _meta(END_OF_TRACK, b"")
    return b"MTrk" + struct.pack(">I", len(body)) + bytes(body)


def _meta(kind: int, content: bytes) -> bytes:
    return bytes((META, kind, len(content))) + content


def _variable_length(number: int) -> bytes:
    """Seven bits a byte, the highest first; all but the last have their top bit set."""
    found = [number & 0x7F]
    while number := number >> 7:
        found.append(0x80 | number & 0x7F)
    return bytes(reversed(found))


def _open(data: bytes, faults: list[str] | None) -> tuple[int, int, int, bool, list[bytes]]:
    """Format, resolution and unit (a tick is unit / resolution of a quarter), whether tempos set the time, tracks.

    Args:
        data: The file.
        faults: Takes what had to be mended; None: nothing is mended.
    """
    if data[:4] == b"RIFF" and data[8:12] == b"RMID":  # the Windows wrapping of a MIDI file
        data = data[max(data.find(b"MThd"), 0) :]
    if data[:4] != b"MThd" or len(data) < 14:
        raise ValueError("no MIDI header")
    length, format_number, _, division = struct.unpack(">IHHH", data[4:14])
    if format_number > 2:
        raise ValueError(f"MIDI files of format {format_number} do not exist")
    timed = division < 0x8000
    resolution, unit = (division, 1) if timed else ((256 - (division >> 8)) * (division & 0xFF), 2)
    if not resolution:
        raise ValueError("no ticks in a quarter")
    tracks = []
    position = 8 + length
    while position + 8 <= len(data):
        kind, length = struct.unpack(">4sI", data[position : position + 8])
        position += 8 + length
        if position > len(data):
            _mend(faults, "the last chunk is cut off")
        if kind == b"MTrk":
            tracks.append(data[position - length : position])
    if not tracks:
        raise ValueError("no tracks")
    return format_number, resolution, unit, timed, tracks


def _mend(faults: list[str] | None, fault: str, place: str = "") -> None:
    """Takes down a fault that can be mended, or raises it where nothing is."""
    if faults is None:
        raise ValueError(fault + place)
    faults.append(fault)


@functools.cache
def _plain(channel: int) -> re.Pattern[bytes]:
    """A track of nothing but whole messages of one channel and meta events that make sense, up to its end.

    Times between events are below 2**16 ticks, so that no sum of them is too large for symusic.
    """
    two, one = (bytes(kind | channel for kind in kinds) for kinds in (TWO_BYTE_MESSAGES, ONE_BYTE_MESSAGES))
    long = b"[%b]%b{2}(?:%b%b{2})*" % (re.escape(two), _DATA, _DELTA, _DATA)
    short = b"(?:(?P<program>%b)|[%b])%b(?:%b%b)*" % (re.escape(one[:1]), re.escape(one[1:]), _DATA, _DELTA, _DATA)
    events = b"((?:%b(?:%b|%b|%b))+)" % (_DELTA, long, short, _META_EVENT)
    return re.compile(_HEAD + events + _DELTA + rb"\xff\x2f\x00", re.DOTALL)


def _by_symusic(data: bytes) -> _Track | None:
    """What :func:`_walk` gives, by a C++ parser and faster; None where that is not certain.

    symusic loses notes that nothing ends, tells no channels, splits a channel where its program changes, and takes
    time signatures that make no sense. So it is given tracks only that :func:`_plain` knows. After their events
    the end of every pitch is sent at a time that no note reaches: a note that ends then was never ended.
    """
    import symusic

    first = _FIRST_MESSAGE.match(data)
    if first is None or len(data) > LONGEST_PLAIN_TRACK:
        return None
    channel = first[0][-1] & 0x0F
    found = _plain(channel).fullmatch(data)
    if found is None or _NAME in found[2]:
        return None
    body = found[1] + found[2] + _NEVER + bytes((NOTE_OFF | channel, 0, 0)) + _ALL_OFF
    body += b"\0" + _meta(END_OF_TRACK, b"")
    score: Any = symusic.Score.from_midi(_header(0, 1, 480) + b"MTrk" + struct.pack(">I", len(body)) + body)
    played = [track for track in score.tracks if len(track.notes)]
    if len(played) != 1:
        return None
    notes = played[0].notes.numpy()
    ends = notes["time"] + notes["duration"]
    if ends.max() >= NEVER:
        return None
    track = _Track(_walk(found[1], None).name)
    columns = (notes["time"], ends, notes["pitch"], notes["velocity"])
    track.notes[channel] = list(zip(*(column.tolist() for column in columns), strict=True))
    if found["program"] is not None:
        track.programs[channel] = [(0, played[0].program)]
    track.tempos = [(tempo.time, tempo.mspq) for tempo in score.tempos]
    track.signatures = {change.time: (change.numerator, change.denominator) for change in score.time_signatures}
    track.keys = {change.time: change.key for change in score.key_signatures}
    return track


def _read_track(data: bytes, faults: list[str] | None) -> _Track:
    """The notes and what else counts of a track."""
    return _by_symusic(data) or _walk(data, faults)


def _walk(data: bytes, faults: list[str] | None) -> _Track:
    """The notes and what else counts of a track, byte by byte.

    A meta event between two messages does not end the running status, as the standard would have it, because many
    files disregard that. The loop goes through every byte of a corpus: it keeps to plain numbers and one function.
    """
    track = _Track()
    sounding: dict[int, deque[tuple[int, int]]] = {}
    by_channel: list[list[tuple[int, int, int, int]]] = [[] for _ in range(16)]
    tick = position = running = 0
    size = len(data)
    try:
        while position < size:
            byte = data[position]
            position += 1
            if byte < 0x80:
                tick += byte
            else:
                delta, position = _number(data, position - 1)
                tick += delta
            status = data[position]
            if status < 0x80:
                status = running
            else:
                position += 1
            kind = status & 0xF0
            if 0x80 <= kind < 0xF0:
                running = status
                first = data[position]
                position += 1
                second = 0
                if kind not in ONE_BYTE_MESSAGES:
                    second = data[position]
                    position += 1
                if first > 127 or second > 127:
                    _mend(faults, "a data byte above 127", f" at tick {tick}")
                    first, second = min(first, 127), min(second, 127)
                if kind == NOTE_ON and second:
                    key = (status & 0x0F) << 7 | first
                    queue = sounding.get(key)
                    if queue is None:
                        queue = sounding[key] = deque()
                    queue.append((tick, second))
                elif kind <= NOTE_ON:
                    queue = sounding.get((status & 0x0F) << 7 | first)
                    if queue:
                        onset, velocity = queue.popleft()
                        by_channel[status & 0x0F].append((onset, tick, first, velocity))
                elif kind == PROGRAM_CHANGE:
                    track.programs.setdefault(status & 0x0F, []).append((tick, first))
            elif status == META or status in SYSTEM_EXCLUSIVE:
                meta = data[position] if status == META else -1
                length, position = _number(data, position + (status == META))
                content = data[position : position + length]
                position += length
                if position > size:
                    raise IndexError
                if meta == END_OF_TRACK:
                    break
                if meta >= 0:
                    _take_meta(track, tick, meta, content)
            elif status:
                _mend(faults, "an unknown event", f" at tick {tick}")
            else:
                _mend(faults, "a running status without a status", f" at tick {tick}")
                position += 2  # the data of most messages
    except IndexError:
        _mend(faults, "a track breaks off", f" at tick {tick}")
    for key, queue in sounding.items():
        track.endless += len(queue)
        by_channel[key >> 7] += [(onset, tick, key & 0x7F, velocity) for onset, velocity in queue]
    track.notes = {channel: notes for channel, notes in enumerate(by_channel) if notes}
    return track


def _take_meta(track: _Track, tick: int, meta: int, content: bytes) -> None:
    if meta == SET_TEMPO:
        microseconds = int.from_bytes(content[:3], "big")
        if microseconds:
            track.tempos.append((tick, microseconds))
        else:
            track.senseless["MIDI tempos that say nothing passed over"] += 1
    elif meta == TIME_SIGNATURE:
        if len(content) < 2 or not content[0] or content[1] > 6:
            track.senseless["MIDI time signatures that say nothing passed over"] += 1
        else:
            track.signatures[tick] = content[0], 2 ** content[1]
    elif meta == KEY_SIGNATURE:
        sharps = int.from_bytes(content[:1], "big", signed=True)
        if len(content) < 2 or abs(sharps) > 7:
            track.senseless["MIDI key signatures that say nothing passed over"] += 1
        else:
            track.keys[tick] = sharps
    elif meta == TRACK_NAME and not track.name:
        try:
            name = content.decode()
        except UnicodeDecodeError:
            name = content.decode("latin-1")
        track.name = " ".join(name.replace("\0", " ").split())


def _number(track: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, at most four bytes, and where it ends."""
    number = 0
    for place in range(position, position + 4):
        number = number << 7 | track[place] & 0x7F
        if track[place] < 0x80:
            return number, place + 1
    raise ValueError("a number of more than four bytes")


def _with_keys(bars: list[DraftBar], keys: dict[Fraction, int]) -> list[DraftBar]:
    """A key signature rules from the first bar line at or after it."""
    changes = sorted(keys.items(), reverse=True)
    sharps: int | None = None
    keyed = []
    for bar in bars:
        while changes and changes[-1][0] <= bar.start:
            sharps = changes.pop()[1]
        keyed.append(bar._replace(sharps=sharps))
    return keyed
