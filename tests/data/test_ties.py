"""What keeps records on one side: metadata keys, cluster files of other programs, similarity; and what is told."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from homologs import homolog, protein
from letters import GroupedLetters, Letters, build, write_documents

from seqbert import registry
from seqbert.data.corpus import TRAIN, VALIDATION, Corpus
from seqbert.data.holdout import hold_out
from seqbert.data.ties import Grouping, SplitConfig, read_clusters
from seqbert.domain import Example
from seqbert.errors import ConfigError, DataError
from seqbert.tasks import build_task
from seqbert.tasks.classification import ClassificationConfig
from seqbert.training.finetune_config import FinetuneDataConfig
from seqbert.training.finetune_data import read_labelled

CDHIT = """>Cluster 0
0\t331aa, >sp|P00001|ONE_HUMAN... *
1\t330aa, >sp|P00002|TWO_MOUSE... at 91.52%
>Cluster 1
0\t120aa, >alone... *
"""
MMSEQS = "P00001\tP00001\nP00001\tP00002\nalone\talone\n"


def labels_of(path: Path, *names: str) -> list[int]:
    grouping = Grouping(str(path), "data.split.by")
    for name in names:
        grouping.add(name, {})
    return grouping.ties().labels.tolist()


@pytest.mark.parametrize("text", [CDHIT, MMSEQS, MMSEQS.replace("\n", "\r\n")], ids=["cd-hit", "mmseqs2", "crlf"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_cluster_files_are_told_by_their_content(text: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "clusters.txt"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    one, two, alone, other = labels_of(path, "sp|P00001|ONE_HUMAN", "sp|P00002|TWO_MOUSE", "alone", "not in it")
    assert one == two != alone and other == -1


def test_names_that_cd_hit_has_cut_are_known_by_their_beginning(tmp_path: Path) -> None:
    path = tmp_path / "c.clstr"
    path.write_text(">Cluster 0\n0\t9aa, >a_name_of_many_lett... *\n1\t9aa, >short... at 90%\n", encoding="utf-8")
    assert labels_of(path, "a_name_of_many_letters", "short") == [0, 0]


def test_clusters_that_have_a_name_in_common_are_one(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text("a\tb\nc\td\nc\tb\n", encoding="utf-8")
    assert set(read_clusters(path).values()) == {0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc d\n", "line 2: 'c d' is not a representative, a tab and a member"),
        (">Cluster 0\n0\t9aa >a\n", "line 2: .* is not a line of CD-HIT"),
        ("\n\n", "names no record"),
        (">Cluster 0\n>Cluster 1\n", "names no record"),
        (">P1\nMKV\n", "line 1: '>P1' is not a representative"),
    ],
)
def test_a_file_of_something_else_is_an_error_that_names_the_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_clusters(path)


def test_names_without_record_and_records_without_name_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text("a\ta\na\tb\nc\tc\n", encoding="utf-8")
    grouping = Grouping(str(path), "data.split.by")
    for name in ("a", "b", "x", "y"):
        grouping.add(name, {})
    report = grouping.ties().report(np.array([False, False, True, False]))
    assert report["names_without_record"] == 1 and report["records_without_group"] == 2
    assert (report["groups"], report["largest"], report["on_both_sides"]) == (1, 2, 0)


def test_a_file_that_names_no_record_is_an_error_with_examples_of_both(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text(MMSEQS, encoding="utf-8")
    with pytest.raises(DataError, match=r'none of the 2 records.*3 records, such as "P00001".*the first record is "x"'):
        labels_of(path, "x", "y")


def test_a_key_that_is_neither_metadata_nor_a_file_is_an_error_that_says_so() -> None:
    grouping = Grouping("famly", "data.split.by")
    grouping.add("x", {"family": "kinase", "organism": "mouse"})
    with pytest.raises(DataError, match=r"data.split.by is \"famly\".*they have family, organism.*nor is there a file"):
        grouping.ties()


@pytest.mark.parametrize("wrong", [{"identity": 0}, {"identity": 1.0}, {"coverage": 1.5}, {"by": ""}])
def test_values_that_mean_nothing_are_errors(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SplitConfig(**wrong)  # type: ignore[arg-type]


def test_tied_records_are_on_one_side_and_large_clusters_are_not_preferred() -> None:
    rng = np.random.default_rng(0)
    sizes = [1] * 300 + [10] * 30
    ties = [number for number, size in enumerate(sizes) for _ in range(size)]
    examples = [Example(str(n), (protein(rng, 30),)) for n in range(len(ties))]
    kept, held = hold_out(examples, 0.2, ties=ties)
    groups = [{ties[int(example.id)] for example in part} for part in (kept, held)]
    assert len(held) == 120 and not groups[0] & groups[1]
    assert 2 <= sum(sizes[group] == 10 for group in groups[1]) <= 10


# Fine-tuning


def table(path: Path, texts: list[str]) -> str:
    rows = [f"p{number},{text},{'ab'[number % 2]}" for number, text in enumerate(texts)]
    path.write_text("id,sequence,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def families(seed: int, count: int = 30, members: int = 4) -> list[str]:
    rng = np.random.default_rng(seed)
    return [homolog(rng, parent, 0.75) for parent in [protein(rng, 150) for _ in range(count)] for _ in range(members)]


def test_fine_tuning_holds_out_whole_clusters_and_says_so(tmp_path: Path) -> None:
    split = SplitConfig(by="similarity")
    config = FinetuneDataConfig(train=[table(tmp_path / "t.csv", families(0))], validation=0.2, split=split)
    data = read_labelled(config, build_task(ClassificationConfig()), registry.load("protein")(), lambda what: None)
    of = [{int(example.id[1:]) // 4 for example in data.parts[part]} for part in (TRAIN, VALIDATION)]
    assert not of[0] & of[1] and len(data.parts[VALIDATION]) == 24
    report = data.reports[VALIDATION]["split"]
    assert report["by"] == "similarity" and report["groups"] == 30 and report["largest"] == 4
    assert report["held_out"] == {"groups": 6, "largest": 4} and report["on_both_sides"] == 0


def test_test_records_that_are_like_training_records_are_counted(tmp_path: Path) -> None:
    texts, notes = families(1), list[str]()
    rng = np.random.default_rng(9)
    config = FinetuneDataConfig(
        train=[table(tmp_path / "t.csv", texts)],
        validation=0,
        test=[table(tmp_path / "u.csv", [homolog(rng, texts[0], 0.7), homolog(rng, texts[9], 0.7), protein(rng)])],
        split=SplitConfig(by="similarity"),
    )
    data = read_labelled(config, build_task(ClassificationConfig()), registry.load("protein")(), notes.append)
    assert data.reports["test"]["grouped_with_train"]["records"] == 2
    assert any("2 of the 3 test records are of groups (by similarity)" in note for note in notes)


# Pretraining


def members(corpus: Corpus, part: str) -> list[str]:
    import pyarrow as pa

    names = [
        name
        for shard in range(corpus.manifest["shards"])
        for name in pa.ipc.open_file(corpus.folder / f"documents-{shard:05d}.arrow").read_all()["id"].to_pylist()
    ]
    return [names[row] for row in corpus.split(part).row.tolist()]


def proteins(folder: Path, texts: list[str]) -> Path:
    folder.mkdir()
    records = [f">p{number}\n{text}\n" for number, text in enumerate(texts)]
    (folder / "a.fasta").write_text("".join(records), encoding="utf-8")
    return folder


@pytest.mark.parametrize("by", ["similarity", "file"])
def test_pretraining_holds_out_whole_clusters_and_says_so(by: str, tmp_path: Path) -> None:
    texts = families(2, count=40)
    (tmp_path / "c.tsv").write_text("".join(f"p{n - n % 4}\tp{n}\n" for n in range(160)), encoding="utf-8")
    named = str(tmp_path / "c.tsv") if by == "file" else by
    corpus = build(
        proteins(tmp_path / "d", texts), registry.load("protein")(), validation=0.2, split=SplitConfig(by=named)
    )
    of = [{int(name[1:]) // 4 for name in members(corpus, part)} for part in (TRAIN, VALIDATION)]
    assert not of[0] & of[1] and 6 <= len(of[1]) <= 10
    report = corpus.report["split"]
    assert report["groups"] == 40 and report["largest"] == 4 and report["on_both_sides"] == 0
    assert report["held_out"]["groups"] == len(of[1])


def test_pretraining_splits_by_a_metadata_key(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for number in range(20):
        write_documents(folder / f"{number:02d}.letters", documents=5, seed=number, group=f"g{number}")
    corpus = build(folder, Letters(), validation=0.2, split=SplitConfig(by="group"))
    of = [{name.partition("-")[0] for name in members(corpus, part)} for part in (TRAIN, VALIDATION)]
    assert not of[0] & of[1] and of[1]
    assert corpus.report["split"]["by"] == "metadata: group" and corpus.report["split"]["groups"] == 20


def test_a_cluster_file_that_has_changed_makes_another_corpus(tmp_path: Path) -> None:
    folder, clusters = proteins(tmp_path / "d", families(3)), tmp_path / "c.tsv"
    found = set()
    for text in ("p0\tp1\n", "p0\tp1\np0\tp2\n"):
        clusters.write_text(text, encoding="utf-8")
        found.add(build(folder, registry.load("protein")(), split=SplitConfig(by=str(clusters))).folder)
    assert len(found) == 2


def test_data_of_one_family_cannot_be_split_by_similarity(tmp_path: Path) -> None:
    folder = proteins(tmp_path / "d", families(4, count=1, members=20))
    with pytest.raises(DataError, match=r"1 groups were found by similarity, and the largest has 100%"):
        build(folder, registry.load("protein")(), split=SplitConfig(by="similarity"))


def test_a_named_validation_file_is_compared_with_training(tmp_path: Path) -> None:
    texts = families(5)
    folder = proteins(tmp_path / "d", texts)
    rng = np.random.default_rng(6)
    held = tmp_path / "v.fasta"
    held.write_text(f">a\n{homolog(rng, texts[0], 0.8)}\n>b\n{protein(rng)}\n", encoding="utf-8")
    corpus = build(folder, registry.load("protein")(), validation=str(held), split=SplitConfig(by="similarity"))
    assert corpus.report["split"]["on_both_sides"] == 1
    assert corpus.report["split"]["held_out"]["groups"] == 2


def test_equal_documents_of_two_languages_are_on_one_side(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for number in range(4):
        write_documents(folder / f"{number}.letters", documents=1, segments=(30, 30), seed=number, group="x")
    blocks = [
        f"#{group}\nabc def {'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]} gh" for n in range(100) for group in "xy"
    ]
    (folder / "equal.letters").write_text("\n\n".join(blocks), encoding="utf-8")
    corpus = build(folder, GroupedLetters(), validation=0.1)
    texts = [
        {
            tuple(corpus.store.ids(*split.stretch(number, 0, int(split.tokens[number]))).tolist())
            for number in range(split.documents)
        }
        for split in (corpus.split(TRAIN), corpus.split(VALIDATION))
    ]
    assert texts[1] and not texts[0] & texts[1]
