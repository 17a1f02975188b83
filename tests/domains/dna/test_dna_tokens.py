import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domains.dna import AMBIGUOUS, DNA, DNAOptions, plugin, reverse_complement
from domains.sequences.bpe import evenly
from seqbert.domain import SPECIAL_TOKENS, Report
from seqbert.errors import ConfigError

CORPUS = ["".join(np.random.default_rng(seed).choice(list("ACGT"), 4000, p=[0.4, 0.1, 0.2, 0.3])) for seed in range(9)]


def make(**options):
    dna = DNA(DNAOptions(**options))
    segments = [dna.canonical(text) for text in CORPUS]
    dna.use(dna.tokenizer(segments, 300 if options.get("tokens") == "bpe" else None))
    return dna


def tokens(dna, text):
    return [dna.vocabulary.id_to_token(i) for i in dna.encode([text]).ids]


def turned(dna, ids):
    return dna.augmentations()["reverse_complement"].change(ids, None, 1)


KINDS = {
    "bases": make(),
    "3-mers": make(tokens="kmer", k=3),
    "1-mers": make(tokens="kmer", k=1),
    "RNA 6-mers": make(tokens="kmer", k=6, alphabet="rna"),
    "blocks of 4": make(tokens="block", k=4),
    "blocks of 3, spelled tails": make(tokens="block", k=3, tail="spell"),
    "learned words": make(tokens="bpe"),
    "learned words of RNA": make(tokens="bpe", alphabet="rna"),
    "codons": make(unit="codon", frame=1),
    "codon blocks": make(tokens="block", k=3, unit="codon", frame=2),
}
TURNED = {name: dna for name, dna in KINDS.items() if dna.unit != "codon"}
LETTERS = st.text(st.sampled_from("ACGT" * 5 + AMBIGUOUS), max_size=60)
KIND = st.sampled_from(sorted(KINDS))


# Round trips


@settings(deadline=None, max_examples=300)
@given(KIND, st.one_of(LETTERS, st.text(max_size=20), st.text(st.sampled_from("acgtuNn-. RYX1@[MASK]"), max_size=40)))
def test_decoding_what_was_encoded_gives_the_canonical_text(kind, raw):
    dna = KINDS[kind]
    text = dna.canonical(raw)
    encoded = dna.encode([text])
    assert dna.decode(encoded.ids) == text
    assert dna.canonical(text) == text
    assert not set(encoded.ids.tolist()) & {dna.vocabulary.token_to_id(token) for token in SPECIAL_TOKENS}


@settings(deadline=None, max_examples=200)
@given(KIND, st.lists(LETTERS, max_size=4))
def test_offsets_are_where_each_token_stands_in_its_text(kind, texts):
    dna = KINDS[kind]
    texts = [dna.canonical(text) for text in texts]
    encoded = dna.encode(texts)
    assert encoded.lengths.sum() == len(encoded.ids) == len(encoded.offsets)
    owner = np.repeat(np.arange(len(texts)), encoded.lengths)
    for number, (start, end), text in zip(encoded.ids, encoded.offsets, owner, strict=True):
        token = dna.vocabulary.id_to_token(int(number))
        assert texts[text][start:end] == token
        assert dna.symbols(token) == (1 if dna.overlap else end - start)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_long_text_gives_the_same_tokens_and_units_by_parts(kind, monkeypatch):
    dna = KINDS[kind]
    monkeypatch.setattr(plugin, "_PART", 1600)
    generator = np.random.default_rng(1)
    text = dna.canonical("".join(generator.choice(list("ACGT" * 60 + "RN"), 5000)))
    for size in range(4700, 4720):  # where the last part is of 92 to 112 bases; below, of none to a few
        for length in (size, size - 4700 + 1536, size - 4700 + 3072):
            whole = dna.encode([text[:length]], offsets=False)
            parts = list(dna.encode_long(text[:length]))
            assert np.concatenate([part.ids for part in parts]).tolist() == whole.ids.tolist()
            assert [part.lengths.tolist() for part in parts] == [[len(part.ids)] for part in parts]
            if whole.units is None:
                assert all(part.units is None for part in parts)
            else:
                begins = [np.diff(part.units, prepend=-1) != 0 for part in parts]
                assert np.concatenate(begins).tolist() == (np.diff(whole.units, prepend=-1) != 0).tolist()


# The other strand


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(TURNED)), LETTERS)
def test_the_tokens_of_the_other_strand_are_those_of_the_reverse_complement(kind, text):
    dna = TURNED[kind]
    text = dna.canonical(text)
    other = reverse_complement(text, dna.options.alphabet)
    ids = dna.encode([text]).ids
    new, source = turned(dna, ids)
    assert new.tolist() == dna.encode([other]).ids.tolist()
    assert len(source) == len(new) and set(source.tolist()) <= set(range(len(ids)))
    assert turned(dna, new)[0].tolist() == ids.tolist()
    same, places = dna.augmentations()["reverse_complement"].change(ids, None, 0)
    assert (same.tolist(), places.tolist()) == (ids.tolist(), list(range(len(ids))))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(TURNED)), LETTERS)
def test_each_token_of_the_other_strand_stems_from_the_one_that_covers_its_middle_base(kind, text):
    dna = TURNED[kind]
    text = dna.canonical(text)
    before = dna.encode([text])
    _, source = turned(dna, before.ids)
    after = dna.encode([reverse_complement(text, dna.options.alphabet)])
    for (start, end), old in zip(after.offsets, source, strict=True):
        middle = len(text) - 1 - (start + end - 1) // 2
        if not dna.overlap:
            assert before.offsets[old][0] <= middle < before.offsets[old][1]
        elif end - start == dna.options.k and before.offsets[old][1] - before.offsets[old][0] == dna.options.k:
            assert before.offsets[old].tolist() == [len(text) - end, len(text) - start]


def test_labels_of_bases_are_turned_exactly():
    dna = KINDS["bases"]
    labels = np.arange(7)
    new, source = turned(dna, dna.encode(["ACGTTRN"]).ids)
    assert (dna.decode(new), labels[source].tolist()) == ("NYAACGT", [6, 5, 4, 3, 2, 1, 0])


def test_segments_end_to_end_are_turned_each_by_itself():
    """Of overlapping k-mers and of blocks, which show where a segment ends; what is read at a gap is never joined."""
    for dna, segments in ((KINDS["3-mers"], ["AACGTT", "CCRGATC"]), (KINDS["blocks of 4"], ["AACGTT", "CCRGATC"])):
        ids = dna.encode(segments).ids
        other = [reverse_complement(segment) for segment in reversed(segments)]
        assert turned(dna, ids)[0].tolist() == dna.encode(other).ids.tolist()


@pytest.mark.parametrize("kind", sorted(TURNED))
def test_special_tokens_stay_around_a_sequence_and_move_within_it(kind):
    dna = TURNED[kind]
    cls, sep, mask = (dna.vocabulary.token_to_id(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    first, second = (dna.encode([dna.canonical(text)]).ids.tolist() for text in ("AAAACCCC", "GATTACAGATTACA"))
    ids = np.array([cls, *first, mask, *second, sep], np.uint16)
    new, source = turned(dna, ids)
    other = [turned(dna, np.array(part))[0].tolist() for part in (second, first)]
    assert new.tolist() == [cls, *other[0], mask, *other[1], sep]
    assert new.dtype == np.uint16
    assert (source[0], source[-1], source[1 + len(other[0])]) == (0, len(ids) - 1, 1 + len(first))
    alone = np.array([cls, sep])
    assert turned(dna, alone)[0].tolist() == [cls, sep]
    assert turned(dna, alone[:0])[0].tolist() == []


def test_a_worker_is_sent_the_augmentations():
    for dna in TURNED.values():
        ids = dna.encode([dna.canonical("ACGTTGCAATRC")]).ids
        sent = pickle.loads(pickle.dumps(dna.augmentations()))["reverse_complement"]
        assert sent.variants == 2
        assert sent.change(ids, None, 1)[0].tolist() == turned(dna, ids)[0].tolist()


def test_the_other_strand_of_coding_sequence_is_not_offered():
    assert make(unit="codon").augmentations() == {}


# Each kind


def test_learned_words_reach_no_code_and_not_beyond_a_stretch():
    dna = KINDS["learned words"]
    words = [token for token in dna.vocabulary.get_vocab() if len(token) > 1 and token not in SPECIAL_TOKENS]
    assert len(words) == 300 - 5 - 15
    assert all(set(word) <= set("ACGT") and len(word) <= 16 for word in words)
    text = "A" * 512 + "T" * 512
    assert {512, 1024} <= set(dna.encode([text]).offsets[:, 1].tolist())
    assert tokens(dna, "ARNNT") == ["A", "R", "N", "N", "T"]


def test_learned_words_need_fewer_tokens_than_bases():
    text = CORPUS[0]
    assert len(KINDS["learned words"].encode([text]).ids) < len(text) / 2


def test_the_same_data_gives_the_same_learned_vocabulary_in_every_process():
    script = (
        "from domains.dna import DNA, DNAOptions; import random, hashlib; r = random.Random(0)\n"
        "texts = [''.join(r.choices('ACGT', k=3000)) for _ in range(20)]\n"
        "print(hashlib.sha256(DNA(DNAOptions(tokens='bpe')).tokenizer(texts, 500).to_str().encode()).hexdigest())"
    )
    made = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(made) == 1 and len(made.pop()) == 65


def test_a_learned_vocabulary_needs_room_for_words():
    with pytest.raises(ConfigError, match="vocab_size is 20"):
        DNA(DNAOptions(tokens="bpe")).tokenizer(CORPUS, 20)


def test_of_long_segments_stretches_are_taken_evenly():
    taken = list(evenly(["A" * 700, "C" * 5000, "G" * 30], 2048, 512))
    assert sum(map(len, taken)) <= 2048
    assert set(map(len, taken)) <= {512, 700 - 512, 5000 % 512, 30}
    assert any("C" in stretch for stretch in taken)


def test_the_last_bases_of_blocks_are_kept_spelled_or_dropped(tmp_path):
    assert tokens(make(tokens="block", k=4), "ACGTAC") == ["ACGT", "AC"]
    assert tokens(make(tokens="block", k=4, tail="spell"), "ACGTAC") == ["ACGT", "A", "C"]
    path, report = tmp_path / "x.fa", Report()
    path.write_text(">a\nACGTAC\n>b\nACG\n>c\nACGTNNNNAC\n")
    documents = list(make(tokens="block", k=4, tail="drop").read(path, report))
    assert [document.segments for document in documents] == [["ACGT"], ["ACGT"]]
    assert report.tallies["bases behind the last whole block left off"] == 2 + 3 + 2
    assert report.skips == {"no stretch of bases that is long enough for a token": 1}
    assert make(tokens="block", k=4, tail="spell").vocabulary.get_vocab_size() == 5 + 4**4 + 15


def test_codons_follow_the_frame_also_behind_a_gap(tmp_path):
    codons = make(tokens="block", k=3, unit="codon", frame=1)
    assert tokens(codons, "GATGAAATG") == ["G", "ATG", "AAA", "TG"]
    assert codons.encode(["GATGAAATG"]).units.tolist() == [0, 1, 2, 3]
    assert make(unit="codon", frame=2).encode(["GGATGAA"]).units.tolist() == [0, 0, 1, 1, 1, 2, 2]
    path, report = tmp_path / "x.fa", Report()
    path.write_text(">cds\nATGAAANNNNCCGATGTAA\n")
    (document,) = make(unit="codon").read(path, report)
    assert document.segments == ["ATGAAA", "GATGTAA"]  # the base 12 counted from 0 begins a codon


def test_rna_is_spelled_with_u_and_read_from_both_spellings():
    rna = make(alphabet="rna", tokens="kmer", k=3)
    assert rna.canonical("acgT u") == "ACGUU"
    assert tokens(rna, "ACGUU") == ["ACG", "CGU", "GUU"]
    report = Report()
    assert make().cell("ACGU", report, "t.csv:2") == "ACGT"
    assert report.tallies == {"U written as T": 1}


def test_wrong_combinations_of_options_are_refused_by_name():
    for options, named in (
        ({"frame": 1}, "frame"),
        ({"frame": 3, "unit": "codon"}, "frame"),
        ({"unit": "codon", "n": "drop"}, "n is"),
        ({"tail": "cut"}, "tail"),
        ({"alphabet": "protein"}, "alphabet"),
        ({"soft_masked": "lower"}, "soft_masked"),
        ({"stride": 10}, "stride"),
        ({"window": 100, "stride": 200}, "stride"),
        ({"window": 100, "n": "drop"}, "n is"),
        ({"window": 100, "unit": "codon"}, "stride"),
        ({"window": 2, "tokens": "kmer"}, "window"),
        ({"tokens": "bpe", "unit": "codon"}, "three bases"),
    ):
        with pytest.raises(ConfigError, match=named):
            DNAOptions(**options)
