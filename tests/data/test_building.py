import hashlib
from pathlib import Path

import numpy as np
import pytest
from letters import GroupedLetters, Letters, build, write_documents
from tokenizers import Tokenizer, models

from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.corpus import LAYOUT, TRAIN, VALIDATION, Corpus
from seqbert.errors import CheckpointError, DataError


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(5):
        write_documents(folder / f"{number}.letters", documents=20, seed=number)
    return folder


def tokens_of(corpus: Corpus, part: str) -> list[list[int]]:
    split = corpus.split(part)
    return [
        corpus.store.ids(*split.stretch(document, 0, int(split.tokens[document]))).tolist()
        for document in range(split.documents)
    ]


def test_a_corpus_has_the_same_bytes_for_any_number_of_processes(files: Path, tmp_path: Path) -> None:
    digests = []
    for processes in (1, 2, 3):
        request = BuildRequest(Letters(), [str(files)])
        corpus = build_corpus(request, tmp_path / str(processes), processes)
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in corpus.folder.iterdir()})
    assert digests[0] == digests[1] == digests[2]


def test_training_and_held_out_documents_are_all_documents_and_their_tokens_are_the_tokenizers(files: Path) -> None:
    domain = Letters()
    corpus = build(files, domain)
    found = sorted(tokens_of(corpus, TRAIN) + tokens_of(corpus, VALIDATION))
    texts = [block.split() for path in files.iterdir() for block in path.read_text().strip().split("\n\n")]
    expected = [[5 + "abcdefghij".index(letter) for word in words for letter in word] for words in texts]
    assert found == sorted(expected)
    held_out = corpus.report["validation"]["tokens"]
    assert 0.025 < held_out / corpus.manifest["tokens"] < 0.08


def test_token_ids_take_the_smallest_integer_type(files: Path) -> None:
    assert build(files).store.ids(0, 3).dtype == np.uint8


def test_a_corpus_is_found_again_until_a_file_or_an_option_changes(files: Path) -> None:
    first = build(files).folder
    assert build(files).folder == first
    assert build(files, validation=0.2).folder != first
    write_documents(files / "0.letters", documents=21)
    assert build(files).folder != first


def test_equal_documents_are_counted_and_stand_on_one_side(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "a.letters", documents=60)
    (folder / "b.letters").write_text((folder / "a.letters").read_text())
    corpus = build(folder, validation=0.2)
    assert corpus.report["duplicate_documents"] == 60
    train, held_out = ({tuple(row) for row in tokens_of(corpus, part)} for part in (TRAIN, VALIDATION))
    assert held_out and not train & held_out


def test_of_one_long_document_the_end_is_held_out(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    write_documents(folder / "one.letters", documents=1, segments=(200, 200))
    corpus = build(folder, validation=0.1)
    train, held_out = tokens_of(corpus, TRAIN), tokens_of(corpus, VALIDATION)
    assert len(train) == len(held_out) == 1
    assert abs(len(held_out[0]) / corpus.manifest["tokens"] - 0.1) < 0.02


def test_a_validation_file_holds_exactly_the_held_out_documents(files: Path, tmp_path: Path) -> None:
    write_documents(tmp_path / "held.letters", documents=3, seed=99)
    corpus = build(files, validation=str(tmp_path / "held.letters"))
    assert corpus.report["validation"]["documents"] == 3
    assert corpus.report["train"]["documents"] == 100


def test_each_group_is_held_out_from_alike(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for group, documents in (("x", 40), ("y", 400)):
        write_documents(folder / f"{group}.letters", documents, group=group, seed=documents)
    corpus = build(folder, GroupedLetters(), validation=0.1)
    assert set(corpus.manifest["groups"]) == {"x", "y"}
    assert set(corpus.split(VALIDATION).group.tolist()) == {0, 1}


def test_unigram_bits_are_those_of_the_training_tokens_with_one_added(files: Path) -> None:
    corpus = build(files)
    counts = np.bincount([token for row in tokens_of(corpus, TRAIN) for token in row], minlength=15)[5:] + 1
    assert np.allclose(corpus.unigram_bits[5:], -np.log2(counts / counts.sum()))


def test_files_that_the_domain_does_not_know_are_listed_and_unreadable_ones_are_left_out(files: Path) -> None:
    (files / "notes.txt").write_text("not letters")
    (files / "broken.letters").write_text("a\0b")
    report = build(files).report
    reasons = {Path(entry["file"]).name: entry["reason"] for entry in report["skipped_files"]}
    assert "binary" in reasons["broken.letters"] and "not a kind of file" in reasons["notes.txt"]
    assert report["records"]["in"] == report["records"]["read"] == 100


@pytest.mark.parametrize(
    ("entry", "message"),
    [("nowhere", "no file or folder"), ("*.none", "Nothing matches"), ("empty", "it is empty")],
)
def test_data_that_is_not_there_is_named(tmp_path: Path, entry: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        build(tmp_path / "x", data=[str(tmp_path / entry)])


def test_a_named_file_that_yields_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "blank.letters").write_text("\n\n")
    with pytest.raises(DataError, match="blank.letters"):
        build(tmp_path / "x", data=[str(tmp_path / "blank.letters")])


def test_a_named_file_that_cannot_be_read_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "broken.letters").write_text("a\0b")
    with pytest.raises(DataError, match="binary"):
        build(tmp_path / "x", data=[str(tmp_path / "broken.letters")])


def test_a_file_that_is_named_twice_is_read_once(files: Path) -> None:
    report = build(files, data=[str(files), str(files / "0.letters"), str(files / ".." / "files" / "1.letters")]).report
    assert report["files"] == 5


def test_a_held_out_file_inside_the_data_folder_is_not_trained_on(files: Path) -> None:
    corpus = build(files, validation=str(files / "0.letters"))
    assert corpus.report["train"]["documents"] == 80 and corpus.report["validation"]["documents"] == 20


def test_of_a_document_with_one_long_segment_no_more_than_the_share_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.letters").write_text("abc\n" + "abcdefghij" * 300)
    corpus = build(tmp_path / "files", validation=0.1)
    assert abs(corpus.report["validation"]["tokens"] / corpus.manifest["tokens"] - 0.1) < 0.01
    assert corpus.report["held_out"] == {"whole_documents": 0, "ends_of_documents": 1}


def test_a_file_that_breaks_off_is_listed_with_what_was_kept(files: Path) -> None:
    class Breaking(Letters):
        def read(self, path, report):  # type: ignore[no-untyped-def]
            for number, document in enumerate(super().read(path, report)):
                if path.stem == "3" and number == 7:
                    raise DataError(f"{path} is cut off.")
                yield document

    report = build(files, Breaking()).report
    (entry,) = report["skipped_files"]
    assert "cut short after 7 records" in entry["reason"] and report["records"]["in"] == 87


def test_a_tokenizer_without_the_special_tokens_is_refused(files: Path) -> None:
    bare = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]"))
    with pytest.raises(DataError, match="CLS"):
        build(files, tokenizer=bare.to_str())


def test_no_half_built_corpus_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "broken.letters").write_text("a\0b")
    with pytest.raises(DataError):
        build(tmp_path / "x", data=[str(tmp_path / "broken.letters")])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_corpus_of_another_layout_is_refused(files: Path) -> None:
    folder = build(files).folder
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"layout": {LAYOUT}', '"layout": 999'))
    with pytest.raises(CheckpointError, match="layout 999"):
        Corpus(folder)
