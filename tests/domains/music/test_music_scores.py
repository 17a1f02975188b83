"""Scores that music21 reads: formats by content, the cache, repeats, instruments, and files meant to do harm."""

import json
import os
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.music import Music, MusicOptions, cache, repeats, scores
from domains.music.abc_notation import read_tune
from domains.music.containers import score_format
from domains.music.piece import DRUMS, Bar, Draft, Note, Piece, parse
from seqbert.domain import Document, Report
from seqbert.errors import DataError

NAMES = dict(zip((60, 62, 64, 65, 67, 69, 71), "CDEFGAB", strict=True))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, empty at first."""
    monkeypatch.setenv("SEQBERT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(path: Path, report: Report | None = None, **options: object) -> list[Document]:
    return list(Music(MusicOptions(**options)).read(path, report or Report()))


def pitches(document: Document) -> list[int]:
    return [note.pitch for part in parse(" ".join(document.segments)).parts for note in part]


def measure(number: int, *content: str) -> str:
    return f'<measure number="{number}">{"".join(content)}</measure>'


def written(step: str, quarters: int = 4, more: str = "", attributes: str = "") -> str:
    pitch = f"<pitch><step>{step}</step><octave>4</octave></pitch>"
    return f"<note{attributes}>{pitch}<duration>{quarters}</duration>{more}</note>"


def musicxml(*measures: str, part_list: str = '<score-part id="P1"><part-name>Flute</part-name></score-part>') -> str:
    """A score of one part in 4/4, whose measures hold what is given."""
    signature = "<attributes><divisions>1</divisions><time><beats>4</beats><beat-type>4</beat-type></time></attributes>"
    bars = [measure(i, signature if i == 1 else "", content) for i, content in enumerate(measures, start=1)]
    return (
        f'<score-partwise version="4.0"><part-list>{part_list}</part-list><part id="P1">'
        + "".join(bars)
        + "</part></score-partwise>"
    )


MEI = """<?xml version="1.0" encoding="UTF-8"?>
<mei xmlns="http://www.music-encoding.org/ns/mei" meiversion="3.0.0"><music><body><mdiv><score>
<scoreDef key.sig="2s" meter.count="3" meter.unit="4">
<staffGrp><staffDef n="1" lines="5" clef.shape="G" clef.line="2"/></staffGrp></scoreDef>
<section><measure n="1"><staff n="1"><layer n="1">
<note pname="d" oct="5" dur="4"/><rest dur="4"/>
<chord dur="4"><note pname="a" oct="4"/><note pname="d" oct="5"/></chord>
</layer></staff></measure></section></score></mdiv></body></music></mei>"""


# Formats


def test_mei_is_read_with_its_meter_its_key_and_its_chords(tmp_path):
    (tmp_path / "score.mei").write_text(MEI)
    (document,) = read(tmp_path / "score.mei")
    assert document.segments == [
        "Bar Numerator_3 Denominator_4 KeySignature_2 Part_0 Position_0 Pitch_74 Duration_24 "
        "Position_48 Pitch_69 Duration_24 Pitch_74 Duration_24"
    ]


def test_a_timewise_score_gives_the_text_of_the_partwise_one(tmp_path):
    def note(step: str) -> str:
        return written(step)

    listed = "".join(f'<score-part id="P{i}"><part-name>{i}</part-name></score-part>' for i in (1, 2))
    steps = {"P1": "CE", "P2": "GA"}
    parts = "".join(
        f'<part id="{part}">{measure(1, note(first))}{measure(2, note(second))}</part>'
        for part, (first, second) in steps.items()
    )
    measures = "".join(
        measure(i + 1, *(f'<part id="{part}">{note(both[i])}</part>' for part, both in steps.items())) for i in (0, 1)
    )
    (tmp_path / "part.xml").write_text(f"<score-partwise><part-list>{listed}</part-list>{parts}</score-partwise>")
    (tmp_path / "time.xml").write_text(f"<score-timewise><part-list>{listed}</part-list>{measures}</score-timewise>")
    (partwise,), (timewise,) = read(tmp_path / "part.xml"), read(tmp_path / "time.xml")
    assert timewise.segments == partwise.segments
    assert sorted(pitches(timewise)) == [60, 64, 67, 69]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("abc", b"X:1\nK:C\nCDE|\n"),
        ("musicxml", musicxml(written("C")).encode()),
        ("musicxml", musicxml(written("C")).encode("utf-16")),
        ("mei", MEI.encode()),
        ("humdrum", b"**kern\n*M4/4\n=1\n4c\n4d\n2e\n==\n*-\n"),
        ("midi", b"MThd\0\0\0\6\0\0\0\1\0\x60MTrk\0\0\0\x0c\0\x90\x3c\x40\x60\x80\x3c\0\0\xff\x2f\0"),
    ],
)
@pytest.mark.parametrize("name", ["score", "score.txt", "score.mid", "score.abc"])
def test_a_score_is_told_from_its_content_whatever_its_file_is_called(tmp_path, kind, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    assert score_format(path) == kind
    assert Music().reads(path)
    (document,) = read(path)
    assert pitches(document)[0] in (60, 74)


def test_an_archive_without_an_ending_is_a_score_if_it_holds_one(tmp_path):
    for name, holds in (("score.musicxml", True), ("notes.txt", False)):
        path = tmp_path / name.replace(".", "_")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, musicxml(written("C")))
        assert Music().reads(path) == holds


# Files that are meant to do harm: rows 94 and 100


@pytest.mark.parametrize("content", [musicxml(written("C")), MEI], ids=["MusicXML", "MEI"])
@pytest.mark.parametrize(
    "declared",
    ['<!ENTITY a SYSTEM "file://{secret}">', '<!ENTITY % a SYSTEM "file://{secret}"> %a;', '<!ENTITY a "b">'],
)
def test_row94_xml_that_declares_entities_is_refused_and_reaches_no_file(tmp_path, content, declared):
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    root = "mei" if "<mei" in content else "score-partwise"
    head, _, rest = content.partition(f"<{root}")
    doctype = f"<!DOCTYPE {root} [{declared.format(secret=secret)}]>"
    (tmp_path / "evil.xml").write_text(f"{head}{doctype}<{root}{rest}".replace("Flute", "&a;"))
    with pytest.raises(DataError, match=r"evil\.xml: declares the XML entity") as error:
        read(tmp_path / "evil.xml")
    assert "the secret" not in str(error.value)


def test_row94_a_thousand_million_laughs_are_refused_at_once(tmp_path):
    entities = '<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    score = musicxml(written("C")).replace("Flute", "&l9;")
    (tmp_path / "evil.musicxml").write_text(f"<!DOCTYPE score-partwise [{entities}]>{score}")
    with pytest.raises(DataError, match=r"evil\.musicxml: declares the XML entity 'l0'"):
        read(tmp_path / "evil.musicxml")


def test_row94_a_dtd_that_is_only_named_is_never_loaded(tmp_path):
    (tmp_path / "score.dtd").write_text('<!ENTITY a "b"> this is no DTD')
    doctype = f'<!DOCTYPE score-partwise SYSTEM "file://{tmp_path}/score.dtd">'
    (tmp_path / "score.musicxml").write_text(doctype + musicxml(written("C")))
    assert len(read(tmp_path / "score.musicxml")) == 1


@pytest.mark.parametrize(
    "name", ["../../x.xml", "a/../../x.xml", "/x.xml", "\\x.xml", "..\\..\\x.xml", "C:\\x.xml", "C:x.xml"]
)
@pytest.mark.parametrize("beside", [True, False], ids=["beside a score", "as the score"])
def test_row100_an_archive_with_a_member_that_leads_out_of_it_is_refused(tmp_path, name, beside):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    path = inner / "evil.mxl"
    with zipfile.ZipFile(path, "w") as archive:
        if beside:
            archive.writestr("score.xml", musicxml(written("C")))
        archive.writestr(zipfile.ZipInfo(name), musicxml(written("C")))
    with pytest.raises(DataError, match=r"evil\.mxl: a member is called .*, a path out of the archive"):
        read(path)
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


def test_row100_an_archive_with_a_link_is_refused(tmp_path):
    link = zipfile.ZipInfo("score.xml")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "evil.mxl", "w") as archive:
        archive.writestr(link, "/etc/hostname")
    with pytest.raises(DataError, match=r"evil\.mxl: the member 'score\.xml' is a link"):
        read(tmp_path / "evil.mxl")


def test_row100_a_container_that_names_a_file_outside_is_not_followed(tmp_path):
    """The root file is taken from the members; here the first XML is."""
    secret = tmp_path / "secret.xml"
    secret.write_text(musicxml(written("G")))
    with zipfile.ZipFile(tmp_path / "score.mxl", "w") as archive:
        archive.writestr("META-INF/container.xml", f'<container><rootfile full-path="{secret}"/></container>')
        archive.writestr("score.xml", musicxml(written("C")))
    (document,) = read(tmp_path / "score.mxl")
    assert pitches(document) == [60]


# The cache


def microtones() -> str:
    """A score that the readers remark on: a quarter tone, and a part that the part list lacks."""
    quarter_tone = written("D").replace("</step>", "</step><alter>0.5</alter>")
    return musicxml(written("C"), quarter_tone, part_list='<score-part id="P9"><part-name>x</part-name></score-part>')


def forget_music21(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> None:
        raise AssertionError("the score was parsed again")

    monkeypatch.setattr(scores, "_drafts", parse)


def test_a_second_reading_gives_the_same_documents_and_counts_without_parsing(tmp_path, monkeypatch):
    path = tmp_path / "score.musicxml"
    path.write_text(microtones())
    first, second = Report(), Report()
    documents = read(path, first)
    forget_music21(monkeypatch)
    again = read(path, second)
    assert [vars(d) if hasattr(d, "__dict__") else d for d in again] == [
        vars(d) if hasattr(d, "__dict__") else d for d in documents
    ]
    assert second.to_json() == first.to_json()
    assert first.repaired_records == 1 and first.tallies["microtones rounded to a semitone"] == 1


def test_other_options_that_work_on_parsed_scores_are_served_from_the_cache(tmp_path, monkeypatch):
    path = tmp_path / "score.musicxml"
    path.write_text(musicxml(written("C", 1), written("D")))
    read(path)
    forget_music21(monkeypatch)
    for options in ({"bars_per_segment": 1}, {"grid": 4}, {"velocity": 8}, {"instruments": True}, {"parts": "merged"}):
        assert read(path, **options)
    with pytest.raises(DataError, match="parsed again"):
        read(path, repeats="unfold")


def test_a_moved_file_is_served_from_the_cache_and_told_of_by_its_new_name(tmp_path, monkeypatch):
    path, moved = tmp_path / "score.musicxml", tmp_path / "elsewhere.xml"
    path.write_text(microtones())
    read(path)
    forget_music21(monkeypatch)
    path.rename(moved)
    report = Report()
    (document,) = read(moved, report)
    assert document.source == str(moved)
    assert {source for sources in report.examples.values() for source in sources} == {str(moved)}


def test_a_strict_reading_from_the_cache_is_the_error_that_it_was(tmp_path, monkeypatch):
    path = tmp_path / "score.musicxml"
    path.write_text(microtones())
    errors = []
    for _ in range(2):
        with pytest.raises(DataError, match=r"score\.musicxml") as error:
            read(path, Report(strict=True))
        errors.append(str(error.value))
        forget_music21(monkeypatch)
    assert errors[0] == errors[1]


def test_a_changed_file_is_parsed_anew(tmp_path):
    path = tmp_path / "score.musicxml"
    for step in "CD":
        status = path.stat() if path.exists() else None
        path.write_text(musicxml(written(step)))
        if status is not None:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        (document,) = read(path)
        assert NAMES[pitches(document)[0]] == step


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"\xff" * len(data),
        lambda data: zlib.compress(b"[]"),
        lambda data: zlib.compress(b'{"drafts": [[{}, {}, []]], "said": [], "source": ""}'),
        lambda data: zlib.compress(json.dumps(json.loads(zlib.decompress(data)) | {"drafts": 3}).encode()),
    ],
    ids=["empty", "cut off", "no zlib", "no entry", "half an entry", "another type"],
)
def test_a_damaged_entry_is_parsed_anew_and_made_whole(tmp_path, folder, damage):
    path = tmp_path / "score.musicxml"
    path.write_text(microtones())
    documents = read(path)
    (entry,) = (found for found in folder.rglob("*") if found.is_file())
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert [d.segments for d in read(path)] == [d.segments for d in documents]
    assert entry.read_bytes() == whole


def test_the_cache_is_bounded_and_gives_up_what_was_not_used_for_longest(folder, monkeypatch):
    monkeypatch.setattr(cache, "_SHELVES", 1)
    monkeypatch.setattr(cache, "LARGEST", 1000)

    def keep(name: bytes) -> bool:
        """Whether the entry had to be made."""
        made: list[bytes] = []

        def make(report: Report) -> cache.Drafts:
            made.append(name)
            return [(Draft(), {"title": name.hex()}, [])]

        cache.parsed(name, (), make, "file", Report())
        return bool(made)

    names = [bytes([i]) * 100 for i in range(20)]
    for age, name in enumerate(names):
        assert keep(name)
        for entry in folder.rglob("*.z"):  # as if a second had gone by
            status = entry.stat()
            os.utime(entry, (status.st_mtime - 1, status.st_mtime - 1))
        assert not keep(names[0]), age  # used all the time, and so never given up
    assert sum(entry.stat().st_size for entry in folder.rglob("*.z")) <= 1000
    assert keep(names[1])


def test_a_cache_that_cannot_be_written_to_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SEQBERT_CACHE", str(tmp_path / "file"))
    (tmp_path / "score.musicxml").write_text(musicxml(written("C")))
    assert len(read(tmp_path / "score.musicxml")) == 1


# Repeats


def played(body: str, head: str = "X:1\nM:4/4\nL:1/4\n") -> str:
    """The notes of a tune whose repeats are played out, by name."""
    draft, _, repairs = read_tune(f"{head}K:C\n{body}\n", "unfold")
    assert not repairs
    return "".join(NAMES[note[2]] for note in draft.parts[0])


@pytest.mark.parametrize(
    ("body", "sounds"),
    [
        ("C4|D4:|E4|", "CDCDE"),
        ("|:C4|D4::E4|F4:|", "CDCDEFEF"),
        ("C4||D4:|", "CDD"),
        ("|:C4|1D4:|2E4|F4|", "CDCEF"),
        ("|:C4|[1 D4:|[2 E4|]", "CDCE"),
        ("|:C4|1,3 D4:|2 E4:|", "CDCECD"),
        ("|:C4|1-3 D4:|4 E4|]", "CDCDCDCE"),
        ("|::C4::|D4|", "CCCD"),
        ("C4|D4!fine!|E4|F4!D.C.!|", "CDEFCD"),
        ("C4|!segno!D4|E4!D.S.!|", "CDEDE"),
        ("!segno!C4|D4!coda!|E4!D.S.!|!coda!F4|", "CDECDF"),
        ("|:C4:|D4!D.C.!|", "CCDCD"),
        ("C4|!segno!D4!D.S.!|E4|", "CDDE"),
    ],
)
def test_repeats_of_abc_are_played_out_where_that_is_asked_for(body, sounds):
    assert played(body) == sounds


def test_the_parts_of_a_tune_are_played_in_the_order_of_its_header():
    assert played("P:A\nC4|D4|\nP:B\nE4|", "X:1\nP:A2(BA)2\nM:4/4\nL:1/4\n") == "CDCDECDECD"


def test_repeats_are_taken_as_written_unless_they_are_to_be_unfolded(tmp_path):
    (tmp_path / "tune.abc").write_text("X:1\nM:4/4\nL:1/4\nK:C\n|:C4|1 D4:|2 E4|\n")
    score = musicxml(
        '<barline location="left"><repeat direction="forward"/></barline>' + written("C"),
        '<barline location="left"><ending number="1" type="start"/></barline>'
        + written("D")
        + '<barline location="right"><ending number="1" type="stop"/><repeat direction="backward"/></barline>',
        '<barline location="left"><ending number="2" type="start"/></barline>'
        + written("E")
        + '<barline location="right"><ending number="2" type="discontinue"/></barline>',
    )
    (tmp_path / "score.musicxml").write_text(score)
    for name in ("tune.abc", "score.musicxml"):
        (as_written,), (unfolded,) = read(tmp_path / name), read(tmp_path / name, repeats="unfold")
        assert [NAMES[pitch] for pitch in pitches(as_written)] == list("CDE")
        assert [NAMES[pitch] for pitch in pitches(unfolded)] == list("CDCE")
        assert " ".join(unfolded.segments).count("Bar") == 4


@pytest.mark.parametrize("body", ["C4|1D4:|3E4|", "C4!D.S.!|D4|", "|:C4|1D4:|9999E4|"])
def test_repeats_that_make_no_sense_are_left_as_written_and_told(tmp_path, body):
    (tmp_path / "tune.abc").write_text(f"X:1\nM:4/4\nL:1/4\nK:C\n{body}\n")
    report = Report()
    (unfolded,) = read(tmp_path / "tune.abc", report, repeats="unfold")
    (as_written,) = read(tmp_path / "tune.abc")
    assert unfolded.segments == as_written.segments
    assert dict(report.repairs) == {repeats.REPEATS_KEPT: 1}


@pytest.mark.parametrize(
    "barline",
    [
        '<barline location="left"><repeat direction="forward"/></barline>',
        '<barline location="right"><repeat direction="backward" times="1000000000"/></barline>',
    ],
    ids=["a repeat that nothing ends", "a thousand million times"],
)
def test_repeats_of_a_score_that_make_no_sense_are_left_as_written_and_told(tmp_path, barline):
    left, right = (barline, "") if "left" in barline else ("", barline)
    (tmp_path / "score.musicxml").write_text(musicxml(written("C"), left + written("D") + right, written("E")))
    report = Report()
    (document,) = read(tmp_path / "score.musicxml", report, repeats="unfold")
    assert [NAMES[pitch] for pitch in pitches(document)] == list("CDE")
    assert dict(report.repairs) == {repeats.REPEATS_KEPT: 1}


@settings(max_examples=150, deadline=None)
@given(st.text("CDE|:12[]! ", max_size=40))
def test_no_signs_of_repetition_lose_a_note_or_fail(signs):
    """Unfolding plays every note that is written, or leaves the tune as it is and says so."""
    tune = f"X:1\nM:4/4\nL:1/4\nK:C\n{signs}\n"
    as_written, unfolded = read_tune(tune)[0], read_tune(tune, "unfold")[0]
    once, sounding = ([{note[2] for note in part} for part in draft.parts] for draft in (as_written, unfolded))
    assert sounding == once
    assert unfolded.end >= as_written.end


# Parts and instruments


def test_programs_and_velocities_are_read_from_a_score(tmp_path):
    listed = (
        '<score-part id="P1"><part-name>Cello</part-name>'
        '<score-instrument id="I1"><instrument-name>Violoncello</instrument-name></score-instrument>'
        '<midi-instrument id="I1"><midi-channel>1</midi-channel><midi-program>43</midi-program></midi-instrument>'
        "</score-part>"
    )
    loud = musicxml(written("C", attributes=' dynamics="100"'), written("D"), part_list=listed)
    (tmp_path / "score.musicxml").write_text(loud)
    (document,) = read(tmp_path / "score.musicxml", velocity=127, instruments=True)
    assert document.segments == [
        "Bar Numerator_4 Denominator_4 Part_0 Program_42 Position_0 Pitch_60 Velocity_90 Duration_96 "
        "Bar Part_0 Position_0 Pitch_62 Duration_96"
    ]


@pytest.mark.parametrize("program", [0, 40, 56, 66, 71, 127])
def test_velocities_and_programs_survive_musicxml_also_of_transposing_instruments(tmp_path, program):
    options = {"velocity": 32, "instruments": True}
    domain = Music(MusicOptions(**options))
    notes = [
        Note(0, 24, 60, 63),
        Note(0, 24, 64, 127),
        Note(0, 24, 67, 127),
        Note(24, 0, 62, 31),
        Note(24, 120, 67, 95),
    ]
    piece = Piece([Bar(0, 96, (4, 4), 0), Bar(96, 96, (4, 4), 0)], [notes, [Note(0, 24, 50)]], [(0, 120)], [program])
    text = " ".join(piece.segments(4, domain.options.wording))
    domain.write(text, tmp_path / "score.musicxml")
    (document,) = read(tmp_path / "score.musicxml", **options)
    assert document.segments == [text]


def test_a_part_list_that_lacks_parts_is_a_repair_and_loses_no_note(tmp_path):
    (tmp_path / "score.musicxml").write_text(microtones())
    report = Report()
    (document,) = read(tmp_path / "score.musicxml", report)
    assert len(pitches(document)) == 2
    assert dict(report.repairs) == {"parts that the part list lacks read all the same": 1}


def test_ties_that_nothing_ends_leave_the_notes_apart(tmp_path):
    start = '<tie type="start"/>'
    (tmp_path / "score.musicxml").write_text(musicxml(written("F", more=start), written("F", more=start)))
    (document,) = read(tmp_path / "score.musicxml")
    assert [tuple(note)[:3] for note in parse(document.segments[0]).parts[0]] == [(0, 96, 65), (96, 96, 65)]


DRUM_KIT = """<score-part id="P1"><part-name>Drumset</part-name>
<score-instrument id="I36"><instrument-name>Kick</instrument-name></score-instrument>
<score-instrument id="I38"><instrument-name>Snare</instrument-name></score-instrument>
<midi-instrument id="I36"><midi-channel>10</midi-channel><midi-unpitched>37</midi-unpitched></midi-instrument>
<midi-instrument id="I38"><midi-channel>10</midi-channel><midi-unpitched>39</midi-unpitched></midi-instrument>
</score-part>"""


def drum(instrument: str, chord: bool = False) -> str:
    """An unpitched note as notation programs write it."""
    played = f'<instrument id="{instrument}"/>' if instrument else ""
    return f"<note>{'<chord/>' * chord}<unpitched/><duration>2</duration>{played}</note>"


def test_drums_of_a_score_are_kept_by_option_and_else_counted(tmp_path):
    kit = musicxml(drum("I36") + drum("I38", chord=True) + drum("I38"), drum(""), part_list=DRUM_KIT)
    (tmp_path / "drums.musicxml").write_text(kit)
    report = Report()
    (document,) = read(tmp_path / "drums.musicxml", report, drums="keep")
    assert document.segments == [
        "Bar Numerator_4 Denominator_4 Part_0 Position_0 Drum_36 Duration_48 Drum_38 Duration_48 "
        "Position_48 Drum_38 Duration_48 Bar Length_48"
    ]
    assert dict(report.tallies) == {"unpitched notes left out, because the score does not say which drum": 1}
    report = Report()
    assert read(tmp_path / "drums.musicxml", report) == []
    assert dict(report.skips) == {"no notes but drums": 1}


def test_drums_survive_musicxml(tmp_path):
    options = {"velocity": 32, "drums": "keep"}
    domain = Music(MusicOptions(**options))
    kit = [Note(0, 24, 36, 95), Note(0, 24, 38, 95), Note(0, 12, 42, 63), Note(48, 96, 49, 127)]
    bars = [Bar(0, 96, (4, 4), 0), Bar(96, 96, (4, 4), 0)]
    text = " ".join(Piece(bars, [[Note(0, 24, 60, 63)], kit], [], [None, DRUMS]).segments(4, domain.options.wording))
    domain.write(text, tmp_path / "score.musicxml")
    (document,) = read(tmp_path / "score.musicxml", **options)
    assert document.segments == [text]
