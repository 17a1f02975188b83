"""Tables and a domain's own records are told apart by content where an ending says nothing."""

from pathlib import Path

import pytest

from seqbert import registry
from seqbert.data.table_files import format_of
from seqbert.data.table_options import Task


def kind(folder: Path, name: str, content: str, domain: str, task: Task = "classification") -> str:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return format_of(path, task, registry.load(domain)())


@pytest.mark.parametrize("domain", ["text", "multilingual", "protein", "dna", "music"])
@pytest.mark.parametrize("name", ["a", "a.packed", "a.download"])
def test_a_table_is_a_table_for_every_domain_under_any_ending(tmp_path: Path, domain: str, name: str) -> None:
    assert kind(tmp_path, name, "text,label\none,a\n", domain) == "csv"
    assert kind(tmp_path, name, "text\tlabel\none\ta\ntwo\tb\n", domain) == "tsv"
    assert kind(tmp_path, name, '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n', domain) == "jsonl"
    assert kind(tmp_path, name, '[{"text": "a", "label": 1}]', domain) == "json"
    assert kind(tmp_path, name, "one X\ntwo Y\n\nthree Y\n", domain, "tagging") == "columns"


@pytest.mark.parametrize("name", ["a", "a.txt", "a.fasta", "a.packed"])
def test_fasta_stays_the_records_of_its_domain_under_any_ending(tmp_path: Path, name: str) -> None:
    assert kind(tmp_path, name, ">sp|P1|X, a\nMKVLWAAL\n>sp|P2|Y, b\nMKVLWERF\n", "protein") == "records"
    assert kind(tmp_path, name, ">chr1,a\nACGTACGTAA\n", "dna") == "records"


def test_scores_and_pages_stay_records_and_prose_with_commas_is_no_table(tmp_path: Path) -> None:
    kern = "**kern\t**kern\n*M4/4\t*M4/4\n4c\t4e\n4d\t4f\n*-\t*-\n"
    assert kind(tmp_path, "a.krn", kern, "music") == "records"
    assert kind(tmp_path, "a.packed", kern, "music") == "records"
    assert kind(tmp_path, "a.txt", "Roses are red, my love\nViolets are blue, my dear\n", "text") == "records"
    assert kind(tmp_path, "wiki_00", '<doc id="1" title="x">\none, two\n</doc>\n', "text") == "records"
