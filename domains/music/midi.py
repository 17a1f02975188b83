"""Standard MIDI files: what they sound as a draft on their own bar lines, and a piece as such a file.

The bytes are read here and not by music21, whose way to a score moves the notes to a coarser grid and takes
seconds a file. Each channel of each track is a part; the tenth channel is drums and left out.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from fractions import Fraction

from domains.music.alphabet import TICKS_PER_QUARTER, bar_ticks, signature_of
from domains.music.piece import Draft, DraftBar, Note, Piece, bar_quarters, metered
from seqbert.domain import Report

LARGEST_FILE = 16 * 2**20
"""In bytes."""

COMMON_TIME = (4, 4)
DRUM_CHANNEL = 9
"""Counted from 0, as in the file: the tenth channel of General MIDI."""

NOTE_OFF = 0x80
NOTE_ON = 0x90
ONE_BYTE_MESSAGES = (0xC0, 0xD0)
SYSTEM_EXCLUSIVE = (0xF0, 0xF7)
META = 0xFF
END_OF_TRACK = 0x2F
SET_TEMPO = 0x51
TIME_SIGNATURE = 0x58
KEY_SIGNATURE = 0x59

MIDI_TICKS = 20
"""MIDI ticks in one of ours when writing: 480 a quarter, the resolution that most programs expect."""
VELOCITY = 80
GRACE_TICKS = 2
_CHANNELS = [channel for channel in range(16) if channel != DRUM_CHANNEL]


def read_midi(data: bytes, report: Report) -> Draft:
    """The notes of a MIDI file of format 0 or 1.

    A note-off ends the note of its pitch and channel that began first; a note that is never ended lasts to
    the end of its track. Until a file gives a time signature it is in 4/4 (Standard MIDI Files 1.0), and
    until it gives a tempo it has none here, which players take as 120. In SMPTE time half a second is a
    quarter.

    Raises:
        ValueError: The bytes break the format; the message says how.
    """
    format_number, per_quarter, timed, tracks = _open(data)
    if format_number not in (0, 1):
        raise ValueError(f"MIDI files of format {format_number} are not supported")
    draft = Draft()
    signatures = {Fraction(0): COMMON_TIME}
    keys: dict[Fraction, int] = {}
    for track in tracks:
        parts: dict[int, list[tuple[Fraction, Fraction, int]]] = {}
        sounding: dict[tuple[int, int], deque[Fraction]] = {}
        tick = 0
        for tick, status, content in _events(track):
            now = tick / per_quarter
            message, channel = status & 0xF0, status & 0x0F
            if status == META and content[0] == SET_TEMPO:
                microseconds = int.from_bytes(content[1:4], "big")
                if microseconds and timed:
                    draft.tempos.append((now, 60_000_000 / microseconds))
            elif status == META and content[0] == TIME_SIGNATURE:
                if len(content) < 3 or not content[1] or content[2] > 6:
                    report.tally("MIDI time signatures that say nothing passed over")
                else:
                    signatures[now] = content[1], 2 ** content[2]
            elif status == META and content[0] == KEY_SIGNATURE:
                sharps = int.from_bytes(content[1:2], "big", signed=True)
                if len(content) < 3 or abs(sharps) > 7:
                    report.tally("MIDI key signatures that say nothing passed over")
                else:
                    keys[now] = sharps
            elif message == NOTE_ON and content[1] and channel == DRUM_CHANNEL:
                report.tally("drum notes left out")
            elif message == NOTE_ON and content[1]:
                sounding.setdefault((channel, content[0]), deque()).append(now)
            elif message in (NOTE_ON, NOTE_OFF) and sounding.get((channel, content[0])):
                onset = sounding[channel, content[0]].popleft()
                parts.setdefault(channel, []).append(_note(onset, now, content[0], report))
        for (channel, pitch), begun in sounding.items():
            report.tally("notes without an end ended with their track", len(begun))
            ended = [_note(onset, tick / per_quarter, pitch, report) for onset in begun]
            parts.setdefault(channel, []).extend(ended)
        draft.parts += [sorted(parts[channel]) for channel in sorted(parts)]
    draft.end = max((note[1] for notes in draft.parts for note in notes), default=Fraction(0))
    bars = metered([DraftBar(when, signatures[when], None) for when in sorted(signatures)], draft.end)
    draft.bars = _with_keys(bars, keys)
    if bars:
        draft.end = bars[-1].start + bar_quarters(bars[-1].signature)
    return draft


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
        channel = _CHANNELS[number % len(_CHANNELS)]
        events = []
        for onset, stop, pitch in _played(notes):
            events.append((onset, bytes((NOTE_ON | channel, pitch, VELOCITY))))
            events.append((stop, bytes((NOTE_OFF | channel, pitch, 0))))
        tracks.append(_track(events, end))
    header = b"MThd" + struct.pack(">IHHH", 6, 1, len(tracks), TICKS_PER_QUARTER * MIDI_TICKS)
    return header + b"".join(tracks)


def _played(notes: list[Note]) -> Iterator[tuple[int, int, int]]:
    """Onset, end and pitch of each note; grace notes share the time before their own onset."""
    waiting: list[Note] = []
    for note in notes:
        if not note.duration:
            waiting.append(note)
            continue
        for ahead, grace in enumerate(reversed(waiting)):
            stop = max(grace.onset - ahead * GRACE_TICKS, 1)
            yield max(stop - GRACE_TICKS, 0), stop, grace.pitch
        waiting = []
        yield note.onset, note.end, note.pitch


def _track(events: list[tuple[int, bytes]], end: int) -> bytes:
    """A chunk of events; at one tick note-offs come first, so that a repeated pitch sounds again."""
    body = bytearray()
    now = 0
    for tick, message in sorted(events, key=lambda event: (event[0], event[1][0] & 0xF0 != NOTE_OFF)):
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


def _open(data: bytes) -> tuple[int, Fraction, bool, list[bytes]]:
    """Format, ticks a quarter, whether tempos set the time of a tick, and the contents of the tracks."""
    if data[:4] != b"MThd" or len(data) < 14:
        raise ValueError("no MIDI header")
    length, format_number, _, division = struct.unpack(">IHHH", data[4:14])
    timed = division < 0x8000
    per_quarter = Fraction(division) if timed else Fraction((256 - (division >> 8)) * (division & 0xFF), 2)
    if not per_quarter:
        raise ValueError("no ticks in a quarter")
    tracks = []
    position = 8 + length
    while position + 8 <= len(data):
        kind, length = struct.unpack(">4sI", data[position : position + 8])
        position += 8 + length
        if position > len(data):
            raise ValueError("the last chunk is cut off")
        if kind == b"MTrk":
            tracks.append(data[position - length : position])
    if not tracks:
        raise ValueError("no tracks")
    return format_number, per_quarter, timed, tracks


def _events(track: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(tick, status, content) of each channel message and meta event of a track.

    The content of a meta event begins with its kind. A meta event between two messages does not end the
    running status, as the standard would have it, because many files disregard that.
    """
    tick = position = running = 0
    try:
        while position < len(track):
            delta, position = _number(track, position)
            tick += delta
            status = track[position]
            if status < 0x80:
                status = running
            else:
                position += 1
            if status in (META, *SYSTEM_EXCLUSIVE):
                start = position
                length, position = _number(track, position + (status == META))
                content = track[start : start + 1] + track[position : position + length]
                position += length
                if position > len(track):
                    raise IndexError
            elif 0x80 <= status < 0xF0:
                running = status
                length = 1 if status & 0xF0 in ONE_BYTE_MESSAGES else 2
                content = track[position : position + length]
                position += length
                if position > len(track):
                    raise IndexError
                if max(content) > 127:
                    raise ValueError(f"a data byte above 127 at tick {tick}")
            else:
                raise ValueError(f"an unknown event or a running status without a status at tick {tick}")
            if status not in SYSTEM_EXCLUSIVE:
                yield tick, status, content
            if status == META and content[0] == END_OF_TRACK:
                return
    except IndexError as error:
        raise ValueError(f"a track breaks off at tick {tick}") from error


def _number(track: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, at most four bytes, and where it ends."""
    number = 0
    for place in range(position, position + 4):
        number = number << 7 | track[place] & 0x7F
        if track[place] < 0x80:
            return number, place + 1
    raise ValueError("a number of more than four bytes")


def _note(onset: Fraction, end: Fraction, pitch: int, report: Report) -> tuple[Fraction, Fraction, int]:
    """A note that ends as it begins gets the shortest length; MIDI knows no grace notes."""
    if end <= onset:
        report.tally("MIDI notes of no length made 1/24 quarter long")
        end = onset + Fraction(1, TICKS_PER_QUARTER)
    return onset, end, pitch


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
