"""Real labelled files: the counts are those of their sources, or are made here in another way."""

import csv
import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seqbert import registry
from seqbert.data.holdout import shared_sequences
from seqbert.data.table import Columns, TableOptions, find_tables, read_examples
from seqbert.domain import Domain, Example, Report

MRPC = Columns(sequence="#1 String", pair="#2 String", label="Quality")


@pytest.fixture(scope="module")
def domains() -> dict[str, Domain]:
    return {name: registry.load(name)() for name in ("text", "protein", "dna", "multilingual")}


def read(domain: Domain, task: str, *paths: Path, labelled: bool = True, **keys: Any) -> list[Example]:
    report = Report()
    examples = list(read_examples(paths, task, TableOptions(**keys), domain, report, labelled=labelled))
    assert not report.skips and not report.repairs and report.yielded == len(examples)
    return examples


def lines(path: Path) -> int:
    """Lines of a file, the last of which may lack its end."""
    return len(path.read_bytes().rstrip(b"\n").split(b"\n"))


def test_mrpc_has_every_pair_in_all_its_files(shared_data: Path, domains: dict[str, Domain]) -> None:
    folder = shared_data / "text" / "glue_mrpc"
    counts = {}
    for name in ("train.tsv", "dev.tsv", "msr_paraphrase_train.txt"):
        examples = read(domains["text"], "classification", folder / name, columns=MRPC)
        assert len(examples) == lines(folder / name) - 1
        assert {example.label for example in examples} == {"0", "1"}
        assert {len(example.sequences) for example in examples} == {2}
        counts[name] = len(examples)
    assert counts["msr_paraphrase_train.txt"] == 4076  # Dolan and Brockett 2005
    test = read(domains["text"], "classification", folder / "test.tsv", columns=MRPC, labelled=False)
    assert len(test) == 1725 and {example.label for example in test} == {None}
    assert [example.id for example in test[:2]] == ["0", "1"]


def test_sts_b_loses_no_row_to_its_unbalanced_quotes(shared_data: Path, domains: dict[str, Domain]) -> None:
    for name, rows in (("train.tsv", 5749), ("dev.tsv", 1500)):  # Cer et al. 2017, table 2
        path = shared_data / "text" / "glue_stsb" / name
        examples = read(domains["text"], "regression", path, columns=Columns(label="score"))
        assert len(examples) == lines(path) - 1 == rows
        assert all(0 <= example.label <= 5 for example in examples)


def test_the_other_glue_files_give_a_record_a_line(shared_data: Path, domains: dict[str, Domain]) -> None:
    text = shared_data / "text"
    cola: dict[str, Any] = {
        "names": ["source", "label", "star", "sentence"],
        "columns": Columns(sequence="sentence", label="label"),
    }
    qnli = {"columns": Columns(sequence="question", pair="sentence")}
    qqp = {"columns": Columns(label="is_duplicate")}
    layouts: list[tuple[str, dict[str, Any], int]] = [
        ("glue_cola/train.tsv", cola, 0),
        ("glue_cola/test.tsv", cola, 1),
        ("glue_sst2/dev.tsv", {}, 1),
        ("glue_sst2/test.tsv", {}, 1),
        ("glue_qnli_dev_test/dev.tsv", qnli, 1),
        ("glue_qnli_dev_test/test.tsv", qnli, 1),
        ("glue_qqp_tiny/train.tsv", qqp, 1),
        ("glue_qqp_tiny/dev.tsv", qqp, 1),
        ("glue_qqp_tiny/test.tsv", qqp, 1),
        ("glue_rte/train.tsv", {}, 1),
        ("glue_rte/test.tsv", {}, 1),
        ("glue_wnli/train.tsv", {}, 1),
        ("glue_wnli/test.tsv", {}, 1),
    ]
    for name, keys, header in layouts:
        labelled = not name.endswith("test.tsv")
        examples = read(domains["text"], "classification", text / name, labelled=labelled, **keys)
        assert len(examples) == lines(text / name) - header, name
        assert labelled == all(example.label is not None for example in examples), name


def test_squad_2_has_its_questions_and_its_unanswerable_ones(shared_data: Path, domains: dict[str, Domain]) -> None:
    folder = shared_data / "text" / "squad2_cs224n_dev"
    examples = read(domains["text"], "span", folder / "dev-v2.0.json")
    assert len(examples) == 6078 and sum(example.label == [] for example in examples) == 3168
    assert len({example.metadata["title"] for example in examples}) == 16
    assert len({example.id for example in examples}) == 6078
    xquad = shared_data / "multilingual" / "xquad"
    for language in ("en", "es", "zh"):
        examples = read(domains["multilingual"], "span", xquad / f"xquad.{language}.json")
        assert len(examples) == 1190 and all(example.label for example in examples)  # Artetxe et al. 2020


def test_ewt_has_the_sentences_and_words_that_its_lines_say(shared_data: Path, domains: dict[str, Domain]) -> None:
    folder = shared_data / "text" / "ud_english_ewt"
    for name in ("en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu"):
        raw = (folder / name).read_text(encoding="utf-8").splitlines()
        examples = read(domains["text"], "tagging", folder / name)
        assert len(examples) == sum(line.startswith("# sent_id") for line in raw)
        words = [line.split("\t")[3] for line in raw if line[:1].isdigit() and line.split("\t")[0].isdigit()]
        assert [label for example in examples for label in example.label] == words
    with gzip.open(folder / "en_ewt-train-rebuilt.conllu.gz") as file:
        sentences = sum(line.startswith(b"1\t") for line in file)
    assert len(read(domains["text"], "tagging", folder / "en_ewt-train-rebuilt.conllu.gz")) == sentences == 12544


def test_column_files_of_named_entities_keep_every_word(shared_data: Path, domains: dict[str, Domain]) -> None:
    wnut, wikiann = shared_data / "text" / "ner_wnut17", shared_data / "multilingual" / "wikiann_de"
    files = [(wnut / name, None) for name in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")]
    for path, pattern in [*files, (wikiann / "dev", "^[a-z-]+:(.*)$")]:
        filled = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        examples = read(domains["text"], "tagging", path, word_pattern=pattern)
        assert [label for example in examples for label in example.label] == [line.split("\t")[-1] for line in filled]
        assert all(example.words is not None and len(example.words) == len(example.label) for example in examples)
    assert len(examples) == 10_000
    assert examples[0].sequences == ("anton wilhelm von zuccalmaglio .",)


def test_multilingual_pairs_and_choices(shared_data: Path, domains: dict[str, Domain]) -> None:
    folder = shared_data / "multilingual"
    for name, rows in (("train", 2245), ("dev", 250), ("test", 5010)):
        path = folder / "xnli_de" / f"{name}.txt"
        examples = read(domains["multilingual"], "classification", path, names=["premise", "hypothesis", "label"])
        assert len(examples) == rows
        assert {example.label for example in examples} == {"contradiction", "entailment", "neutral"}
    for path in find_tables("xcopa/*/*.jsonl", str(folder)):
        examples = read(domains["multilingual"], "choice", path, columns=Columns(sequence="premise"))
        assert len(examples) == (500 if path.name.startswith("test") else 100)  # Ponti et al. 2020
        assert {example.label for example in examples} == {0, 1} and {len(e.sequences) for e in examples} == {3}


def test_choices_of_swag_and_of_examinations(shared_data: Path, domains: dict[str, Domain]) -> None:
    examples = read(domains["text"], "choice", shared_data / "text" / "swag_sample" / "swag.csv")
    assert len(examples) == 11 and {len(example.sequences) for example in examples} == {5}
    assert examples[0].sequences[1].startswith("she pats her shoulder")
    paths = find_tables("mc_arc_mmlu/**/*.csv", str(shared_data / "text"))
    options = TableOptions(
        names=["question", "A", "B", "C", "D", "answer"], columns=Columns(choices=["A", "B", "C", "D"])
    )
    report = Report()
    found = list(read_examples(paths, "choice", options, domains["text"], report))
    rows = []
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows += list(csv.reader(file))
    whole = [row for row in rows if all(row) and row[-1] in "ABCD"]
    assert [example.label for example in found] == ["ABCD".index(row[-1]) for row in whole]
    assert report.skipped_records == len(rows) - len(whole)


def test_sick_serves_classification_and_regression(shared_data: Path, domains: dict[str, Domain]) -> None:
    path = shared_data / "text" / "nli_sick" / "SICK.txt"
    judged = read(domains["text"], "classification", path, columns=Columns(label="entailment_judgment"))
    related = read(domains["text"], "regression", path, columns=Columns(label="relatedness_score"))
    assert len(judged) == len(related) == lines(path) - 1 == 9927
    assert {example.label for example in judged} == {"ENTAILMENT", "NEUTRAL", "CONTRADICTION"}


def test_protein_tables_and_a_fasta_a_class(shared_data: Path, domains: dict[str, Domain]) -> None:
    folder, protein = shared_data / "protein", domains["protein"]
    for name, rows in (("train", 53_614), ("valid", 2512), ("test", 12_851)):  # Rao et al. 2019
        examples = read(protein, "regression", folder / "tape_stability" / f"stability.{name}.csv")
        assert len(examples) == rows
    for name, rows in (("valid", 2170), ("test", 513)):
        path = folder / "tape_secondary_structure" / f"secondary_structure.{name}.csv"
        examples = read(protein, "tagging", path)
        assert len(examples) == rows
        assert {label for example in examples for label in example.label} == {"0", "1", "2"}
    paths = find_tables("multiloc", str(folder), protein)
    examples = read(protein, "classification", *paths, label_from="file")
    headers = {path.stem: path.read_text(encoding="utf-8").count(">") for path in paths}
    assert Counter(example.label for example in examples) == headers
    assert len(examples) == 5959 and len(headers) == 11


def test_sixteen_test_sequences_of_the_tata_promoters_stand_in_train(
    shared_data: Path, domains: dict[str, Domain]
) -> None:
    folder = shared_data / "dna" / "gue_prom_core_tata"
    train, test = (read(domains["dna"], "classification", folder / f"{name}.csv") for name in ("train", "test"))
    assert (len(train), len(test), shared_sequences(train, test)) == (4904, 613, 16)


def test_records_of_a_hostile_fasta_file_are_read_for_prediction(shared_data: Path, domains: dict[str, Domain]) -> None:
    path = shared_data / "hostile" / "dna" / "biopython__nucleotide_lib.fa"
    report = Report()
    examples = list(read_examples([path], "classification", TableOptions(), domains["dna"], report, labelled=False))
    assert len(examples) == path.read_text(encoding="utf-8").count(">") == len({example.id for example in examples})
