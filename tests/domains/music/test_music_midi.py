"""MIDI: what a file sounds, on the bars that its time signatures give."""

import struct
from pathlib import Path

import pytest

from domains.music import Music
from domains.music.midi import read_midi, to_midi
from domains.music.piece import Piece, parse
from seqbert.domain import Report
from seqbert.errors import DataError

ON, OFF = 0x90, 0x80


def meta(kind: int, content: bytes) -> bytes:
    return bytes((0xFF, kind, len(content))) + content


def variable(number: int) -> bytes:
    """A MIDI number of two bytes, or four for what two cannot say."""
    if number < 2**14:
        return bytes((0x80 | number >> 7, number & 0x7F))
    return bytes((0x80 | number >> 21, 0x80 | number >> 14 & 0x7F, 0x80 | number >> 7 & 0x7F, number & 0x7F))


def midi_file(*tracks: list[tuple[int, bytes]], division: int = 480, format_number: int = 1) -> bytes:
    """A MIDI file of tracks of (tick, message)."""
    data = b"MThd" + struct.pack(">IHHH", 6, format_number, len(tracks), division)
    for events in tracks:
        body, now = b"", 0
        for tick, message in events:
            body += variable(tick - now) + message
            now = tick
        body += b"\0" + meta(0x2F, b"")
        data += b"MTrk" + struct.pack(">I", len(body)) + body
    return data


def note(tick: int, end: int, pitch: int, channel: int = 0) -> list[tuple[int, bytes]]:
    return [(tick, bytes((ON | channel, pitch, 64))), (end, bytes((OFF | channel, pitch, 0)))]


def piece_of(data: bytes, report: Report | None = None) -> Piece:
    report = report or Report()
    ((draft, _, _),) = read_midi(data, report)
    return draft.settle("file.mid", report)


def test_row88_overlapping_notes_of_one_pitch_end_in_the_order_they_began():
    """First in, first out; then the first is cut where the second begins, so that writing changes nothing."""
    events = [(0, 60, ON), (30, 60, ON), (50, 60, OFF), (90, 60, OFF)]
    data = midi_file([(tick * 20, bytes((kind, pitch, 64))) for tick, pitch, kind in events])
    report = Report()
    piece = piece_of(data, report)
    assert [played[:3] for played in piece.parts[0]] == [(0, 30, 60), (30, 60, 60)]
    assert report.tallies["notes cut short where their pitch begins again"] == 1
    assert piece_of(to_midi(piece)) == piece


def test_row89_a_tempo_counts_from_where_it_stands():
    tempos = [
        (960, meta(0x51, (600_000).to_bytes(3, "big"))),
        (1920, meta(0x51, (400_000).to_bytes(3, "big"))),
    ]
    piece = piece_of(midi_file(tempos, note(0, 3840, 60)))
    assert piece.tempos == [(48, 100), (96, 152)]  # 150 a minute is nearest to the word 152
    assert piece_of(to_midi(piece)).tempos == piece.tempos
    assert "Tempo" not in piece.segments(1)[0].partition("Position_48")[0]


def test_row89_a_file_without_a_tempo_has_none():
    assert piece_of(midi_file(note(0, 480, 60))).tempos == []


def test_row90_bars_are_those_of_the_files_time_signatures_as_music21_finds_them():
    from music21 import midi, stream
    from music21 import note as m21_note

    signatures = [
        (0, meta(0x58, bytes((5, 3, 24, 8)))),
        (2 * 1200, meta(0x58, bytes((8, 3, 24, 8)))),
        (2 * 1200 + 1920, meta(0x58, bytes((7, 2, 24, 8)))),
    ]
    played = [event for beat in range(30) for event in note(beat * 240, beat * 240 + 240, 60 + beat % 12)]
    data = midi_file(signatures, played)
    piece = piece_of(data)
    assert [bar.length for bar in piece.bars] == [60, 60, 96, 168]

    file = midi.MidiFile()
    file.readstr(data)
    score = midi.translate.midiFileToStream(file, quantizePost=False)
    (part,) = score.parts
    assert len(part.getElementsByClass(stream.Measure)) == len(piece.bars)
    theirs = [(element.offset * 24, element.pitch.midi) for element in part.flatten()[m21_note.Note]]
    assert [(played.onset, played.pitch) for played in piece.parts[0]] == theirs


def test_a_signature_in_the_middle_of_a_bar_cuts_the_bar():
    changes = [(0, meta(0x58, bytes((4, 2, 24, 8)))), (960, meta(0x58, bytes((3, 2, 24, 8))))]
    assert [bar.length for bar in piece_of(midi_file(changes, note(0, 2400, 60))).bars] == [48, 72]


def test_row92_broken_files_are_errors_that_name_them_and_a_good_one_is_read(tmp_path):
    good = midi_file(note(0, 480, 60))
    high_byte = good.replace(bytes((ON, 60, 64)), bytes((ON, 200, 64)))
    no_status = midi_file([(0, bytes((60, 64)))])
    strange_key = midi_file([(0, meta(0x59, b"\x63\x00"))], note(0, 480, 60))
    files = {"good": good, "high": high_byte, "running": no_status, "cut": good[:-5], "key": strange_key}
    music, report, read, failed = Music(), Report(), [], []
    for name, data in files.items():
        path = tmp_path / f"{name}.mid"
        path.write_bytes(data)
        try:
            read += [document.id for document in music.read(path, report)]
        except DataError as error:
            assert str(path) in str(error)
            failed.append(name)
    assert read == ["good", "key"]
    assert failed == ["high", "running", "cut"]
    assert report.tallies["MIDI key signatures that say nothing passed over"] == 1


def test_row93_a_file_without_notes_is_skipped_and_counted(tmp_path):
    path = tmp_path / "empty.mid"
    path.write_bytes(midi_file([(0, meta(0x51, (500_000).to_bytes(3, "big")))]))
    report = Report()
    assert list(Music().read(path, report)) == []
    assert report.skips == {"no notes": 1}


def test_notes_off_the_grid_are_moved_to_it_and_counted():
    report = Report()
    piece = piece_of(midi_file(note(0, 480, 60) + note(487, 955, 62)), report)
    assert [played[:3] for played in piece.parts[0]] == [(0, 24, 60), (24, 24, 62)]
    assert report.tallies["notes moved to the grid of 1/24 quarter"] == 1


def test_channels_are_parts_and_drums_are_left_out():
    report = Report()
    piece = piece_of(midi_file(note(0, 480, 60) + note(480, 960, 48, channel=3), note(0, 480, 36, channel=9)), report)
    assert [[played.pitch for played in part] for part in piece.parts] == [[60], [48]]
    assert report.tallies["drum notes left out"] == 1


def test_a_note_without_an_end_lasts_as_long_as_its_track():
    report = Report()
    piece = piece_of(midi_file([(0, bytes((ON, 60, 64))), *note(480, 960, 62)]), report)
    assert piece.parts[0][0].duration == 48
    assert report.tallies["notes without an end ended with their track"] == 1


@pytest.mark.parametrize(
    "data",
    [
        midi_file(note(0, 2**27, 60), division=1),
        midi_file([(0, meta(0x58, bytes((1, 6, 24, 8))))], note(0, 480, 60)),
        midi_file(note(0, 480, 60), division=0),
        midi_file(note(0, 480, 60), format_number=3),
        b"MThd",
        b"MThd" + b"\xff" * 40,
    ],
    ids=["hours", "tiny bars", "no ticks", "format 3", "header only", "garbage"],
)
def test_absurd_files_are_errors_that_name_them(tmp_path: Path, data):
    path = tmp_path / "odd.mid"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"odd\.mid: cannot be read as MIDI"):
        list(Music().read(path, Report()))


def test_what_is_written_is_read_back_alike():
    text = (
        "Bar Numerator_6 Denominator_8 KeySignature_-3 Position_0 Tempo_96 Part_0 Position_0 Pitch_60 "
        "Duration_36 Pitch_67 Duration_192 Duration_8 Position_36 Pitch_63 Duration_36 "
        "Part_1 Position_12 Pitch_40 Duration_1 Bar Bar Part_0 Position_56 Pitch_60 Duration_16"
    )
    piece = parse(text)
    assert piece_of(to_midi(piece)) == piece
    assert piece.segments(4) == [text]


def test_grace_notes_are_played_just_before_their_note():
    piece = parse("Bar Numerator_4 Denominator_4 Part_0 Position_24 Pitch_62 Duration_0 Pitch_60 Duration_24")
    assert [played[:3] for played in piece_of(to_midi(piece)).parts[0]] == [(22, 2, 62), (24, 24, 60)]
