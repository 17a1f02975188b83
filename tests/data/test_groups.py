import numpy as np
import pytest

from seqbert.data.groups import SECTION, Groups
from seqbert.data.sampling import BLOCK


@pytest.mark.parametrize("in_order", [True, False])
def test_a_document_is_found_by_its_group_and_number_and_the_other_way_round(in_order: bool) -> None:
    draw = np.random.default_rng(0)
    column = draw.choice([1, 2, 900], 3 * BLOCK + 7, p=[0.6, 0.3999, 0.0001]).astype(np.uint16)
    if in_order:
        column.sort()
    groups = Groups(len(column), column)
    assert groups.codes.tolist() == [1, 2, 900]
    assert groups.documents.tolist() == [np.count_nonzero(column == code) for code in (1, 2, 900)]
    for group, code in enumerate(groups.codes):
        members = np.flatnonzero(column == code)
        for number in {0, 1, len(members) // 3, len(members) - 1}:
            assert groups.document(group, number) == members[number]
            assert groups.place(int(members[number])) == (group, number)


def test_documents_of_one_group_are_numbered_as_they_stand() -> None:
    groups = Groups(2 * SECTION + 5)
    assert groups.documents.tolist() == [2 * SECTION + 5]
    for document in (0, SECTION, 2 * SECTION + 4):
        assert groups.place(document) == (0, document)
        assert groups.document(0, document) == document


def test_sums_over_the_cells_of_a_group_are_those_over_its_documents() -> None:
    draw = np.random.default_rng(0)
    column, values = draw.integers(0, 5, BLOCK + 3).astype(np.uint16), draw.integers(0, 2**40, BLOCK + 3)
    groups = Groups(len(column), column)
    sums = groups.sums_by_group(groups.sums(lambda section: values[section]))
    assert sums.tolist() == [values[column == code].sum() for code in range(5)]


def test_there_are_no_groups_without_documents() -> None:
    assert len(Groups(0)) == len(Groups(0, np.zeros(0, np.uint16))) == 0
    assert Groups(0).documents.tolist() == []
