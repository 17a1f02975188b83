"""What text says by option, merged tokens, transposition, and pieces made at random."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.music import Music, MusicOptions, score
from domains.music.alphabet import DRUMS, FOLLOWS, bar_ticks, kind_of, signature_of, velocity_of_bin, words
from domains.music.midi import read_midi, to_midi
from domains.music.piece import Bar, Note, Piece, Wording, parse
from domains.music.transposition import semitones_of, within
from seqbert.domain import SPECIAL_TOKENS, Report
from seqbert.errors import ConfigError, DomainError

EVERYTHING = MusicOptions(velocity=32, instruments=True, drums="keep")
PLAYED = (
    "Bar Numerator_4 Denominator_4 Position_0 Tempo_96 Part_0 Program_40 Position_0 Pitch_60 Velocity_63 Duration_24 "
    "Position_24 Pitch_64 Velocity_127 Duration_72 Part_1 Position_0 Drum_38 Velocity_95 Duration_6"
)


def music_of(options: MusicOptions, texts: tuple[str, ...] = ()) -> Music:
    domain = Music(options)
    domain.use(domain.tokenizer(texts, None))
    return domain


# Pieces at random


@st.composite
def pieces(draw: st.DrawFn, velocities: bool = False, programs: bool = False) -> Piece:
    """Pieces as settling gives them: any meters, notes over bar lines, chords and grace notes, in several parts."""
    bars: list[Bar] = []
    start = 0
    signature: tuple[int, int] | None = None
    sharps: int | None = None
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            signature = draw(st.tuples(st.integers(1, 17), st.sampled_from((2, 4, 8, 16))))
        if draw(st.booleans()):
            sharps = draw(st.integers(-7, 7))
        regular = signature is not None and draw(st.booleans())
        length = bar_ticks(signature) if regular and signature else draw(st.integers(1, 500))
        bars.append(Bar(start, length, signature, sharps))
        start += length
    parts: list[list[Note]] = []
    known: list[int | None] = []
    for _ in range(draw(st.integers(1, 3))):
        notes: dict[tuple[int, int], Note] = {}
        for _ in range(draw(st.integers(1, 8))):
            onset, pitch = draw(st.integers(0, start - 1)), draw(st.integers(0, 127))
            velocity = velocity_of_bin(draw(st.integers(1, 127)), 32) if velocities else 0
            notes[pitch, onset] = Note(onset, draw(st.integers(0, 400)), pitch, velocity)
        free: list[Note] = []
        following: Note | None = None
        for _, note in sorted(notes.items(), reverse=True):
            if following is not None and following.pitch == note.pitch and note.end > following.onset:
                note = note._replace(duration=following.onset - note.onset)
            if note.duration:
                following = note
            free.append(note)
        parts.append(sorted(free, key=lambda note: (note.onset, note.duration > 0, note.pitch)))
        known.append(draw(st.one_of(st.integers(0, 127), st.just(DRUMS))) if programs else None)
    tempos = dict(draw(st.lists(st.tuples(st.integers(0, start - 1), st.sampled_from(range(20, 321, 4))), max_size=3)))
    changes = [
        (tick, tempo)
        for (_, before), (tick, tempo) in itertools.pairwise([(0, 0), *sorted(tempos.items())])
        if tempo != before
    ]
    while known and known[-1] is None:
        known.pop()
    return Piece(bars, parts, changes, known)


def as_it_sounds(piece: Piece) -> list[list[Note]]:
    """The notes by part, those of one onset in one order: grace notes keep theirs only in a file."""
    return [sorted(part) for part in piece.parts]


@settings(max_examples=150, deadline=None)
@given(pieces())
def test_any_piece_comes_back_from_its_tokens(piece):
    domain = music_of(MusicOptions())
    text = " ".join(piece.segments(2))
    decoded = domain.decode(domain.encode([text]).ids)
    assert decoded == text
    again = parse(decoded)
    assert (again.bars, again.tempos) == (piece.bars, piece.tempos)
    assert as_it_sounds(again) == as_it_sounds(piece)
    assert " ".join(again.segments(2)) == text


@settings(max_examples=60, deadline=None)
@given(pieces(velocities=True, programs=True))
def test_any_piece_comes_back_with_velocities_programs_and_drums(piece):
    domain = music_of(EVERYTHING)
    (text,) = piece.segments(10_000, EVERYTHING.wording)
    encoded = domain.encode([text])
    assert domain.vocabulary.token_to_id("[UNK]") not in encoded.ids
    again = parse(domain.decode(encoded.ids))
    drums = [index for index, program in enumerate(piece.programs) if program == DRUMS]
    assert as_it_sounds(again) == as_it_sounds(piece)
    assert again.programs == piece.programs
    assert domain.symbols(text) == sum(map(len, piece.parts))
    assert text.count("Drum_") == sum(len(piece.parts[index]) for index in drums)


@settings(max_examples=60, deadline=None)
@given(pieces())
def test_any_piece_comes_back_from_midi_with_pitches_onsets_and_durations(piece):
    """Grace notes aside, which MIDI has not; its bars end with the last note and are as a signature can say."""
    piece = Piece(piece.bars, [[n for n in part if n.duration] for part in piece.parts], piece.tempos)
    piece.parts = [part for part in piece.parts if part]
    if not piece.parts:
        return
    report = Report()
    ((draft, _, _),) = read_midi(to_midi(piece), report)
    again = draft.settle("", report)
    assert again is not None and as_it_sounds(again) == as_it_sounds(piece)
    assert not report.repairs and set(report.tallies) <= {"tempos rounded to the nearest word"}
    if all(signature_of(bar.length) for bar in piece.bars):
        (*whole, last), lengths = again.bars, [bar.length for bar in piece.bars]
        assert [bar.length for bar in whole][: len(lengths)] == lengths[: len(whole)]
        assert last.start < max(note.end for part in piece.parts for note in part) <= last.start + last.length


_ANY_WORDS = st.lists(st.sampled_from([*words(32, True, True), "[MASK]", "nonsense"]), max_size=60)


@settings(max_examples=150, deadline=None)
@given(_ANY_WORDS)
def test_any_words_after_a_bar_are_a_piece_whose_text_is_stable_and_whose_bars_are_as_long_as_they_say(made_up):
    piece = parse("Bar Numerator_4 Denominator_4 " + " ".join(made_up))
    for part in piece.parts:
        sounding: dict[int, int] = {}
        for note in part:
            assert 0 <= note.onset < piece.bars[-1].start + piece.bars[-1].length
            if note.duration:
                assert sounding.get(note.pitch, 0) <= note.onset
                sounding[note.pitch] = note.end
    (text,) = piece.segments(10_000, Wording(32, True, True))
    (again,) = parse(text).segments(10_000, Wording(32, True, True))
    assert again == text


@settings(max_examples=100, deadline=None)
@given(pieces(velocities=True, programs=True))
def test_canonical_text_follows_its_own_rules(piece):
    (text,) = piece.segments(10_000, EVERYTHING.wording)
    kinds = [kind_of(word) for word in text.split()]
    for before, after in itertools.pairwise([*kinds, "Bar"]):
        assert after in FOLLOWS[before], (before, after)


# What text says


def test_velocities_programs_and_drums_are_said_where_they_are_asked_for():
    piece = parse(PLAYED)
    assert piece.segments(1, EVERYTHING.wording) == [PLAYED]
    assert piece.programs == [40, DRUMS]
    plain = (
        "Bar Numerator_4 Denominator_4 Position_0 Tempo_96 Part_0 Position_0 Pitch_60 Duration_24 "
        "Position_24 Pitch_64 Duration_72 Part_1 Position_0 Drum_38 Duration_6"
    )
    assert piece.segments(1) == [plain]
    assert piece.segments(1, Wording(tempo=False))[0] == plain.replace("Position_0 Tempo_96 ", "")


def test_the_words_of_the_default_vocabulary_keep_their_ids_under_every_option():
    default = [*SPECIAL_TOKENS, *words()]
    everything = music_of(EVERYTHING).vocabulary
    assert [everything.id_to_token(index) for index in range(len(default))] == default
    assert everything.get_vocab_size() == len(default) + 32 + 128 + 128


def test_what_is_said_of_velocities_and_instruments_survives_writing_and_reading(tmp_path):
    domain = music_of(EVERYTHING)
    domain.write(PLAYED, tmp_path / "out.mid")
    (document,) = domain.read(tmp_path / "out.mid", Report())
    assert document.segments == [PLAYED]
    assert document.metadata["programs"] == "40, drums"


def test_drums_are_left_out_and_counted_or_kept(tmp_path):
    music_of(EVERYTHING).write(PLAYED, tmp_path / "out.mid")
    report = Report()
    (document,) = Music().read(tmp_path / "out.mid", report)
    assert "Drum" not in document.segments[0] and report.tallies["drum notes left out"] == 1


def test_merged_parts_are_one_part_in_which_unisons_are_one_note(tmp_path):
    text = (
        "Bar Numerator_4 Denominator_4 Part_0 Position_0 Pitch_60 Duration_24 "
        "Part_1 Position_0 Pitch_60 Duration_48 Position_48 Pitch_50 Duration_24"
    )
    Music().write(text, tmp_path / "two.mid")
    report = Report()
    (document,) = Music(MusicOptions(parts="merged")).read(tmp_path / "two.mid", report)
    assert [note[:3] for note in parse(document.segments[0]).parts[0]] == [(0, 48, 60), (48, 24, 50)]
    assert report.tallies["notes dropped that double another of their part"] == 1


def test_a_coarser_grid_moves_notes_to_it_and_tells_how_far_at_most(tmp_path):
    text = "Bar Numerator_4 Denominator_4 Part_0 Position_0 Pitch_60 Duration_24 Position_28 Pitch_62 Duration_8"
    Music().write(text, tmp_path / "a.mid")
    for grid, notes in ((24, [(0, 24), (28, 8)]), (4, [(0, 24), (30, 6)]), (1, [(0, 24), (24, 24)])):
        report = Report()
        (document,) = Music(MusicOptions(grid=grid)).read(tmp_path / "a.mid", report)
        assert [note[:2] for note in parse(document.segments[0]).parts[0]] == notes
        farthest = abs(notes[1][0] - 28) / 24
        assert report.most["largest onset error in quarters"] == pytest.approx(farthest)
        assert report.tallies[f"notes moved to the grid of 1/{grid} quarter"] == (grid != 24)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 5}, "grid is 5; a quarter is cut into 1, 2, 3, 4, 6, 8, 12 or 24 steps"),
        ({"velocity": 200}, "velocity is 200; it is a number of bins from 1 to 127"),
        ({"tokens": "remi"}, 'tokens is "remi"; it is "event" or "bpe"'),
        ({"drums": "yes"}, 'drums is "yes"; it is "skip" or "keep"'),
        ({"parts": "all"}, 'parts is "all"; it is "separate" or "merged"'),
        ({"repeats": "play"}, 'repeats is "play"; it is "written" or "unfold"'),
        ({"damaged_midi": "fix"}, 'damaged_midi is "fix"; it is "skip" or "mend"'),
        ({"encoding": "klingon"}, 'encoding is "klingon"'),
    ],
)
def test_an_option_that_is_none_is_an_error_that_names_the_valid_ones(options, message):
    with pytest.raises(ConfigError, match=message):
        MusicOptions(**options)


# Merged tokens


@pytest.fixture(scope="module")
def tunes() -> list[str]:
    domain = Music()
    files = domain.sample().files[:40]
    return [segment for path in files for document in domain.read(path, Report()) for segment in document.segments]


@pytest.fixture(scope="module")
def merged(tunes) -> Music:
    domain = Music(MusicOptions(tokens="bpe"))
    domain.use(domain.tokenizer(tunes, 1200))
    return domain


def test_merged_tokens_are_fewer_and_come_back_exactly(merged, tunes):
    encoded = merged.encode(tunes)
    assert sum(encoded.lengths) < 0.7 * sum(len(text.split()) for text in tunes)
    for text, ids in zip(tunes, np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1]), strict=True):
        assert merged.decode(ids) == text


def test_merging_learns_the_same_from_the_same_texts_and_never_more_than_asked_for(merged, tunes):
    assert merged.tokenizer(tunes, 1200).to_str() == merged.vocabulary.to_str()
    assert merged.vocabulary.get_vocab_size() <= 1200
    assert [merged.vocabulary.id_to_token(index) for index in range(5)] == list(SPECIAL_TOKENS)
    with pytest.raises(ConfigError, match="vocab_size is 64"):
        merged.tokenizer(tunes, 64)


def test_merged_tokens_keep_to_their_bar_and_count_their_notes(merged, tunes):
    encoded, plain = merged.encode(tunes[:20]), music_of(MusicOptions()).encode(tunes[:20])
    for number, text in enumerate(tunes[:20]):
        bounds = [np.concatenate([[0], np.cumsum(e.lengths)])[number : number + 2] for e in (encoded, plain)]
        units = encoded.units[slice(*bounds[0])]
        assert units.max() == plain.units[slice(*bounds[1])].max() == text.count("Bar") - 1
        tokens = [merged.vocabulary.id_to_token(int(index)) for index in encoded.ids[slice(*bounds[0])]]
        assert sum(merged.symbols(token) for token in tokens) == merged.symbols(text) == text.count("Pitch_")
        spans = encoded.offsets[slice(*bounds[0])]
        assert "".join(text[start:stop] + " " for start, stop in spans).strip() == text


def test_merged_text_that_is_no_music_is_unknown_and_injects_nothing(merged):
    unknown = merged.vocabulary.token_to_id("[UNK]")
    assert merged.encode(["[MASK] \ue000 \uf8ff nonsense"]).ids.tolist() == [unknown] * 4
    assert merged.encode([""]).ids.tolist() == []


def test_a_vocabulary_of_other_tokens_is_an_error_that_says_so(merged):
    with pytest.raises(DomainError, match='tokens, "event"'):
        Music().use(merged.vocabulary)
    with pytest.raises(DomainError, match='tokens, "bpe"'):
        Music(MusicOptions(tokens="bpe")).use(music_of(MusicOptions()).vocabulary)


# Transposition


@pytest.mark.parametrize("variant", range(12))
def test_a_variant_of_merged_tokens_is_that_of_their_words(merged, tunes, variant):
    plain = music_of(MusicOptions())
    change, change_words = (domain.augmentations()["transposition"].change for domain in (merged, plain))
    for text in tunes[:6]:
        expected = plain.decode(change_words(plain.encode([text]).ids, None, variant)[0])
        ids = merged.encode([text]).ids
        shifted, source = change(ids, None, variant)
        assert merged.decode(shifted) == expected
        assert shifted.tolist() == merged.encode([expected]).ids.tolist()
        assert len(source) == len(shifted) and (np.diff(source) >= 0).all() and source[-1] < len(ids)


def test_variants_are_the_twelve_keys_and_the_first_changes_nothing(tunes):
    domain = music_of(MusicOptions())
    transposition = domain.augmentations()["transposition"]
    assert transposition.variants == 12
    ids = domain.encode(tunes[:1]).ids
    first = min(parse(tunes[0]).parts[0]).pitch
    shifts = []
    for variant in range(12):
        shifted, source = transposition.change(ids, None, variant)
        shifts.append(min(parse(domain.decode(shifted)).parts[0]).pitch - first)
        assert source.tolist() == list(range(len(ids)))
    assert shifts == [semitones_of(variant) for variant in range(12)]
    assert transposition.change(ids, None, 0)[0].tolist() == ids.tolist()


def test_a_shift_out_of_range_goes_an_octave_the_other_way():
    domain = music_of(MusicOptions())
    ids = domain.encode(["Bar Part_0 Position_0 Pitch_125 Duration_1"]).ids
    shifted = domain.augmentations()["transposition"].change(ids, None, 4)[0]
    assert "Pitch_117" in domain.decode(shifted)
    assert within(5, 0, 127) == 0


def test_drums_are_not_transposed_and_special_tokens_stay(merged):
    domain = music_of(EVERYTHING)
    ids = domain.encode([PLAYED]).ids
    shifted = parse(domain.decode(domain.augmentations()["transposition"].change(ids, None, 5)[0]))
    assert [[note.pitch for note in part] for part in shifted.parts] == [[65, 69], [38]]
    mask = merged.vocabulary.token_to_id("[MASK]")
    with_mask = np.concatenate([merged.encode(["Bar Part_0"]).ids, [mask], merged.encode(["Pitch_60"]).ids])
    shifted, source = merged.augmentations()["transposition"].change(with_mask, None, 2)
    assert shifted[source == len(with_mask) - 2].tolist() == [mask]
    assert merged.decode(shifted) == "Bar Part_0 Pitch_62"


def test_transposition_can_be_sent_to_the_loaders_workers(merged, tunes):
    for domain in (merged, music_of(MusicOptions())):
        sent = pickle.loads(pickle.dumps(domain.augmentations()))["transposition"]
        ids = domain.encode(tunes[:1]).ids
        assert (
            sent.change(ids, None, 3)[0].tolist()
            == domain.augmentations()["transposition"].change(ids, None, 3)[0].tolist()
        )


# What filling a bar goes by


def test_kinds_of_tokens_are_those_of_their_words(merged):
    domain = music_of(EVERYTHING)
    kinds = domain.token_kinds()
    assert kinds[:6] == ["special"] * 5 + ["Bar"] and set(kinds[5:]) == set(FOLLOWS)
    assert domain.frame() - {"merged frame"} <= set(FOLLOWS) and set().union(*domain.follows().values()) <= set(FOLLOWS)
    assert {"merged", "merged frame", "Pitch"} <= set(merged.token_kinds()) and merged.follows() == {}


def test_decode_gives_a_music21_score():
    built = score(PLAYED)
    assert built.parts[0].recurse().notes.first().pitches[0].midi == 60
