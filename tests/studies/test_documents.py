"""Documents that a study makes out of others."""

import itertools
from pathlib import Path

import pytest

from seqbert import registry
from seqbert.errors import DataError
from seqbert.studies.documents import SHUFFLED, WHOLE, texts


def read(path: Path) -> list[list[str]]:
    return [document.splitlines() for document in path.read_text(encoding="utf-8").strip().split("\n\n")]


def test_the_samples_documents_are_written_whole_and_with_the_same_segments_dealt_out_anew(tmp_path: Path) -> None:
    (row,) = texts(tmp_path, 0, "text", ["sample"])
    whole, shuffled = read(tmp_path / WHOLE), read(tmp_path / SHUFFLED)
    made = registry.load("text")().sample().documents
    assert made is not None
    assert row["metrics"]["documents"] == len(whole) == len(list(made()))
    assert list(map(len, whole)) == list(map(len, shuffled)) and whole != shuffled
    assert sorted(itertools.chain(*whole)) == sorted(itertools.chain(*shuffled))


def test_files_without_a_document_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(DataError):
        texts(tmp_path, 0, "text", [str(tmp_path / "empty.txt")])
