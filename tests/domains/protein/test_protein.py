import pickle

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from domains.protein import RARE, STANDARD, Protein, ProteinOptions
from seqbert.domain import Report
from seqbert.errors import ConfigError, DataError, DomainError

SPECIAL = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def make(**options):
    protein = Protein(ProteinOptions(**options))
    protein.use(protein.tokenizer([], None))
    return protein


def read(tmp_path, content, strict=False, name="x.fasta", **options):
    path = tmp_path / name
    path.write_bytes(content)
    report = Report(strict)
    return list(make(**options).read(path, report)), report


def test_the_whole_uniprot_folder_is_read(shared_data):
    """20,500 sequences and 9,301,399 residues, as Bio.SeqIO counts them."""
    protein, report = Protein(), Report()
    files = [path for path in sorted((shared_data / "protein" / "uniprot_mmseqs2").iterdir()) if protein.reads(path)]
    assert [path.name for path in files] == ["DB.fasta.gz", "QUERY.fasta.gz"]
    lengths = [len(document.segments[0]) for path in files for document in protein.read(path, report)]
    assert (len(lengths), sum(lengths)) == (20_500, 9_301_399)
    assert report.skipped_records == report.repaired_records == 0


def test_hostile_files_give_every_record_or_say_why_not(shared_data):
    """Records in each file as ``grep -c`` counts the lines that begin one."""
    counts = {
        "DMB_prot.pir": (6, 0),
        "NC_005816.faa": (10, 0),
        "P0A186.txt": (1, 0),
        "P60137.txt": (1, 0),
        "R5HY77.xml": (1, 0),
        "aster_blast.pro": (1, 0),
        "dottednum.fasta": (7, 7),  # of nucleotides
        "multi_ex.fasta": (8, 0),
        "multi_ex.txt": (8, 0),
        "protein_refseq.gb": (1, 0),
        "rosemary.pro": (1, 0),
    }
    folder = shared_data / "hostile" / "protein"
    assert {path.name.removeprefix("biopython__") for path in folder.iterdir()} == set(counts)
    for name, (records, skipped) in counts.items():
        path = folder / f"biopython__{name}"
        documents = list(Protein().read(path, report := Report()))
        assert Protein().reads(path)
        assert (len(documents), report.skipped_records) == (records - skipped, skipped)
        assert len({document.id for document in documents}) == len(documents)


def test_row16_every_letter_and_sign_has_a_token_or_a_stated_change():
    protein = make()
    assert protein.canonical("QWE--RT*JBZUO") == "QWERT*JBZUO"
    ids = protein.encode(["QWERT*JBZUO"]).ids
    assert protein.vocabulary.token_to_id("[UNK]") not in ids
    assert protein.decode(ids) == "QWERT*JBZUO"
    assert protein.canonical("".join(map(chr, range(32, 127)))).strip(STANDARD + RARE) == ""


def test_row16_a_digit_stops_the_run_where_asked_and_names_record_and_position(tmp_path):
    with pytest.raises(DataError, match=r"x\.fasta, record 2 \(b\): '1' at position 3 "):
        read(tmp_path, b">a\nMK\n>b\nMK1V\n", unknown="error")


def test_row16_unknown_characters_are_replaced_or_their_record_is_skipped_and_both_are_told(tmp_path):
    documents, report = read(tmp_path, b">a\nMK\n>b\nMK1V@\n")
    assert [document.segments for document in documents] == [["MK"], ["MKXVX"]]
    assert report.repaired_records == 1
    assert report.tallies["characters that are no residue written as X"] == 2
    documents, report = read(tmp_path, b">a\nMK\n>b\nMK1V@\n", unknown="skip")
    assert [document.id for document in documents] == ["a"]
    assert report.skips == {"a character that is no residue": 1}


def test_row17_lower_case_is_upper_case_and_counted(tmp_path):
    protein = make()
    assert protein.canonical("acdefg") == "ACDEFG"
    assert protein.encode(["acdefg"]).ids.tolist() == protein.encode(["ACDEFG"]).ids.tolist()
    documents, report = read(tmp_path, b">p\nacDE\n")
    assert documents[0].segments == ["ACDE"]
    assert report.tallies == {"lower-case residues upper-cased": 2}


def test_row18_gaps_are_taken_out_and_counted_or_kept_as_one_token(tmp_path):
    documents, report = read(tmp_path, b">p\nAA--A.\n")
    assert documents[0].segments == ["AAA"]
    assert report.tallies == {"gaps removed": 3}
    documents, report = read(tmp_path, b">p\nAA--A.\n", gaps="keep")
    assert documents[0].segments == ["AA--A-"]
    assert report.notes == {"gaps kept": 3}
    assert report.tallies == {"gaps . written as -": 1}
    kept = make(gaps="keep")
    assert kept.decode(kept.encode(["AA--A-"]).ids) == "AA--A-"


def test_row21_stops_are_legal_and_counted_by_where_they_stand(tmp_path):
    documents, report = read(tmp_path, b">p\nGHK*LM*\n")
    assert documents[0].segments == ["GHK*LM"]
    assert report.notes == {"inner stops kept": 1}
    assert report.tallies == {"terminal stops stripped": 1}
    documents, report = read(tmp_path, b">p\nGHK*LM*\n", strict=True, terminal_stop="keep")
    assert documents[0].segments == ["GHK*LM*"]
    assert report.notes == {"inner stops kept": 1, "terminal stops kept": 1}
    with pytest.raises(DataError, match=r"x\.fasta:1: terminal stops stripped"):
        read(tmp_path, b">p\nGHK*LM*\n", strict=True)


def test_a_record_of_nothing_but_gaps_is_skipped(tmp_path):
    documents, report = read(tmp_path, b">p\n--*\n>q\nMK\n")
    assert [document.id for document in documents] == ["q"]
    assert report.skips == {"nothing but gaps or a stop": 1}


def test_nucleotides_are_skipped(tmp_path):
    documents, report = read(tmp_path, b">p\n" + b"acgtun" * 10 + b"\n>q\nACGT\n")
    assert [document.id for document in documents] == ["q"]
    assert report.skips == {"nucleotides, not a protein": 1}


def test_what_a_header_says_is_metadata(tmp_path):
    documents, _ = read(
        tmp_path,
        b">sp|P00750|TPA_HUMAN Plasminogen activator OS=Homo sapiens OX=9606 GN=PLAT PE=1 SV=1\nMK\n",
    )
    assert documents[0].id == "P00750"
    assert documents[0].metadata == {
        "description": "Plasminogen activator",
        "entry": "TPA_HUMAN",
        "organism": "Homo sapiens",
        "taxon": "9606",
        "gene": "PLAT",
    }


def test_ambiguous_and_rare_residues_are_kept_and_noted_by_letter(tmp_path):
    documents, report = read(tmp_path, b">p\nMXBZJUOX\n", strict=True)
    assert documents[0].segments == ["MXBZJUOX"]
    assert report.notes == {
        "X (any residue) kept": 2,
        "B (Asp or Asn) kept": 1,
        "Z (Glu or Gln) kept": 1,
        "J (Leu or Ile) kept": 1,
        "U (selenocysteine) kept": 1,
        "O (pyrrolysine) kept": 1,
    }


def test_insertions_of_an_alignment_are_residues_or_are_dropped(tmp_path):
    a3m = b">q\nMKTAYI\n>h\nMK-aAYI\n>i\nMKTAYI\n"
    documents, _ = read(tmp_path, a3m, name="x")
    assert [document.segments for document in documents] == [["MKTAYI"], ["MKAAYI"], ["MKTAYI"]]
    documents, report = read(tmp_path, a3m, name="x", insertions="drop", gaps="keep")
    assert [document.segments for document in documents] == [["MKTAYI"], ["MK-AYI"], ["MKTAYI"]]
    assert report.tallies == {"insertions of an alignment dropped": 1}
    documents, report = read(tmp_path, b">q\nMKTayi\n", name="x.fasta", insertions="drop")
    assert documents[0].segments == ["MKTAYI"]  # of no alignment


def test_families_and_organisms_of_swissprot_are_there_to_group_by(shared_data):
    path = shared_data / "hostile" / "protein" / "biopython__multi_ex.txt"
    documents = list(Protein().read(path, Report(strict=True)))
    assert documents[0].metadata["family"] == "peptidase S1 family"
    assert documents[0].metadata["organism"] == "Homo sapiens"
    assert documents[0].metadata["taxon"] == "9606"


def test_the_vocabulary_is_the_same_32_tokens_every_time():
    one, other = Protein().tokenizer(iter(()), None), Protein().tokenizer(iter(()), 32)
    assert one.to_str() == other.to_str()
    assert one.get_vocab_size() == 5 + 26 + 1
    with pytest.raises(ConfigError, match="needs 32 tokens"):
        Protein().tokenizer([], 31)


def test_the_first_30_tokens_are_those_of_protbert():
    """Rostlab/prot_bert's vocab.txt holds the special tokens and these 25 letters in this order."""
    tokenizer = Protein().tokenizer([], None)
    assert "".join(tokenizer.id_to_token(i) for i in range(5, 30)) == "LAGVESIKRDTPNQFYMHCWXUBZO"


def test_ids_are_the_tokenizers_own_and_those_of_transformers():
    protein = make()
    texts = ["MKTAYIAKQR", "", "acdu*", STANDARD + RARE, "M[MASK]", "M1é漢"]
    encoded = protein.encode(texts)
    own = [protein.vocabulary.encode(text, add_special_tokens=False) for text in texts]
    assert encoded.ids.tolist() == [i for one in own for i in one.ids]
    assert encoded.lengths.tolist() == [len(one.ids) for one in own]
    assert encoded.offsets.tolist() == [list(span) for one in own for span in one.offsets]
    assert encoded.units is None
    assert protein.encode(texts, offsets=False).offsets is None

    fast = PreTrainedTokenizerFast(tokenizer_object=make().vocabulary, **SPECIAL)
    specials = [fast.cls_token_id, fast.sep_token_id]
    ids = protein.encode(["MKTAYIAKQR"]).ids.tolist()
    assert fast("MKTAYIAKQR")["input_ids"] == [specials[0], *ids, specials[1]]
    pair = protein.vocabulary.encode("MK", "TA")
    assert pair.tokens == ["[CLS]", "M", "K", "[SEP]", "T", "A", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]


def test_encoding_no_text_gives_no_tokens():
    encoded = make().encode([])
    assert len(encoded.ids) == len(encoded.lengths) == 0
    assert encoded.offsets.shape == (0, 2)


def test_without_a_tokenizer_the_error_says_so():
    with pytest.raises(DomainError, match="no tokenizer yet"):
        Protein().encode(["MK"])


def test_a_tokenizer_of_another_alphabet_is_refused():
    from domains.dna import DNA

    with pytest.raises(ConfigError, match="no token for the residue L"):
        Protein().use(DNA().tokenizer([], None))


def test_a_wrong_option_is_an_error_that_lists_the_right_ones():
    with pytest.raises(ConfigError, match=r'gaps is "removed"; it is one of remove, keep. Did you mean "remove"'):
        ProteinOptions(gaps="removed")


def test_canonical_text_is_as_read_and_stays_as_it_is():
    protein = make()
    assert protein.canonical(" mk tay\n-ia* ") == "MKTAYIA"
    assert protein.canonical(protein.canonical("mk*t1")) == protein.canonical("mk*t1") == "MK*TX"
    with pytest.raises(DataError, match="'é' at position 2"):
        make(unknown="skip").canonical("mé")


def test_what_is_written_is_read_back(tmp_path):
    make().write("MK" * 50, tmp_path / "x.fasta")
    (document,) = make().read(tmp_path / "x.fasta", Report())
    assert document.segments == ["MK" * 50]


def test_workers_get_the_domain_as_it_is():
    protein = make()
    copy = pickle.loads(pickle.dumps(protein))
    assert np.array_equal(copy.encode(["MKTA"]).ids, protein.encode(["MKTA"]).ids)


def test_the_sample_is_130_different_proteins_of_9_families_of_which_none_needs_repair():
    protein, report = Protein(), Report()
    documents = [document for path in protein.sample().files for document in protein.read(path, report)]
    assert len(documents) == len({document.id for document in documents}) == 130
    assert len({document.segments[0] for document in documents}) == 130
    assert sum(len(document.segments[0]) for document in documents) == 64_206
    assert len({document.metadata["description"].removesuffix(" (Fragment)") for document in documents}) == 9
    assert all(document.metadata["organism"] for document in documents)
    assert len({document.metadata["organism"] for document in documents}) == 119
    assert report.repaired_records == report.skipped_records == 0
    assert sum(path.stat().st_size for path in protein.sample().files) < 20_000
