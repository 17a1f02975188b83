import pytest
from Bio.SeqUtils.ProtParam import ProteinAnalysis

from domains.protein import STANDARD, Protein
from domains.protein.tables import HYDROPATHY, hydropathy


def test_the_words_of_a_protein_are_its_residues():
    assert Protein().words("MKT").tolist() == [[0, 1], [1, 2], [2, 3]]


def test_hydropathy_is_biopythons_gravy():
    assert set(HYDROPATHY) == set(STANDARD)
    for example in list(Protein().sample().tables["regression"]())[::100]:
        assert example.label == pytest.approx(ProteinAnalysis(example.sequences[0]).gravy())
        assert example.label == hydropathy(example.sequences[0])


def test_a_disulfide_loop_begins_and_ends_with_the_only_cysteines():
    for example in Protein().sample().tables["span"]():
        context = example.sequences[1]
        ((start, end),) = example.label
        assert context[start] == context[end - 1] == "C"
        assert context.count("C") == 2


def test_only_the_right_choice_begins_as_proteins_do():
    for example in Protein().sample().tables["choice"]():
        assert [text[0] == "M" for text in example.sequences[1:]].index(True) == example.label
