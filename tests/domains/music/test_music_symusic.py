"""MIDI through symusic and byte by byte: the same notes; and what broken files give."""

import struct
from pathlib import Path

import numpy as np
import pytest
import symusic

from domains.music import Music, MusicOptions, midi
from domains.music.midi import read_midi
from domains.music.piece import parse
from seqbert.domain import Report
from seqbert.errors import DataError

ON, OFF = 0x90, 0x80


def track(*events: bytes) -> bytes:
    """The bytes of a track of messages, each with its time before it."""
    return b"".join(events) + b"\0\xff\x2f\0"


def file_of(*tracks: bytes, format_number: int = 1, division: int = 480) -> bytes:
    header = b"MThd" + struct.pack(">IHHH", 6, format_number, len(tracks), division)
    return header + b"".join(b"MTrk" + struct.pack(">I", len(body)) + body for body in tracks)


def notes_of(data: bytes, report: Report | None = None, **options: bool) -> list[list[tuple[int, int, int]]]:
    """The notes of each part of each piece of a file."""
    found = []
    for draft, _, _ in read_midi(data, report or Report(), "file.mid", **options):
        piece = draft.settle("file.mid", report or Report())
        found += [[note[:3] for note in part] for part in piece.parts] if piece else []
    return found


PLAIN = track(
    b"\0\xff\x03\x05Flute",
    b"\0\xc0\x49",
    b"\0\x90\x3c\x40",
    b"\x83\x60\x80\x3c\0",
    b"\0\x90\x3e\x40",
    b"\x83\x60\x3e\0",
)


def read_by_both(body: bytes) -> bool:
    """Whether a track is one for symusic; it then says what the bytes say."""
    fast, slow = midi._by_symusic(body), midi._walk(body, None)
    if fast is None:
        return False
    assert {channel: sorted(notes) for channel, notes in fast.notes.items()} == {
        channel: sorted(notes) for channel, notes in slow.notes.items()
    }
    assert (fast.name, fast.tempos, fast.signatures, fast.keys) == (slow.name, slow.tempos, slow.signatures, slow.keys)
    assert {channel for channel in slow.notes if channel in slow.programs} == set(fast.programs)
    return True


def test_a_plain_track_goes_through_symusic():
    assert read_by_both(PLAIN)
    assert midi._by_symusic(PLAIN).name == "Flute" and midi._by_symusic(PLAIN).programs == {0: [(0, 73)]}


@pytest.mark.parametrize(
    ("body", "symusics"),
    [
        (track(b"\0\x90\x3c\x40", b"\x60\x90\x3e\x40", b"\x60\x80\x3e\0"), 1),
        (
            track(
                b"\0\xc0\x01", b"\0\x90\x3c\x40", b"\x60\x80\x3c\0", b"\0\xc0\x02", b"\0\x90\x3c\x40", b"\x60\x80\x3c\0"
            ),
            2,
        ),
        (track(b"\0\x90\x3c\x40", b"\x60\x80\x3c\0", b"\0\x91\x3c\x40", b"\x60\x81\x3c\0"), 2),
        (track(b"\0\xff\x58\x04\x01\x42\x18\x08", b"\0\x90\x3c\x40", b"\x60\x80\x3c\0"), 1),
    ],
    ids=["a note that nothing ends", "a change of program", "two channels", "a denominator of 2**66"],
)
def test_what_symusic_loses_or_alters_is_read_byte_by_byte(body, symusics):
    """Of the first it drops a note in silence; the next two come back without channels; the last it calls 1/4."""
    score = symusic.Score.from_midi(file_of(body))
    assert sum(len(part.notes) for part in score.tracks) == symusics
    assert midi._by_symusic(body) is None
    assert sum(map(len, midi._walk(body, None).notes.values())) >= symusics


def test_time_that_is_counted_in_seconds_is_read_though_symusic_refuses_it():
    data = file_of(track(b"\0\x90\x3c\x40", b"\x14\x80\x3c\0"), division=0xE728)
    with pytest.raises(RuntimeError):
        symusic.Score.from_midi(data)
    assert notes_of(data) == [[(0, 1, 60)]]


def test_real_tracks_are_the_same_by_both_ways_and_most_go_through_symusic(shared_data):
    fast = total = 0
    files = sorted((shared_data / "music" / "nottingham" / "MIDI").glob("*.mid"))[::20]
    for path in [*files, *(shared_data / "music" / "pop909_sample").glob("*1.mid")]:
        for body in midi._open(path.read_bytes(), None)[-1]:
            if midi._walk(body, None).notes:
                total += 1
                fast += read_by_both(body)
    assert total > 100 and fast > 0.9 * total


def test_mutated_files_are_read_or_refused_and_the_same_by_both_ways():
    generator = np.random.default_rng(0)
    good = file_of(PLAIN, track(b"\0\x91\x3c\x40", b"\x60\x81\x3c\0"))
    for _ in range(400):
        data = bytearray(good)
        for place in generator.integers(len(data), size=generator.integers(1, 4)):
            data[place] = generator.integers(256)
        for mend in (False, True):
            try:
                found = notes_of(bytes(data), mend=mend)
            except ValueError:
                continue
            assert all(0 <= pitch < 128 for part in found for _, _, pitch in part)
        try:
            bodies = midi._open(bytes(data), None)[-1]
            for body in bodies:
                midi._walk(body, None)
        except ValueError:
            continue
        for body in bodies:
            read_by_both(body)


def test_row88_overlapping_notes_of_one_pitch_give_the_same_tokens_after_one_round_trip(tmp_path):
    """The same pitch from 0 to 90 and from 30 to 50, in ticks of 1/24 quarter."""
    body = track(b"\0\x90\x3c\x40", b"\x1e\x90\x3c\x40", b"\x14\x80\x3c\0", b"\x28\x80\x3c\0")
    (tmp_path / "first.mid").write_bytes(file_of(body, division=24))
    domain = Music()
    domain.use(domain.tokenizer([], None))
    report = Report()
    (first,) = domain.read(tmp_path / "first.mid", report)
    assert report.tallies["notes cut short where their pitch begins again"] == 1
    for number in range(2):
        domain.write(domain.decode(domain.encode(first.segments).ids), tmp_path / f"again{number}.mid")
        (again,) = domain.read(tmp_path / f"again{number}.mid", Report())
        assert domain.encode(again.segments).ids.tolist() == domain.encode(first.segments).ids.tolist()


def test_row89_no_tempo_appears_and_none_is_lost_over_segments_and_files(tmp_path):
    """A segment says the tempo in force again; a score of many segments has the changes of its file all the same."""
    tempos = "Position_24 Tempo_100 Part_0 Position_0 Pitch_60 Duration_24"
    bars = ["Bar Numerator_4 Denominator_4", *["Bar Part_0 Position_0 Pitch_62 Duration_24"] * 9]
    text = " ".join([f"{bars[0]} {tempos}", *bars[1:]])
    (document,) = _read(tmp_path, text)
    assert len(document.segments) == 3 and sum(part.count("Tempo") for part in document.segments) == 3
    assert parse(" ".join(document.segments)).tempos == [(24, 100)]


def test_row92_one_good_and_four_broken_files_are_one_piece_and_four_reasons_or_mended(tmp_path):
    good = file_of(PLAIN)
    broken = {
        "high": good.replace(b"\x90\x3c\x40", b"\x90\xc8\x40"),
        "running": file_of(track(b"\0\x3c\x40", b"\0\x90\x3c\x40", b"\x60\x80\x3c\0")),
        "key": file_of(track(b"\0\xff\x59\x02\x63\0", PLAIN[:-4])),
        "cut": good[:-5],
    }
    for name, data in {"good": good, **broken}.items():
        (tmp_path / f"{name}.mid").write_bytes(data)
    read, refused, mended = [], [], Report()
    for path in sorted(tmp_path.glob("*.mid")):
        try:
            read += [document.id for document in Music().read(path, Report())]
        except DataError as error:
            refused.append((path.stem, str(error)))
    assert read == ["good", "key"]
    assert [name for name, _ in refused] == ["cut", "high", "running"]
    assert all(f"{name}.mid: cannot be read as MIDI" in message for name, message in refused)
    with pytest.raises(DataError, match="key signatures that say nothing"):
        list(Music().read(tmp_path / "key.mid", Report(strict=True)))
    for path in sorted(tmp_path.glob("*.mid")):
        assert list(Music(MusicOptions(damaged_midi="mend")).read(path, mended)), path
    assert mended.repairs == {
        "the last chunk is cut off": 1,
        "a track breaks off": 1,
        "a data byte above 127": 1,
        "a running status without a status": 1,
    }
    assert mended.repaired_records == 3


def test_each_track_of_a_file_of_format_2_is_a_piece(tmp_path):
    (tmp_path / "two.mid").write_bytes(file_of(PLAIN, PLAIN, format_number=2))
    assert [document.id for document in Music().read(tmp_path / "two.mid", Report())] == ["two 1", "two 2"]


def test_a_midi_file_in_a_riff_wrapping_is_read():
    data = file_of(PLAIN)
    assert notes_of(b"RIFF\0\0\0\0RMIDdata\0\0\0\0" + data) == notes_of(data)


def test_a_gigantic_time_takes_no_memory(tmp_path):
    path = tmp_path / "long.mid"
    path.write_bytes(file_of(track(b"\0\x90\x3c\x40", b"\xff\xff\xff\x7f\x80\x3c\0"), division=1))
    with pytest.raises(DataError, match="lasts more than 65,536 quarters"):
        list(Music().read(path, Report()))


def test_what_a_strict_run_refuses_names_the_file(tmp_path):
    body = track(b"\0\x90\x3c\x40", b"\x07\x80\x3c\0")
    (tmp_path / "off.mid").write_bytes(file_of(body))
    with pytest.raises(DataError, match=r"off\.mid: notes moved to the grid of 1/24 quarter \(1\)"):
        list(Music().read(tmp_path / "off.mid", Report(strict=True)))


def test_a_written_chorale_and_its_midi_have_other_counts_of_notes_because_music21_unfolds_repeats():
    """The source has 247 notes, its export 325, which is what its bars sound once they are played out."""
    from music21 import common, converter

    path = common.getCorpusFilePath() / "bach" / "bwv103.6.mxl"
    score = converter.parse(path, forceSource=True, storePickle=False)
    written = sum(len(part.flatten().notes) for part in score.parts)
    data = Path(score.write("midi")).read_bytes()
    sounding = sum(len(part.notes) for part in symusic.Score.from_midi(data).tracks)
    unfolded = score.expandRepeats()
    assert (written, sounding) == (247, 325)
    assert sum(len(part.stripTies().flatten().notes) for part in unfolded.parts) == sounding
    assert sum(map(len, notes_of(data))) == sounding


def _read(folder: Path, text: str) -> list:
    Music().write(text, folder / "written.mid")
    return list(Music().read(folder / "written.mid", Report()))
