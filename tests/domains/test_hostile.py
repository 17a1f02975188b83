"""What becomes of each odd or broken file: ``hostile.tsv`` says it, beside the count of a parser that is not ours.

``python tests/domains/test_hostile.py FOLDER`` writes the table anew; the last two columns are its reader's to check.
"""

from __future__ import annotations

import csv
import re
import sys
import warnings
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

import pytest

from seqbert import cli, registry
from seqbert.data.compressed import open_decompressed
from seqbert.data.encoding import read_documents
from seqbert.data.files import InputFile
from seqbert.domain import Report

TABLE = Path(__file__).with_name("hostile.tsv")
COLUMNS = ["file", "in", "read", "repaired", "skipped", "reasons", "changed", "noted", "independent", "counted_by"]
DOMAINS = ("dna", "protein", "music")


def table() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def outcome(file: Path) -> dict[str, str]:
    """What the data report says of one file."""
    domain, report = registry.load(file.parent.name)(), Report()
    for _ in read_documents(domain, [InputFile(file, False)], report):
        pass
    counts = report.to_dict()
    reasons = [f"{reason} ({count})" for kind in ("skipped", "repaired") for reason, count in counts[kind].items()]
    reasons += [f"file left out: {row['reason'].replace(str(file), 'FILE')}" for row in counts["skipped_files"]]
    return {
        "file": f"{file.parent.name}/{file.name}",
        **{name: str(counts["records"][name]) for name in ("in", "read", "repaired", "skipped")},
        "reasons": "; ".join(reasons),
        **{kind: "; ".join(f"{what} ({n})" for what, n in counts[kind].items()) for kind in ("changed", "noted")},
    }


def test_the_table_names_every_file(shared_data: Path) -> None:
    there = {f"{name}/{path.name}" for name in DOMAINS for path in (shared_data / "hostile" / name).iterdir()}
    assert {row["file"] for row in table()} == there and len(there) == 91


@pytest.mark.parametrize("row", table() if TABLE.is_file() else [], ids=lambda row: row["file"])
def test_a_hostile_file_is_read_as_the_table_says(row: dict[str, str], shared_data: Path) -> None:
    found = outcome(shared_data / "hostile" / row["file"])
    assert found == {name: row[name] for name in found}
    assert int(found["in"]) == sum(int(found[name]) for name in ("read", "repaired", "skipped"))


@pytest.mark.parametrize("row", table() if TABLE.is_file() else [], ids=lambda row: row["file"])
def test_records_in_are_what_another_parser_counts(row: dict[str, str], shared_data: Path) -> None:
    found = PARSERS[row["counted_by"]](shared_data / "hostile" / row["file"])
    assert str(found) == row["independent"] == row["in"]


def text_of(path: Path) -> str:
    with open_decompressed(path) as stream:
        return stream.read().decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def lines_that_match(pattern: str) -> Callable[[Path], int]:
    return lambda path: len(re.findall(pattern, text_of(path), re.MULTILINE))


def biopython(kind: str) -> Callable[[Path], int]:
    def count(path: Path) -> int:
        from Bio import SeqIO

        with warnings.catch_warnings(), TextIOWrapper(open_decompressed(path), "utf-8") as file:
            warnings.simplefilter("ignore")
            return sum(1 for _ in SeqIO.parse(file, kind))

    return count


def scores_in_archive(path: Path) -> int:
    """Files in an archive that hold a score, by the root that one of them names."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        roots = re.findall(r'full-path="([^"]+)"', archive.read("META-INF/container.xml").decode())
        return sum(
            b"<score-partwise" in archive.read(name).replace(b"\0", b"") for name in roots if name in archive.namelist()
        )


PARSERS: dict[str, Callable[[Path], int]] = {
    **{f"Bio.SeqIO {kind}": biopython(kind) for kind in ("fasta", "fastq", "genbank", "embl", "swiss", "pir")},
    "lines that begin with >": lines_that_match(r"^>"),
    "lines that begin with @ and a name": lines_that_match(r"^@\w"),
    "LOCUS lines": lines_that_match(r"^LOCUS"),
    "entry elements": lines_that_match(r"<entry\b"),
    "ID lines": lines_that_match(r"^\s*ID   "),
    "score-partwise elements": lines_that_match(r"<score-partwise"),
    "scores in the archive": scores_in_archive,
    "X: fields": lines_that_match(r"^X:"),
    "MThd headers": lambda path: path.read_bytes().count(b"MThd"),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_a_folder_of_hostile_files_is_prepared(
    name: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shared_data / "hostile" / name
    assert prepare(name, folder, tmp_path, monkeypatch) == 0
    said = capfd.readouterr().out
    listed = [line for line in said.splitlines() if line.strip().startswith("file left out")]
    own = [row for row in table() if row["file"].startswith(f"{name}/")]
    read = [row for row in own if not any(f"{row['file']}:" in line for line in listed)]
    assert f"records in {sum(int(row['in']) for row in read):,} " in said
    assert f"from {len(read)} files" in said and len(listed) == len(own) - len(read) < 4


@pytest.mark.parametrize("name", DOMAINS)
def test_each_hostile_file_is_prepared_or_refused_by_name(
    name: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in sorted((shared_data / "hostile" / name).iterdir()):
        code = prepare(name, path, tmp_path / path.name, monkeypatch)
        said = capfd.readouterr()
        assert code in (0, 2), path
        assert "Traceback" not in said.err
        assert "records in" in said.out if code == 0 else path.name in said.err


def prepare(name: str, data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("SEQBERT_CACHE", str(folder / "cache"))
    arguments = ["prepare", f"{name}/pretrain", f"--domains.{name}.data", str(data), "--output", str(folder / "run")]
    return cli.main([*arguments, "--run.workers", "1"])


def write_table(folder: Path) -> None:
    known = {row["file"]: row for row in table()} if TABLE.is_file() else {}
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for name in DOMAINS:
            for path in sorted((folder / name).iterdir()):
                row = outcome(path)
                old = known.get(row["file"], {})
                writer.writerow(row | {key: old.get(key, "") for key in ("independent", "counted_by")})


if __name__ == "__main__":
    write_table(Path(sys.argv[1]))
