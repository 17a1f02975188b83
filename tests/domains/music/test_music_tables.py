from collections import Counter, defaultdict

import pytest

from domains.music import Music
from seqbert.data.holdout import hold_out


def test_the_words_of_music_are_its_notes():
    text = "Bar Part_0 Position_0 Pitch_60 Duration_24 Pitch_64 Duration_24"
    spans = Music().words(text)
    assert [text[start:end] for start, end in spans] == ["Pitch_60", "Pitch_64"]
    assert Music().words("Bar").shape == (0, 2)


def test_degrees_are_those_of_music21s_scales():
    from music21.key import KeySignature

    seen = 0
    for example in list(Music().sample().tables["tagging"]())[::60]:
        words = example.sequences[0].split()
        sharps = next(int(word.removeprefix("KeySignature_")) for word in words if word.startswith("KeySignature_"))
        scale = KeySignature(sharps).asKey("major").getPitches()[:7]
        degrees = {pitch.pitchClass: str(degree) for degree, pitch in enumerate(scale, start=1)}
        pitches = [int(word.removeprefix("Pitch_")) for word in words if word.startswith("Pitch_")]
        assert example.label == [degrees.get(pitch % 12, "chromatic") for pitch in pitches]
        seen += len(pitches)
    assert seen > 100


def test_a_metre_is_not_told_by_words_that_name_it():
    for example in Music().sample().tables["classification"]():
        assert not any(word in example.sequences[0] for word in ("Numerator", "Denominator", "Length"))


@pytest.mark.slow
def test_tune_types_come_from_the_fields_of_ryans_mammoth_collection():
    dances = Counter(example.label for example in Music().sample().tables["tune_type"]())
    assert set(dances) == {"reel", "hornpipe", "jig", "strathspey", "clog"}
    assert dances.total() == 1008


@pytest.mark.slow
def test_six_composers_have_as_many_stretches_and_a_work_stays_on_one_side():
    """Reads two hundred scores: up to a minute."""
    examples = list(Music().sample().tables["composer"]())
    assert Counter(example.label for example in examples) == dict.fromkeys(
        ("Bach", "Beethoven", "Ciconia", "Monteverdi", "Mozart", "Palestrina"), 96
    )
    works = defaultdict(set)
    for example in examples:
        works[example.metadata["work"]].add(example.label)
    assert all(len(composers) == 1 for composers in works.values())
    train, held_out = hold_out(examples, 0.2, stratum=lambda example: example.label, group="work")
    assert not {e.metadata["work"] for e in train} & {e.metadata["work"] for e in held_out}
    assert {e.label for e in train} == {e.label for e in held_out} == {e.label for e in examples}
