"""Tokens of proteins: round trips over generated and real sequences, offsets, byte-pair encoding, injection."""

import os
import string
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from domains.protein import RARE, STANDARD, Protein, ProteinOptions
from domains.sequences.bpe import evenly
from seqbert.domain import SPECIAL_TOKENS, Report
from seqbert.errors import ConfigError, DataError

ANYTHING = st.one_of(st.text(STANDARD + RARE + "-.", max_size=200), st.text(max_size=60))


def make(segments=(), vocab_size=None, **options):
    protein = Protein(ProteinOptions(**options))
    protein.use(protein.tokenizer(segments, vocab_size))
    return protein


def sample():
    protein = Protein()
    return [d.segments[0] for path in protein.sample().files for d in protein.read(path, Report())]


@pytest.fixture(scope="module")
def domains():
    proteins = sample()
    return {
        "residue": make(),
        "residue, gaps": make(gaps="keep"),
        "bpe": make(proteins, 200, tokens="bpe"),
        "bpe, gaps": make(proteins, 200, tokens="bpe", gaps="keep", terminal_stop="keep"),
    }


@given(ANYTHING)
@settings(max_examples=150, deadline=None)
def test_decoding_what_was_encoded_gives_the_canonical_text_and_offsets_its_stretches(domains, raw):
    for protein in domains.values():
        text = protein.canonical(raw)
        encoded = protein.encode([text])
        assert protein.decode(encoded.ids) == text
        assert protein.canonical(text) == text
        assert encoded.lengths.tolist() == [len(encoded.ids)]
        tokens = [protein.vocabulary.id_to_token(int(i)) for i in encoded.ids]
        assert [text[start:end] for start, end in encoded.offsets.tolist()] == tokens
        assert sum(map(protein.symbols, tokens)) == protein.symbols(text) == len(text)


def test_every_protein_of_uniprot_is_the_same_after_a_round_trip(shared_data, domains):
    path = shared_data / "protein" / "uniprot_mmseqs2" / "QUERY.fasta.gz"
    texts = [document.segments[0] for document in Protein().read(path, Report())]
    assert len(texts) == 500
    for protein in domains.values():
        encoded = protein.encode(texts, offsets=False)
        parts = np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])
        assert [protein.decode(part) for part in parts] == texts


@given(st.sampled_from([*SPECIAL_TOKENS, "<mask>", "<cls>", "<pad>", "[unused1]"]), st.text(STANDARD, max_size=5))
@settings(max_examples=40, deadline=None)
def test_raw_data_cannot_inject_a_special_token(domains, special, around):
    for protein in domains.values():
        vocabulary = protein.vocabulary.get_vocab()
        others = {vocabulary[token] for token in SPECIAL_TOKENS if token != "[UNK]"}
        raw = around + special + around
        assert not others & set(protein.encode([raw]).ids.tolist())
        assert not others & set(protein.encode([protein.canonical(raw)]).ids.tolist())


def test_a_special_token_in_a_file_is_written_as_residues_and_told(tmp_path):
    path = tmp_path / "x.fasta"
    path.write_bytes(b">[MASK] <mask> [CLS]\nMK[MASK]<mask>T\n")
    (document,) = make().read(path, report := Report())
    assert document.id == "[MASK]"
    assert document.segments == ["MKXMASKXXMASKXT"]
    assert report.repaired_records == 1


def test_row16_the_scenario_and_a_message_with_record_and_position(tmp_path):
    protein = make()
    text = protein.canonical("QWE--RT*JBZUO")
    ids = protein.encode([text]).ids
    vocabulary = protein.vocabulary.get_vocab()
    assert ids.tolist() == [vocabulary[letter] for letter in "QWERT*JBZUO"]
    assert len(set(ids.tolist())) == len(set("QWERT*JBZUO"))  # a token each, and none of them unknown
    path = tmp_path / "x.fasta"
    path.write_bytes(b">first\nMK\n>second\nMK1V\n")
    for strict, unknown in ((True, "replace"), (True, "skip"), (False, "error")):
        with pytest.raises(DataError, match=r"x\.fasta.*2.*second.*'1' at position 3"):
            list(make(unknown=unknown).read(path, Report(strict)))


def test_row16_every_printable_character_has_one_stated_fate():
    protein = make()
    fates = {character: protein.canonical("M" + character + "M")[1:-1] for character in string.printable}
    assert "".join(c for c in fates if fates[c] == c) == "".join(c for c in string.printable if c in STANDARD + RARE)
    assert {c for c in fates if fates[c] == ""} == set("-." + string.whitespace)
    assert {c for c in fates if fates[c] == c.upper() != c} == set(string.ascii_lowercase)
    assert {fates[c] for c in string.digits + string.punctuation if c not in "-.*"} == {"X"}


def test_row17_the_scenario():
    protein = make()
    assert protein.encode(["acdefg"]).ids.tolist() == protein.encode(["ACDEFG"]).ids.tolist()
    bpe = make(sample(), 200, tokens="bpe")
    assert bpe.encode(["acdefg"]).ids.tolist() == bpe.encode(["ACDEFG"]).ids.tolist()


def test_row18_a_gap_is_taken_out_before_a_model_that_never_saw_one(tmp_path):
    assert make().canonical("AA--A") == "AAA"
    assert "-" not in make().vocabulary.get_vocab()
    path = tmp_path / "x.fasta"
    path.write_bytes(b">p\nAA--A\n")
    with pytest.raises(DataError, match=r"x\.fasta:1: gaps removed \(2\)"):
        list(make().read(path, Report(strict=True)))
    assert [d.segments for d in make(gaps="keep").read(path, Report(strict=True))] == [["AA--A"]]


def test_bpe_shortens_proteins_and_no_token_is_longer_than_asked_or_holds_x_or_a_stop():
    proteins = sample()
    protein = make(proteins, 300, tokens="bpe", longest_token=2)
    vocabulary = protein.vocabulary.get_vocab()
    tokens = [token for token in vocabulary if token not in SPECIAL_TOKENS]
    assert len(vocabulary) == 300
    assert max(map(len, tokens)) == 2
    assert not any(len(token) > 1 and set(token) & set("X*-") for token in tokens)
    residues, tokens_used = sum(map(len, proteins)), protein.encode(proteins, offsets=False).lengths.sum()
    assert tokens_used < 0.75 * residues
    assert protein.encode(["MXXM"]).lengths.tolist() == [4]


def test_bpe_gives_the_same_tokens_whatever_the_threads_and_hash_seeds(tmp_path):
    script = (
        "from domains.protein import Protein, ProteinOptions; from seqbert.domain import Report\n"
        "p = Protein(ProteinOptions(tokens='bpe'))\n"
        "s = [d.segments[0] for f in p.sample().files for d in p.read(f, Report())]\n"
        "print(p.tokenizer(s, 400).to_str())"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
        ).stdout
        for threads in ("1", "2")
    ]
    assert made[0] == made[1]
    assert Tokenizer.from_str(made[0]).get_vocab_size() == 400


def test_a_tokenizer_of_the_other_sort_is_refused():
    bpe = make(sample(), 100, tokens="bpe").vocabulary
    with pytest.raises(ConfigError, match='by bpe, but the protein option tokens is "residue"'):
        Protein().use(bpe)
    with pytest.raises(ConfigError, match='by residue, but the protein option tokens is "bpe"'):
        Protein(ProteinOptions(tokens="bpe")).use(make().vocabulary)


def test_an_impossible_length_or_size_is_an_error():
    with pytest.raises(ConfigError, match="longest_token is 1; it is from 2 to 64"):
        ProteinOptions(longest_token=1)
    with pytest.raises(ConfigError, match="needs 32 tokens"):
        Protein(ProteinOptions(tokens="bpe")).tokenizer([], 31)


def test_merges_are_learned_from_sequences_taken_evenly():
    segments = ["A" * 10] * 1000
    kept = list(evenly(segments, 1000))
    assert 500 <= sum(map(len, kept)) <= 1000
    assert list(evenly(segments[:100], 1000)) == segments[:100]
    assert max(map(len, evenly(["A" * 200_000, "C"], 1 << 22))) == 1 << 16
