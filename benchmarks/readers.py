"""Measures how fast and in how much memory domains read, against the libraries that one would use instead.

    python benchmarks/readers.py                                           # the samples that come along
    python benchmarks/readers.py --protein uniprot.fasta.gz --dna genome.fa --text books/ --scores chorales/
    python benchmarks/readers.py --memory --dna genomes/ --gigabytes 3     # peaks of whole preparations

Three ratios, each of times taken in turn in one process, so that a busy machine slows both alike:

fasta
    A FASTA file to token ids: the domain's ``read`` and ``encode``, against ``Bio.SeqIO.parse`` and the same
    tokenizer's ``encode`` record by record, which is how such scripts are written. The ids are compared.
wordpiece
    ``encode`` of the text domain with ids, lengths and masking units, against ``encode_batch`` of the ``tokenizers``
    library on the same texts and threads, which makes encodings and no array yet.
scores
    Scores a second into a corpus with two processes, against one, with an empty cache; and the second corpus of the
    same scores, cut otherwise, which takes them from the cache of parsed scores.

Prints one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqbert import registry
from seqbert.data.building import BuildRequest, build_corpus
from seqbert.data.compressed import open_decompressed
from seqbert.domain import Domain, Report

ROUNDS = 5
BASES_IN_A_LINE = 60
CONTIGS = (250_000_000, 120_000_000)
"""Lengths of the long contigs of a generated genome, in turn; half of the file are short ones."""
SHORT_CONTIG = 2_000


def main() -> int:
    """Measures what the command line asks for."""
    arguments = _parser().parse_args()
    report: dict[str, Any] = {"machine": {"python": platform.python_version(), "cores": os.cpu_count()}}
    if arguments.memory:
        report["memory"] = measure_memory(arguments.dna, arguments.gigabytes)
    else:
        for name in ("protein", "dna"):
            report[f"fasta, {name}"] = compare_fasta(name, getattr(arguments, name))
        report["wordpiece"] = compare_wordpiece(arguments.text, arguments.characters)
        report["scores"] = compare_processes(arguments.scores, arguments.files)
    json.dump(report, sys.stdout, indent=2)
    print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, what in (
        ("protein", "FASTA of proteins"),
        ("dna", "FASTA of DNA"),
        ("text", "text files"),
        ("scores", "MusicXML, ABC or MIDI"),
    ):
        parser.add_argument(f"--{name}", metavar="PATH", help=f"{what}; default: the sample that comes along")
    parser.add_argument("--characters", type=int, default=4_000_000, help="of text, at most")
    parser.add_argument("--files", type=int, default=60, help="of scores, at most")
    parser.add_argument("--memory", action="store_true", help="measure peaks of memory instead")
    parser.add_argument("--gigabytes", type=float, default=3.0, help="of a generated FASTA file, with --memory")
    return parser


def compare_fasta(name: str, path: str | None) -> dict[str, Any]:
    """Seconds from FASTA files to token ids, ours and by Biopython and ``tokenizers``."""
    from Bio import SeqIO

    domain = _domain(name)
    files = _files(path, domain)
    tokenizer = domain.vocabulary

    def ours() -> list[np.ndarray]:
        found, texts, size = [], [], 0
        for file in files:
            for document in domain.read(file, Report()):
                texts += document.segments
                size += sum(map(len, document.segments))
                if size > 2**21:
                    found.append(domain.encode(texts, offsets=False).ids)
                    texts, size = [], 0
        return [*found, domain.encode(texts, offsets=False).ids]

    def theirs() -> list[list[int]]:
        found = []
        for file in files:
            with io.TextIOWrapper(open_decompressed(file)) as text:
                for record in SeqIO.parse(text, "fasta"):
                    sequence = str(record.seq).upper().rstrip("*")
                    found.append(tokenizer.encode(sequence, add_special_tokens=False).ids)
        return found

    seconds = _in_turn(ours, theirs)
    ids, reference = np.concatenate(ours()), np.concatenate([np.asarray(row) for row in theirs()])
    return {
        "files": len(files),
        "tokens": len(ids),
        "equal_ids": bool(len(ids) == len(reference) and (ids == reference).all()),
        "seconds": seconds[0],
        "seconds_biopython_and_tokenizers": seconds[1],
        "times_as_fast": seconds[1] / seconds[0],
    }


def compare_wordpiece(path: str | None, characters: int) -> dict[str, Any]:
    """Seconds for texts to ids and units, ours and by ``encode_batch``, on one thread and on all."""
    domain = registry.load("text")()
    texts, size = [], 0
    for document in _documents(path, domain):
        texts += document.segments
        size += sum(map(len, document.segments))
        if size > characters:
            break
    domain.use(domain.tokenizer(iter(texts), None))
    tokenizer = domain.vocabulary
    found: dict[str, Any] = {"texts": len(texts), "characters": size}
    for threads in ("one thread", "all threads"):
        os.environ["TOKENIZERS_PARALLELISM"] = str(threads == "all threads").lower()
        ours, theirs, fast = _in_turn(
            lambda: domain.encode(texts, offsets=False),
            lambda: tokenizer.encode_batch(texts, add_special_tokens=False),
            lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        )
        found[threads] = {
            "seconds": ours,
            "seconds_encode_batch": theirs,
            "seconds_encode_batch_fast": fast,
            "of_encode_batch": ours / theirs,
        }
    return found


def compare_processes(path: str | None, most: int) -> dict[str, Any]:
    """Seconds to make a corpus of scores with one and with two processes, and again with another option."""
    options = registry.load("music").Options
    files = [str(file) for file in _files(path, registry.load("music")())[:most]]

    def build(cache: Path, processes: int, bars: int) -> float:
        os.environ["SEQBERT_CACHE"] = str(cache)
        domain = registry.load("music")(options(bars_per_segment=bars))
        begun = time.perf_counter()
        build_corpus(BuildRequest(domain, files), cache, processes)
        return time.perf_counter() - begun

    _say(f"{len(files)} scores")
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder, "warm"), 1, 4)  # imports what reads scores
        rounds = []
        for turn in range(3):
            one = build(Path(folder, f"{turn}-1"), 1, 4)
            two = build(Path(folder, f"{turn}-2"), 2, 4)
            rounds.append((one, two, build(Path(folder, f"{turn}-1"), 1, 8)))
            _say(f"one process {one:.2f} s, two {two:.2f} s, again {rounds[-1][2]:.2f} s")
    return {
        "scores": len(files),
        "scores_a_second": len(files) / min(one for one, _, _ in rounds),
        "two_processes_times_as_fast": statistics.median(one / two for one, two, _ in rounds),
        "second_corpus_times_as_fast": statistics.median(one / again for one, _, again in rounds),
    }


def measure_memory(dna: str | None, gigabytes: float) -> dict[str, Any]:
    """Peaks of resident memory of ``seqbert prepare dna/pretrain``: of the given data, and of a generated genome."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        if dna is not None:
            found["given"] = _peak(dna, Path(folder))
        if gigabytes:
            path = Path(folder, "generated.fa")
            _generate(path, int(gigabytes * 1e9))
            found[f"generated, {path.stat().st_size / 1e9:.2f} GB"] = _peak(str(path), Path(folder))
    return found


def _peak(data: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "seqbert", "prepare", "dna/pretrain", "--domains.dna.data", data]
    command += ["--output", str(folder / "run"), "--run.corpus_dir", str(folder / "cache")]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=sys.stderr)
    most = {"megabytes_of_largest_process": 0.0, "megabytes_of_all_processes": 0.0}
    while process.poll() is None:
        sizes = list(_resident(process.pid))
        most["megabytes_of_largest_process"] = max([most["megabytes_of_largest_process"], *sizes])
        most["megabytes_of_all_processes"] = max(most["megabytes_of_all_processes"], sum(sizes))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {name: round(size, 1) for name, size in most.items()} | {"seconds": round(time.perf_counter() - begun, 1)}


def _resident(pid: int) -> Iterator[float]:
    """Megabytes that a process and those that it started hold alone: files that are mapped are not counted."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                yield int(line.split()[1]) / 1000
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _resident(int(child))
    except OSError:  # it has just ended
        return


def _generate(path: Path, size: int) -> None:
    """A FASTA file of random bases: long contigs for one half, short ones for the other."""
    generator = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", np.uint8)

    def contig(file: Any, name: str, bases: int) -> None:
        file.write(f">{name}\n".encode())
        while bases > 0:
            lines = min(bases // BASES_IN_A_LINE + 1, 50_000)
            block = np.full((lines, BASES_IN_A_LINE + 1), ord("\n"), np.uint8)
            block[:, :-1] = letters[generator.integers(0, 4, (lines, BASES_IN_A_LINE), np.uint8)]
            file.write(block.tobytes())
            bases -= lines * BASES_IN_A_LINE

    _say(f"writing {size / 1e9:.1f} GB to {path}")
    with path.open("wb") as file:
        number = 0
        while file.tell() < size // 2:
            contig(file, f"long{number}", CONTIGS[number % len(CONTIGS)])
            number += 1
        while file.tell() < size:
            contig(file, f"short{number}", SHORT_CONTIG)
            number += 1


def _domain(name: str) -> Domain:
    domain = registry.load(name)()
    domain.use(domain.tokenizer([], None))
    return domain


def _files(path: str | None, domain: Domain) -> list[Path]:
    if path is None:
        return list(domain.sample().files)
    given = Path(path)
    return (
        sorted(file for file in given.rglob("*") if file.is_file() and domain.reads(file))
        if given.is_dir()
        else [given]
    )


def _documents(path: str | None, domain: Domain) -> Iterator[Any]:
    sample = domain.sample()
    if path is None and sample.documents is not None:
        yield from sample.documents()
        return
    for file in _files(path, domain):
        yield from domain.read(file, Report())


def _in_turn(*ways: Callable[[], Any]) -> list[float]:
    """The least seconds of each way, taken in turn."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, taken in zip(ways, times, strict=True):
            begun = time.perf_counter()
            way()
            taken.append(time.perf_counter() - begun)
    _say(", ".join(f"{statistics.median(taken):.3f} s" for taken in times))
    return [min(taken) for taken in times]


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
