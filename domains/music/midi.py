"""Standard MIDI files: what they sound as a draft on their own bar lines, and a piece as such a file.

music21 reads the events; its own way to a score is not taken, because it moves the notes to a coarser grid and
takes seconds a file. Each channel of each track is a part; the tenth channel is drums and left out.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from domains.music.alphabet import TICKS_PER_QUARTER, bar_ticks, signature_of
from domains.music.piece import Draft, DraftBar, Note, Piece, bar_quarters, metered
from seqbert.domain import Report

LARGEST_FILE = 16 * 2**20
DRUM_CHANNEL = 10
COMMON_TIME = (4, 4)

MIDI_TICKS = 20
"""MIDI ticks in one of ours when writing: 480 a quarter, the resolution that most programs expect."""
VELOCITY = 80
GRACE_TICKS = 2
_CHANNELS = [channel for channel in range(16) if channel != DRUM_CHANNEL - 1]


def read_midi(data: bytes, report: Report) -> Draft:
    """The notes of a MIDI file of format 0 or 1.

    A note-off ends the note of its pitch and channel that began first; a note that is never ended lasts to the
    end of its track. Until a file gives a time signature, it is in 4/4 (Standard MIDI Files 1.0, section
    "Time Signature"). In SMPTE time half a second is a quarter.

    Raises:
        Exception: music21 cannot make events of the bytes; it raises many kinds.
    """
    from music21 import midi

    file = midi.MidiFile()
    file.readstr(data)
    per_quarter = (
        Fraction(file.ticksPerSecond, 2) if file.ticksPerSecond else Fraction(file.ticksPerQuarterNote)
    )
    if per_quarter <= 0:
        raise ValueError("no ticks per quarter")

    draft = Draft()
    signatures: dict[Fraction, tuple[int, int]] = {}
    keys: dict[Fraction, int] = {}
    for track in file.tracks:
        parts: dict[int, list[tuple[Fraction, Fraction, int]]] = {}
        sounding: dict[tuple[int, int], deque[Fraction]] = {}
        tick = 0
        for event in track.events:
            if event.isDeltaTime():
                tick += event.time
                continue
            now = Fraction(tick) / per_quarter
            kind = event.type
            if kind == midi.ChannelVoiceMessages.NOTE_ON and event.velocity:
                if event.channel == DRUM_CHANNEL:
                    report.tally("drum notes left out")
                else:
                    sounding.setdefault((event.channel, event.pitch), deque()).append(now)
                    parts.setdefault(event.channel, [])
            elif kind in (midi.ChannelVoiceMessages.NOTE_ON, midi.ChannelVoiceMessages.NOTE_OFF):
                begun = sounding.get((event.channel, event.pitch))
                if begun:
                    _end_note(parts[event.channel], begun.popleft(), now, event.pitch, report)
            elif kind == midi.MetaEvents.SET_TEMPO and not file.ticksPerSecond:
                microseconds = int.from_bytes(event.data[:3], "big")
                if microseconds:
                    draft.tempos.append((now, 60_000_000 / microseconds))
            elif kind == midi.MetaEvents.TIME_SIGNATURE:
                signature = _signature(event.data)
                if signature is None:
                    report.tally("MIDI time signatures that say nothing passed over")
                else:
                    signatures[now] = signature
            elif kind == midi.MetaEvents.KEY_SIGNATURE:
                sharps = int.from_bytes(event.data[:1], "big", signed=True)
                if len(event.data) == 2 and abs(sharps) <= 7:
                    keys[now] = sharps
                else:
                    report.tally("MIDI key signatures that say nothing passed over")
        now = Fraction(tick) / per_quarter
        for (channel, pitch), begun in sounding.items():
            report.tally("notes without an end ended with their track", len(begun))
            for onset in begun:
                _end_note(parts[channel], onset, now, pitch, report)
        draft.parts += [sorted(parts[channel]) for channel in sorted(parts)]
    draft.end = max((note[1] for notes in draft.parts for note in notes), default=Fraction(0))
    signatures.setdefault(Fraction(0), COMMON_TIME)
    bars = metered([DraftBar(when, signatures[when], None) for when in sorted(signatures)], draft.end)
    draft.bars = _with_keys(bars, keys)
    if bars:
        draft.end = bars[-1].start + bar_quarters(bars[-1].signature)
    return draft


def to_midi(piece: Piece) -> bytes:
    """The piece as a Standard MIDI File of format 1: a track of bars, keys and tempos, then one a part.

    A bar of irregular length is written as a time signature of its own, since MIDI tells bars by signatures only.
    Grace notes are played just before the note that they adorn, 1/12 quarter each.
    """
    conductor: list[tuple[int, bytes]] = [
        (tick, b"\xff\x51\x03" + round(60_000_000 / tempo).to_bytes(3, "big")) for tick, tempo in piece.tempos
    ]
    shown: tuple[int, int] | None = None
    sharps: int | None = None
    for bar in piece.bars:
        signature = bar.signature
        if signature is None or bar_ticks(signature) != bar.length:
            signature = signature_of(bar.length) or signature
        if signature is not None and signature != shown:
            shown = signature
            power = signature[1].bit_length() - 1
            conductor.append((bar.start, bytes((0xFF, 0x58, 4, signature[0], power, 24, 8))))
        if bar.sharps is not None and bar.sharps != sharps:
            sharps = bar.sharps
            conductor.append((bar.start, b"\xff\x59\x02" + sharps.to_bytes(1, "big", signed=True) + b"\0"))
    end = piece.bars[-1].start + piece.bars[-1].length
    tracks = [_track(conductor, end)]
    for number, notes in enumerate(piece.parts):
        channel = _CHANNELS[number % len(_CHANNELS)]
        events = []
        for onset, stop, pitch in _played(notes):
            events.append((onset, bytes((0x90 | channel, pitch, VELOCITY))))
            events.append((stop, bytes((0x80 | channel, pitch, 0))))
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
    """A chunk of events; of those at one tick, note-offs come first, so that a repeated pitch sounds again."""
    body = bytearray()
    now = 0
    for tick, message in sorted(events, key=lambda event: (event[0], event[1][0] & 0xF0 != 0x80)):
        body += _variable_length((tick - now) * MIDI_TICKS) + message
        now = tick
    body += _variable_length(max(end - now, 0) * MIDI_TICKS) + b"\xff\x2f\0"
    return b"MTrk" + struct.pack(">I", len(body)) + bytes(body)


def _variable_length(number: int) -> bytes:
    """Seven bits a byte, the highest first; all but the last have their top bit set."""
    found = [number & 0x7F]
    while number := number >> 7:
        found.append(0x80 | number & 0x7F)
    return bytes(reversed(found))


def _end_note(
    notes: list[tuple[Fraction, Fraction, int]], onset: Fraction, end: Fraction, pitch: int, report: Report
) -> None:
    """A note that ends as it begins is no grace note, which MIDI does not know: it gets the shortest length."""
    if end <= onset:
        report.tally("MIDI notes of no length made 1/24 quarter long")
        end = onset + Fraction(1, 24)
    notes.append((onset, end, pitch))


def _signature(data: Any) -> tuple[int, int] | None:
    if len(data) < 2 or data[0] == 0 or data[1] > 16:
        return None
    return data[0], 2 ** data[1]


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
