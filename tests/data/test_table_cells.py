from pathlib import Path

import pytest

from domains.dna import DNA
from domains.protein import Protein
from domains.text import Text
from seqbert.data.table import TableOptions, read_examples
from seqbert.domain import Domain, Report
from seqbert.errors import DataError


@pytest.mark.parametrize(
    ("domain", "cell", "changed"),
    [
        (Protein(), "mkt-AYI1", "lower-case residues upper-cased"),
        (DNA(), "acgu", "lower-case bases upper-cased"),
        (Text(), "soft\u00adhyphen", "control characters and invisible marks removed"),
    ],
)
def test_what_is_changed_in_a_cell_is_counted_and_refused_where_strict(
    domain: Domain, cell: str, changed: str, tmp_path: Path
) -> None:
    path, report = tmp_path / "table.csv", Report()
    path.write_text(f"sequence,label\n{cell},a\n", encoding="utf-8")
    assert len(list(read_examples([path], "classification", TableOptions(), domain, report))) == 1
    assert changed in report.to_dict()["changed"]
    with pytest.raises(DataError, match=r"table\.csv:\d+: .* strict is true"):
        list(read_examples([path], "classification", TableOptions(), domain, Report(strict=True)))
