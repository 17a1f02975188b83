import pickle
from itertools import product

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from domains.dna import AMBIGUOUS, BASES, DNA, DNAOptions, reverse_complement
from seqbert.domain import Report
from seqbert.errors import ConfigError, DataError, DomainError


def make(**options):
    dna = DNA(DNAOptions(**options))
    dna.use(dna.tokenizer([], None))
    return dna


def read(tmp_path, content, **options):
    path = tmp_path / "x.fa"
    path.write_bytes(content)
    report = Report()
    return list(make(**options).read(path, report)), report


def tokens(dna, text):
    return [dna.vocabulary.id_to_token(i) for i in dna.encode([text]).ids]


# Files


def test_the_genome_folder_is_read_without_its_notes(shared_data):
    """4,938,920 bases of NC_008253 and 16,398 of NC_001321, as Bio.SeqIO counts them."""
    dna, report = DNA(), Report()
    folder = shared_data / "dna" / "genomes_ecoli"
    files = [path for path in sorted(folder.iterdir()) if dna.reads(path)]
    assert [path.name for path in files] == ["NC_008253.fna.gz", "emboss_mito.seq"]
    documents = [document for path in files for document in dna.read(path, report)]
    assert [len(document.segments[0]) for document in documents] == [4_938_920, 16_398]
    assert documents[1].metadata == {"description": "Balaenoptera physalus mitochondrion, complete genome"}


def test_hostile_files_give_documents_or_one_kind_of_error(shared_data):
    for path in sorted((shared_data / "hostile" / "dna").iterdir()):
        report = Report()
        try:
            documents = list(DNA().read(path, report))
        except DataError as error:
            assert path.name in str(error)
        else:
            assert documents or report.skipped_records
            assert len({document.id for document in documents}) == len(documents)


def test_proteins_are_not_taken_for_bases(tmp_path):
    documents, report = read(tmp_path, b">p\nMKTAYIAKQRQISFVKSHFSRQ\n>d\nACGT\n")
    assert [document.id for document in documents] == ["d"]
    assert report.skips == {"a protein, not nucleotides": 1}


def test_row13_case_runs_of_n_and_ambiguity_codes_are_treated_by_a_stated_rule_and_counted(tmp_path):
    documents, report = read(tmp_path, b">c\nacgtNNNNacgtRYK\n")
    assert documents[0].segments == ["ACGT", "ACGTRYK"]
    assert report.tallies == {"lower-case bases upper-cased": 8, "runs of 4 or more N split at": 1}
    assert report.notes == {"N": 4, "ambiguity codes kept": 3}
    for options, segments in (
        ({"n": "keep"}, ["ACGTNNNNACGTRYK"]),
        ({"n": "drop"}, ["ACGTACGTRYK"]),
        ({"n": "shorten", "n_run": 2}, ["ACGTNNACGTRYK"]),
        ({"n_run": 5}, ["ACGTNNNNACGTRYK"]),
        ({"ambiguity": "n", "n_run": 5}, ["ACGTNNNNACGTNNN"]),
        ({"ambiguity": "split"}, ["ACGT", "ACGT"]),
        ({"ambiguity": "split", "n": "keep"}, ["ACGTNNNNACGT"]),
        ({"soft_masked": "n"}, ["RYK"]),
        ({"soft_masked": "n", "n": "keep"}, ["NNNNNNNNNNNNRYK"]),
    ):
        documents, _ = read(tmp_path, b">c\nacgtNNNNacgtRYK\n", **options)
        assert documents[0].segments == segments


def test_row13_a_k_mer_with_an_ambiguous_base_is_its_first_letter_so_that_none_is_unknown():
    assert tokens(make(tokens="kmer", k=3), "ACGNACG") == ["ACG", "C", "G", "N", "ACG"]
    assert tokens(make(tokens="kmer", k=3), "ACGNA") == ["ACG", "C", "G", "N", "A"]
    assert tokens(make(tokens="kmer", k=3), "AC") == ["A", "C"]


def test_row32_characters_that_are_no_nucleotide_stop_the_run_are_replaced_or_skip_the_record(tmp_path):
    content = b">r\nGAT@C1 A\n"
    with pytest.raises(DataError, match=r"record 1 \(r\): '@' at position 4, '1' at position 6 "):
        read(tmp_path, content, unknown="error")
    documents, report = read(tmp_path, content)
    assert documents[0].segments == ["GATNCNA"]
    assert report.repaired_records == 1
    assert report.tallies == {
        "characters that are no nucleotide written as N": 2,
        "blanks inside sequence lines removed": 1,
    }
    documents, report = read(tmp_path, content, unknown="skip")
    assert (documents, report.skips) == ([], {"a character that is no nucleotide": 1})


def test_rna_is_written_as_dna_and_gaps_are_taken_out(tmp_path):
    documents, report = read(tmp_path, b">r\nAC-GuU.\n")
    assert documents[0].segments == ["ACGTT"]
    assert report.tallies == {"lower-case bases upper-cased": 1, "U written as T": 2, "gaps removed": 2}


def test_a_record_without_a_token_is_skipped(tmp_path):
    documents, report = read(tmp_path, b">a\nACGTANNNNNACG\n>b\nNNNNNN\n", tokens="kmer", k=4)
    assert [document.segments for document in documents] == [["ACGTA", "ACG"]]
    assert report.skips == {"no stretch of bases that is long enough for a token": 1}


def test_names_are_unique_within_a_file(tmp_path):
    documents, report = read(tmp_path, b">a x\nA\n>\nC\n>a\nG\n")
    assert [document.id for document in documents] == ["a", "record2", "a#3"]
    assert report.notes["names met again and numbered"] == 1


def test_canonical_text_stays_as_it_is():
    assert make().canonical(" acgu nnnnn r-") == "ACGTNNNNNR"
    assert make().canonical("ACGTNNNNNR") == "ACGTNNNNNR"
    assert make(n="drop", ambiguity="n").canonical("acgt nnnnn acr") == "ACGTACN"
    with pytest.raises(DataError, match="'!' at position 2"):
        make(unknown="error").canonical("A!C")


def test_what_is_written_is_read_back(tmp_path):
    make().write("ACGTN" * 30, tmp_path / "x.fa")
    (document,) = make().read(tmp_path / "x.fa", Report())
    assert document.segments == ["ACGTN" * 30]


# Tokens


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 5 + 4 + 11),
        ({"tokens": "kmer", "k": 3}, 69 + 15),  # DNABERT's vocabulary for 3-mers, and the single letters
        ({"tokens": "kmer"}, 4101 + 15),  # and for 6-mers
        ({"tokens": "block", "k": 3}, 5 + 4 + 16 + 64 + 11),
    ],
)
def test_vocabularies_hold_all_words_and_a_smaller_one_is_refused(options, size):
    dna = DNA(DNAOptions(**options))
    assert dna.tokenizer([], None).get_vocab_size() == size
    assert dna.tokenizer(iter(()), size).to_str() == dna.tokenizer([], None).to_str()
    with pytest.raises(ConfigError, match=f"needs {size} tokens"):
        dna.tokenizer([], size - 1)


def test_k_mers_have_the_ids_of_dnabert():
    """The vocab.txt of its bert-config-3 begins AAA AAT AAC AAG ATA and ends GGC GGG (Ji et al. 2021)."""
    tokenizer = DNA(DNAOptions(tokens="kmer", k=3)).tokenizer([], None)
    assert [tokenizer.id_to_token(i) for i in (5, 6, 7, 8, 9, 67, 68)] == [
        "AAA",
        "AAT",
        "AAC",
        "AAG",
        "ATA",
        "GGC",
        "GGG",
    ]


def test_k_mers_overlap_and_blocks_do_not():
    assert tokens(make(tokens="kmer", k=4), "ACGTAC") == ["ACGT", "CGTA", "GTAC"]
    assert tokens(make(tokens="block", k=4), "ACGTACGTAC") == ["ACGT", "ACGT", "AC"]
    assert tokens(make(), "ACGTN") == ["A", "C", "G", "T", "N"]


def test_a_block_with_an_ambiguous_base_is_spelled_by_bases_and_the_next_begins_where_it_would():
    assert tokens(make(tokens="block", k=3), "ACGANGTTTCR") == ["ACG", "A", "N", "G", "TTT", "C", "R"]


@pytest.mark.parametrize("options", [{}, {"tokens": "block", "k": 3}, {"tokens": "block"}])
def test_ids_and_offsets_are_the_tokenizers_own_and_those_of_transformers(options):
    dna = make(**options)
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("ACGT" * 6 + AMBIGUOUS), n)) for n in range(40)] + [
        "acgu",
        "A[MASK]é1C",
    ]
    own = [dna.vocabulary.encode(text, add_special_tokens=False) for text in texts]
    encoded = dna.encode(texts)
    assert encoded.ids.tolist() == [i for one in own for i in one.ids]
    assert encoded.lengths.tolist() == [len(one.ids) for one in own]
    assert encoded.offsets.tolist() == [list(span) for one in own for span in one.offsets]
    fast = PreTrainedTokenizerFast(tokenizer_object=make(**options).vocabulary, unk_token="[UNK]")
    assert fast(texts[30], add_special_tokens=False)["input_ids"] == own[30].ids


def test_ids_of_k_mers_are_the_tokenizers_own_for_k_mers_with_blanks_between():
    dna = make(tokens="kmer", k=4)
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("ACGT" * 6 + AMBIGUOUS), n)) + "ACGT" for n in (4, 0, 40, 3, 5, 1)]
    encoded = dna.encode(texts)
    spaced = [" ".join(text[i : i + 4] for i in range(max(len(text) - 3, 1))) for text in texts]
    own = [dna.vocabulary.encode(text, add_special_tokens=False).ids for text in spaced]
    assert encoded.ids.tolist() == [i for one in own for i in one]
    assert encoded.lengths.tolist() == [5, 1, 41, 4, 6, 2]
    assert dna.encode(["ACGTA", "ACGTR"]).offsets.tolist() == [[0, 4], [1, 5], [0, 4], [1, 2], [2, 3], [3, 4], [4, 5]]


@pytest.mark.parametrize("tokens", ["base", "kmer", "block"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_decoding_gives_back_what_was_encoded(tokens, k):
    dna = make(tokens=tokens, k=k)
    for size in (k, k + 1, 200):
        text = "".join(np.random.default_rng(size).choice(list(BASES), size))
        assert dna.decode(dna.encode([text]).ids) == text
    assert dna.decode([]) == ""


def test_ambiguous_bases_come_back_but_from_k_mers_of_a_vocabulary_without_letters():
    from tokenizers import Tokenizer

    text = "ACGTACGRACGTACG"
    for options in ({}, {"tokens": "block", "k": 4}, {"tokens": "kmer", "k": 4}):
        assert make(**options).decode(make(**options).encode([text]).ids) == text
    kmer = make(tokens="kmer", k=4)
    written = kmer.vocabulary.to_str()
    for number, letter in enumerate(BASES + AMBIGUOUS):
        written = written.replace(f',"{letter}":{5 + 4**4 + number}', "")
    kmer.use(Tokenizer.from_str(written))
    assert kmer.vocabulary.get_vocab_size() == 5 + 4**4  # as DNABERT's own
    assert kmer.decode(kmer.encode([text]).ids) == "ACGTACGNACGTACG"


def test_masked_k_mers_hold_their_place_and_other_special_tokens_are_left_out():
    dna = make(tokens="kmer", k=3)
    ids = dna.encode(["ACGTACGT"]).ids.tolist()
    special = {token: dna.vocabulary.token_to_id(token) for token in ("[CLS]", "[SEP]", "[MASK]", "[PAD]")}
    ids[2:5] = [special["[MASK]"]] * 3
    assert dna.decode([special["[CLS]"], *ids, special["[SEP]"], special["[PAD]"]]) == "ACGTNCGT"


def test_units_are_spans_of_k_tokens_or_codons():
    assert make(k=2, unit="span").encode(["ACGTA", "ACG"]).units.tolist() == [0, 0, 1, 1, 2, 0, 0, 1]
    assert make(tokens="kmer", k=3).encode(["ACGTACG"]).units.tolist() == [0, 0, 0, 1, 1]
    assert make(unit="codon").encode(["ACGTACG"]).units.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert make(tokens="block", k=3, unit="codon").encode(["ACGTNCG"]).units.tolist() == [0, 1, 1, 1, 2]
    assert (make().unit, make(tokens="kmer").unit, make(unit="codon").unit) == ("token", "span", "codon")
    assert make().encode(["ACG"]).units is None


def test_codons_need_tokens_that_fit_them():
    for options in ({"tokens": "kmer", "k": 3}, {"tokens": "block", "k": 6}):
        with pytest.raises(ConfigError, match="three bases"):
            DNAOptions(unit="codon", **options)


def test_symbols_are_bases_and_of_an_overlapping_k_mer_the_one_that_it_adds():
    assert make(tokens="block").symbols("ACGTAC") == 6
    assert make().symbols("A") == 1
    assert make(tokens="kmer").symbols("ACGTAC") == 1
    assert (make(tokens="kmer").overlap, make(tokens="block").overlap, make().overlap) == (5, 0, 0)


def test_wrong_options_are_errors_that_say_what_is_right():
    with pytest.raises(ConfigError, match=r'tokens is "kmers".* Did you mean "kmer"'):
        DNAOptions(tokens="kmers")
    for options in ({"k": 0}, {"k": 9}, {"n_run": 0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            DNAOptions(**options)


def test_a_tokenizer_that_lacks_the_chosen_words_is_refused():
    with pytest.raises(ConfigError, match='no token "AAAAAA"'):
        DNA(DNAOptions(tokens="kmer")).use(DNA().tokenizer([], None))
    with pytest.raises(DomainError, match="no tokenizer yet"):
        DNA().encode(["ACGT"])


def test_encoding_no_text_gives_no_tokens():
    for tokens in ("base", "kmer", "block"):
        for texts in ([], [""]):
            encoded = make(tokens=tokens, k=3, unit="span").encode(texts)
            assert len(encoded.ids) == len(encoded.units) == 0
            assert encoded.lengths.tolist() == [0] * len(texts)
            assert encoded.offsets.shape == (0, 2)


# The other strand


def test_row14_the_reverse_complement_knows_all_codes_in_both_cases():
    assert reverse_complement("ACHVTWN") == "NWABDGT"
    for letter in BASES + AMBIGUOUS:
        for cased in (letter, letter.lower()):
            assert reverse_complement(reverse_complement(cased + "A")) == cased + "A"
            assert reverse_complement(cased).islower() == cased.islower()
    assert reverse_complement("RYKMBVDHSWN") == "NWSDHBVKMRY"
    with pytest.raises(DataError, match="'7' at position 2"):
        reverse_complement("A7")


def test_row14_the_reverse_complement_is_biopythons():
    from Bio.Seq import Seq

    text = "".join(a + b for a, b in product(BASES + AMBIGUOUS, repeat=2))
    assert reverse_complement(text) == str(Seq(text).reverse_complement())
    rna = text.replace("T", "U")
    assert reverse_complement(rna, "rna") == str(Seq(rna).reverse_complement_rna())


def test_row15_rna_pairs_with_u_and_labels_are_reversed():
    assert reverse_complement("GGAU", "rna") == "AUCC"
    dna = make()
    encoded = dna.encode(["GGAT"])
    ids, source = dna.augmentations()["reverse_complement"].change(encoded.ids, encoded.units, 1)
    assert dna.decode(ids) == "ATCC"
    assert np.array([1, 2, 3, 4])[source].tolist() == [4, 3, 2, 1]
    rna = make(alphabet="rna")
    ids, _ = rna.augmentations()["reverse_complement"].change(rna.encode([rna.canonical("GGAT")]).ids, None, 1)
    assert rna.decode(ids) == "AUCC"


def test_either_strand_comes_up_as_often():
    dna = make()
    ids = dna.encode(["ACGTTGCAAT"]).ids
    augment, generator = dna.augmentations()["reverse_complement"], np.random.default_rng(0)
    turned = sum(augment(ids, None, generator)[1][0] != 0 for _ in range(400))
    assert 160 < turned < 240  # four standard deviations of 400 even draws


def test_workers_get_the_domain_as_it_is():
    dna = make(tokens="kmer", k=3)
    copy = pickle.loads(pickle.dumps(dna))
    assert copy.encode(["ACGTA"]).ids.tolist() == dna.encode(["ACGTA"]).ids.tolist()
    assert pickle.loads(pickle.dumps(dna.augmentations()))


# The sample


def test_the_sample_is_300_different_stretches_of_which_none_needs_repair():
    dna, report = DNA(), Report()
    documents = [document for path in dna.sample().files for document in dna.read(path, report)]
    assert len(documents) == len({document.segments[0] for document in documents}) == 300
    assert {len(document.segments[0]) for document in documents} == {3000}
    assert report.repaired_records == report.skipped_records == 0
    assert sum(path.stat().st_size for path in dna.sample().files) < 300_000


def test_the_sample_stands_in_the_genome_where_its_names_say(shared_data):
    dna = DNA()
    (genome,) = dna.read(shared_data / "dna" / "genomes_ecoli" / "NC_008253.fna.gz", Report())
    for document in dna.read(dna.sample().files[0], Report()):
        place = document.id.removeprefix("NC_008253.1:")
        low, high = sorted(int(number) for number in place.lstrip("c").split("-"))
        stretch = genome.segments[0][low - 1 : high]
        assert document.segments[0] == (reverse_complement(stretch) if place.startswith("c") else stretch)
