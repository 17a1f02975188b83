"""The domain as a whole: tokens, units, files of all formats, and the way back to a score."""

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from domains.music import Music, MusicOptions, score
from domains.music.alphabet import words
from domains.music.piece import parse
from domains.music.scores import draft_of
from seqbert.domain import SPECIAL_TOKENS, Document, Report
from seqbert.errors import ConfigError, DataError

TEXT = (
    "Bar Numerator_3 Denominator_4 Length_24 KeySignature_2 Part_0 Position_0 Pitch_69 Duration_24 "
    "Bar Part_0 Position_0 Pitch_74 Duration_72 "
    "Part_1 Position_0 Pitch_50 Duration_36 Position_36 Pitch_57 Duration_36"
)
PARTWISE = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE score-partwise PUBLIC "-//Recordare//DTD MusicXML 3.1 Partwise//EN" "http://a.invalid/p.dtd">
<score-partwise version="3.1">
<part-list><score-part id="P1"><part-name>Flute</part-name></score-part></part-list>
<part id="P1"><measure number="1"><attributes><divisions>1</divisions>
<time><beats>2</beats><beat-type>4</beat-type></time></attributes><note><pitch><step>C</step><octave>4</octave></pitch><duration>2</duration>
<type>half</type></note>
</measure></part></score-partwise>
"""
PARTWISE_TEXT = "Bar Numerator_2 Denominator_4 Part_0 Position_0 Pitch_60 Duration_48"


@pytest.fixture
def music() -> Music:
    domain = Music()
    domain.use(domain.tokenizer([], None))
    return domain


def read(music: Music, path: Path, report: Report | None = None) -> list[Document]:
    return list(music.read(path, report or Report()))


def corpus(*names: str) -> list[Path]:
    """Scores that come with music21."""
    from music21 import common

    return [common.getCorpusFilePath() / name for name in names]


# Tokens


def test_the_vocabulary_is_the_special_tokens_and_the_alphabet(music):
    assert music.vocabulary.get_vocab_size() == len(SPECIAL_TOKENS) + len(words())
    assert [music.vocabulary.id_to_token(index) for index in range(6)] == [*SPECIAL_TOKENS, "Bar"]


def test_a_smaller_vocabulary_is_an_error_that_names_the_least(music):
    least = music.vocabulary.get_vocab_size()
    assert music.tokenizer([], least).to_str() == music.vocabulary.to_str()
    with pytest.raises(ConfigError, match=rf"vocab_size is 64, .* has {least} words"):
        music.tokenizer([], 64)


def test_encode_gives_the_tokenizers_own_ids_and_offsets(music):
    texts = [TEXT, "", "Bar  Rumba_7 [MASK] [CLS]", "Pitch_60 Bar Bar"]
    encoded = music.encode(texts)
    for text, ids, spans in zip(
        texts, _split(encoded.ids, encoded.lengths), _split(encoded.offsets, encoded.lengths), strict=True
    ):
        expected = music.vocabulary.encode(text, add_special_tokens=False)
        assert ids.tolist() == expected.ids
        assert [tuple(span) for span in spans.tolist()] == expected.offsets
    assert music.encode(texts, offsets=False).offsets is None


def test_raw_text_cannot_produce_special_tokens(music):
    unknown = music.vocabulary.token_to_id("[UNK]")
    assert music.encode(["[MASK] [PAD] [SEP]"]).ids.tolist() == [unknown] * 3


def test_units_count_the_bars_of_each_text_from_zero(music):
    encoded = music.encode(["Bar Part_0 Bar Part_0", "Part_0 Position_0 Bar Part_0", "", "Bar"])
    assert music.unit == "bar"
    assert encoded.units.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0]


def test_decode_gives_the_text_back(music):
    assert music.decode(music.encode([TEXT]).ids) == TEXT


def test_bits_are_counted_over_notes(music):
    assert [music.symbols(word) for word in ("Pitch_60", "Bar", "Duration_24")] == [1, 0, 0]
    assert music.symbols(TEXT) == 4


def test_row96_a_piece_has_the_same_ids_from_a_file_a_table_and_its_canonical_text(music, tmp_path):
    tune = "X:1\nT:Pick-up\nM:3/4\nL:1/4\nK:D\nA|d3|f>e d|\n"
    (tmp_path / "tune.abc").write_text(tune)
    (document,) = read(music, tmp_path / "tune.abc")
    from_file = music.encode([" ".join(document.segments)]).ids
    assert music.encode([music.canonical(tune)]).ids.tolist() == from_file.tolist()
    assert music.encode([music.canonical(" ".join(document.segments))]).ids.tolist() == from_file.tolist()


def test_a_tune_in_a_table_that_cannot_be_read_is_an_error_that_shows_it(music):
    with pytest.raises(DataError, match=r"Z99999|rest of 99999 bars"):
        music.canonical("X:1\nK:C\nZ99999\n")


# Segments


def test_segments_are_whole_bars_that_say_what_is_in_force(tmp_path):
    (tmp_path / "tune.abc").write_text("X:1\nM:2/4\nQ:1/4=100\nL:1/4\nK:G\ncd|ef|ga|\n")
    (document,) = read(Music(MusicOptions(bars_per_segment=2)), tmp_path / "tune.abc")
    assert document.segments[1].startswith("Bar Numerator_2 Denominator_4 KeySignature_1 Position_0 Tempo_100 Part_0")
    assert [segment.count("Bar") for segment in document.segments] == [2, 1]


def test_a_segment_without_bars_is_an_error():
    with pytest.raises(ConfigError, match="bars_per_segment is 0"):
        MusicOptions(bars_per_segment=0)


# Transposition


def test_transposition_shifts_every_pitch_and_the_key_by_the_same_semitones(music):
    transpose = music.augmentations()["transposition"]
    ids = music.encode([TEXT]).ids
    seen = set()
    for seed in range(200):
        shifted, source = transpose(ids, None, np.random.default_rng(seed))
        moved = parse(music.decode(shifted))
        shift = moved.parts[0][0].pitch - 69
        assert [[n.pitch - shift for n in part] for part in moved.parts] == [[69, 74], [50, 57]]
        assert (moved.bars[0].sharps - 2 - 7 * shift) % 12 == 0
        assert source.tolist() == list(range(len(ids)))
        seen.add(shift)
    assert seen == set(range(-5, 7))


def test_transposition_stays_within_the_alphabet(music):
    transpose = music.augmentations()["transposition"]
    ids = music.encode(["Pitch_0 Pitch_127 [MASK]"]).ids
    for seed in range(20):
        assert transpose(ids, None, np.random.default_rng(seed))[0].tolist() == ids.tolist()


# The way back to a score


def test_chorales_come_back_whole_from_a_music21_score():
    music = Music()
    for path in corpus("bach/bwv66.6.mxl", "bach/bwv277.krn", "bach/bwv269.mxl"):
        (document,) = read(music, path)
        text = " ".join(document.segments)
        report = Report()
        again = draft_of(score(text), report).settle("", report)
        assert again.segments(4) == document.segments


def test_row95_pitches_and_onsets_of_a_chorale_are_music21s_own():
    from music21 import converter

    (path,) = corpus("bach/bwv66.6.mxl")
    (document,) = read(Music(), path)
    piece = parse(" ".join(document.segments))
    parsed = converter.parse(path, forceSource=True, storePickle=False)
    for part, notes in zip(parsed.parts, piece.parts, strict=True):
        theirs = [(n.offset * 24, n.quarterLength * 24, n.pitch.midi) for n in part.flatten().stripTies().notes]
        assert [note[:3] for note in notes] == theirs


@pytest.mark.parametrize("ending", [".musicxml", ".xml", ".mid", ".midi"])
def test_a_written_file_is_read_back_with_the_same_notes(music, tmp_path, ending):
    path = tmp_path / f"out{ending}"
    music.write(TEXT, path)
    (document,) = read(music, path)
    again = parse(" ".join(document.segments))
    assert again.parts == parse(TEXT).parts
    assert [bar.length for bar in again.bars] == [24, 72]


def test_an_unknown_ending_to_write_is_an_error_that_names_the_known(music, tmp_path):
    with pytest.raises(DataError, match=r"\.mid, \.midi.*\.musicxml"):
        music.write(TEXT, tmp_path / "out.pdf")


def test_text_that_a_model_made_up_is_written_as_far_as_it_makes_sense(music, tmp_path):
    music.write("Duration_3 Bar [MASK] Pitch_60 Pitch_62 Duration_24 Denominator_4 Position_900", tmp_path / "a.mid")
    (document,) = read(music, tmp_path / "a.mid")
    assert [n[:3] for n in parse(document.segments[0]).parts[0]] == [(0, 24, 62)]
    with pytest.raises(DataError, match='no word "Bar"'):
        music.write("nothing here", tmp_path / "b.mid")


def test_real_tunes_come_back_whole_through_musicxml_and_midi(music, shared_data, tmp_path):
    """At least 99 notes of 100, and here all of them, keep pitch, onset and duration."""
    (book,) = [shared_data / "music" / "nottingham" / "ABC_cleaned" / "slip.abc"]
    documents = read(music, book)[:6]
    assert documents
    for document in documents:
        text = " ".join(document.segments)
        for name in ("tune.musicxml", "tune.mid"):
            music.write(text, tmp_path / name)
            (again,) = read(music, tmp_path / name)
            assert parse(" ".join(again.segments)).parts == parse(text).parts
        (again,) = read(music, tmp_path / "tune.musicxml")
        assert again.segments == document.segments


def test_performed_midi_comes_back_whole(music, shared_data, tmp_path):
    report = Report()
    (document,) = read(music, shared_data / "music" / "pop909_sample" / "001.mid", report)
    music.write(" ".join(document.segments), tmp_path / "again.mid")
    (again,) = read(music, tmp_path / "again.mid")
    assert again.segments == document.segments
    assert report.tallies["notes moved to the grid of 1/24 quarter"] > 0


# Files


def test_an_xml_file_is_taken_only_where_it_holds_a_score(tmp_path):
    (tmp_path / "score.xml").write_text(PARTWISE)
    (tmp_path / "other.xml").write_text("<html/>")
    assert Music().reads(tmp_path / "score.xml")
    assert not Music().reads(tmp_path / "other.xml")
    assert not Music().reads(tmp_path / "tune.txt")


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", partial(pyarrow.compress, codec="zstd", asbytes=True)),
    ],
)
def test_a_compressed_score_is_read_or_refused_where_it_is_cut_off(music, tmp_path, ending, compress):
    path = tmp_path / f"score.xml{ending}"
    path.write_bytes(compress(PARTWISE.encode()))
    assert music.reads(path)
    (document,) = read(music, path)
    assert (document.id, document.segments) == ("score", [PARTWISE_TEXT])
    path.write_bytes(compress(b"<html/>"))
    assert not music.reads(path)
    cut = tmp_path / f"cut.xml{ending}"
    cut.write_bytes(compress(PARTWISE.encode())[:-5])
    with pytest.raises(DataError, match=rf"cut\.xml{ending}: cannot be read \("):
        read(music, cut)


@pytest.mark.parametrize("name", ["bach/bwv66.6.mxl", "bach/bwv277.krn", "ryansMammoth/AcaciaReel.abc"])
def test_a_gzipped_score_gives_the_documents_of_the_plain_one(music, tmp_path, name):
    (source,) = corpus(name)
    path = tmp_path / f"{source.name}.gz"
    path.write_bytes(gzip.compress(source.read_bytes()))
    assert music.reads(path)
    documents, plain = read(music, path), read(music, source)
    assert documents
    assert [(d.id, d.segments, d.metadata) for d in documents] == [(d.id, d.segments, d.metadata) for d in plain]


def test_what_a_compressed_score_unpacks_to_is_bounded(music, tmp_path, monkeypatch):
    monkeypatch.setattr("domains.music.containers.LARGEST_SCORE", 2**20)
    path = tmp_path / "bomb.abc.gz"
    path.write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(DataError, match=r"bomb\.abc\.gz: larger than 1 MiB"):
        read(music, path)


def mxl(path: Path, members: dict[str, bytes | str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "members",
    [
        {".xml": PARTWISE},
        {"cover.png": b"\x89PNG", "score.xml": PARTWISE},
        {
            "aaa.xml": "<other/>",
            "META-INF/container.xml": '<container><rootfile full-path="b/s.xml"/></container>',
            "b/s.xml": PARTWISE,
        },
    ],
    ids=["a nameless member", "a picture first, no container", "a container"],
)
def test_row94_the_root_file_of_an_archive_is_found(music, tmp_path, members):
    (document,) = read(music, mxl(tmp_path / "score.mxl", members))
    assert document.segments == [PARTWISE_TEXT]


@pytest.mark.parametrize("name", ["../../x.xml", "/x.xml", "..\\x.xml"])
def test_row100_a_member_that_leads_out_of_its_archive_is_an_error(music, tmp_path, name):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    path = mxl(folder / "evil.mxl", {name: PARTWISE})
    with pytest.raises(DataError, match=r"evil\.mxl: a member is called"):
        read(music, path)
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


def test_a_zip_bomb_is_an_error(music, tmp_path, monkeypatch):
    monkeypatch.setattr("domains.music.containers.LARGEST_SCORE", 2**20)
    path = mxl(tmp_path / "bomb.mxl", {"score.xml": b" " * 2**24})
    assert path.stat().st_size < 2**16
    with pytest.raises(DataError, match=r"bomb\.mxl: 'score\.xml' is larger than 1 MiB when unpacked"):
        read(music, path)


@pytest.mark.parametrize("ending", [".xml", ".mxl"])
def test_xml_entities_are_refused(music, tmp_path, ending):
    evil = PARTWISE.replace('"http://a.invalid/p.dtd">', '"x" [<!ENTITY a SYSTEM "file:///etc/hostname">]>').replace(
        "Flute", "&a;"
    )
    path = tmp_path / f"evil{ending}"
    if ending == ".mxl":
        mxl(path, {"score.xml": evil})
    else:
        path.write_text(evil)
    with pytest.raises(DataError, match=r"evil.*declares the XML entity 'a'"):
        read(music, path)


@pytest.mark.parametrize("ending", [".abc", ".musicxml", ".xml", ".mxl", ".krn", ".mid"])
@pytest.mark.parametrize("data", [b"", bytes(range(256)) * 4, b"plain words"], ids=["empty", "binary", "text"])
def test_a_broken_file_is_an_error_that_names_it(music, tmp_path, ending, data):
    path = tmp_path / f"broken{ending}"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"broken{ending}"):
        read(music, path)


def test_a_missing_file_is_an_error_that_names_it(music, tmp_path):
    with pytest.raises(DataError, match=r"gone\.krn: cannot be read \(No such file"):
        read(music, tmp_path / "gone.krn")


def test_hostile_files_give_documents_or_say_why_not(music, shared_data, capfd):
    for path in sorted((shared_data / "hostile" / "music").iterdir()):
        report = Report()
        try:
            documents = read(music, path, report)
        except DataError as error:
            assert str(path) in str(error)
        else:
            assert len(documents) + report.skipped_records == 1, path
    assert capfd.readouterr() == ("", "")


def test_damaged_scores_never_raise_anything_but_a_data_error(music, tmp_path):
    generator = np.random.default_rng(0)
    sources = [*corpus("bach/bwv66.6.mxl", "bach/bwv277.krn"), None]
    for source in sources:
        data = source.read_bytes() if source else PARTWISE.encode()
        path = tmp_path / f"damaged{source.suffix if source else '.musicxml'}"
        for trial in range(12):
            damaged = bytearray(data)
            if trial % 2:
                del damaged[generator.integers(len(data)) :]
            for place in generator.integers(len(damaged), size=3) if damaged else ():
                damaged[place] = generator.integers(256)
            path.write_bytes(bytes(damaged))
            try:
                read(music, path)
            except DataError as error:
                assert str(path) in str(error)


def test_transposing_instruments_sound_where_they_sound(music, tmp_path):
    """A clarinet in B flat that reads C sounds B flat: two semitones lower."""
    attributes = "<transpose><diatonic>-1</diatonic><chromatic>-2</chromatic></transpose></attributes>"
    (tmp_path / "clarinet.xml").write_text(PARTWISE.replace("</attributes>", attributes))
    (document,) = read(music, tmp_path / "clarinet.xml")
    assert "Pitch_58" in document.segments[0]


# The sample, and what an import costs


def test_the_sample_is_real_tunes_in_one_order(music):
    sample = music.sample()
    assert len(sample.files) == 353
    assert list(sample.files) == sorted(sample.files)
    report = Report()
    documents = [document for path in sample.files[:20] for document in music.read(path, report)]
    assert len(documents) == 20
    assert (music.encode([" ".join(document.segments) for document in documents]).ids != 1).all()


def test_importing_the_plugin_imports_no_music21():
    code = (
        "import sys, json; import domains.music; music = domains.music.Music(); music.sample(); "
        "print(json.dumps([name for name in ('music21', 'torch', 'pandas') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def _split(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(values, np.cumsum(lengths)[:-1])
