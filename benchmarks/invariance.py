"""Shows that a run does not depend on how it is carried out: on micro-batches, workers, and the number of processes.

    python benchmarks/invariance.py             # all objectives and tasks; minutes
    python benchmarks/invariance.py --quick     # some of them

Every objective of pretraining and every task of fine-tuning is run in several ways: a step's batch in one piece (1x8),
in four (4x2), and sequence by sequence (8x1); by one and four workers; by two and three processes. Fine-tuning has
batches of 8 records of equal length, so that these are the sizes; a step of pretraining is a packed one, with as many
sequences as fill it, and goes through in about four pieces, and in as many as there are sequences. Measured is:

- gradients: how far those of the first step are from the ones of 1x8, in float64 and without dropout: for each tensor
  the largest difference, relative to its largest gradient. The largest of all tensors may be 1e-12.
- losses: the largest difference of the losses that 50 steps log, in float32 and without dropout: 1e-5 with AdamW.
  Muon makes its updates orthogonal in bf16, where gradients that differ in their last bit round to neighbours: 1e-3.
- bytes: with dropout, whether the same way gives the same weights, optimizer state and metrics when it is gone again,
  and when it is resumed in the middle; and whether other workers give those of 1x8.

On standard output stand tables, and with ``--json`` everything as JSON; progress goes to standard error. The exit code
is 1 where a limit is broken.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

GRADIENTS, LOSSES, MUON_LOSSES = 1e-12, 1e-5, 1e-3
"""How far gradients, relative to the largest of their tensor, and losses may be from those of 1x8: with AdamW, and
with Muon."""

VANISHING = 1e-10
"""A tensor whose gradients are this far below the largest of the model has none but for rounding, as the biases of keys
do, which softmax cancels; it is compared with that largest one."""

RECORDS, BATCH, RESIDUES = 80, 8, 30
"""Labelled records, those of a step, and the letters of each: with [CLS] and [SEP] 32 tokens."""

SECONDS = 1800
"""What no way of these takes; one that does has hung."""


@dataclasses.dataclass(frozen=True)
class Way:
    """How runs are carried out.

    Attributes:
        name: As the tables call it.
        pieces: About how many pieces a step's batch goes through the model in; 0: one for each sequence.
        workers: Processes that make batches.
        processes: Processes of the job.
    """

    name: str
    pieces: int = 1
    workers: int = 0
    processes: int = 1


WAYS = (
    Way("1x8"),
    Way("4x2", pieces=4),
    Way("8x1", pieces=0),
    Way("1 worker", workers=1),
    Way("4 workers", workers=4),
    Way("2 ranks", processes=2),
    Way("3 ranks", processes=3),
    Way("2 ranks, 8x1", pieces=0, processes=2),
)

QUICK_WAYS = ("1x8", "4x2", "1 worker", "2 ranks")


@dataclasses.dataclass(frozen=True)
class Job:
    """A small run.

    Attributes:
        name: Its name.
        command: ``pretrain`` or ``finetune``.
        config: The tree of its config.
        tokens: Tokens of a step.
    """

    name: str
    command: str
    config: dict[str, Any]
    tokens: int

    def carried_out(self, way: Way, output: Path, corpora: Path, dropout: float) -> dict[str, Any]:
        """The config for a way of carrying it out."""
        micro_tokens = max(1, self.tokens // way.pieces) if way.pieces else 1
        run = {"workers": way.workers, "micro_tokens": micro_tokens, "corpus_dir": str(corpora)}
        return laid_over(self.config, {"output": str(output), "run": run, "model": {"dropout": dropout}})

    @property
    def losses(self) -> float:
        """How far losses may be from those of 1x8."""
        return MUON_LOSSES if self.config["training"].get("optimizer") == MUON else LOSSES


QUICK_JOBS = ("next sentence", "joint", "tagging", "Muon")

MUON = {"name": "muon"}
"""The section of the other optimizer."""


def jobs(data: Path) -> list[Job]:
    """Each objective of pretraining, two domains at once, each task of fine-tuning, and what freezes a part."""
    text = {"text": {"data": [str(data / "texts")], "vocab_size": 120, "validation": 0.0}}
    proteins = {"protein": {"data": [str(data / "proteins")], "validation": 0.0, "weight": 0.5}}
    lstm = {"layers": "weighted_sum", "lstm_hidden": 8, "lstm_layers": 1}
    return [
        _pretraining("masked LM", text),
        _pretraining("whole words", text, objective={"masked_lm": {"unit": "word"}}),
        _pretraining("next sentence", text, objective={"pair": "next_sentence"}),
        _pretraining("sentence order", text, objective={"pair": "sentence_order"}),
        _pretraining("causal LM", text, objective={"masked_lm": None, "causal_lm": {}}, model={"causal": True}),
        _pretraining("joint", text | proteins),
        _pretraining("Muon", text, training={"optimizer": MUON}),
        _pretraining("Muon, joint", text | proteins, training={"optimizer": MUON}),
        _finetuning(data, "classification", RESIDUES + 2),
        _finetuning(data, "multilabel", RESIDUES + 2, task={"name": "classification", "multilabel": True}),
        _finetuning(data, "regression", RESIDUES + 2),
        _finetuning(data, "tagging", RESIDUES + 2),
        _finetuning(data, "span", RESIDUES + 2),
        _finetuning(data, "choice", 2 * (RESIDUES + 2)),
        _finetuning(data, "Muon, tagging", RESIDUES + 2, "tagging", training={"optimizer": MUON}),
        _finetuning(data, "LoRA", RESIDUES + 2, "classification", training={"lora": {"rank": 2}}),
        _finetuning(data, "features", RESIDUES + 2, "tagging", features=lstm),
    ]


def _pretraining(name: str, domains: dict[str, Any], **changes: Any) -> Job:
    tokens = 512
    training = {"steps": 50, "max_length": 32, "tokens_per_step": tokens, "evaluate_every": 1000}
    return Job(name, "pretrain", _small({"domains": domains, "training": training}, changes), tokens // len(domains))


def _finetuning(data: Path, name: str, tokens: int, table: str | None = None, **changes: Any) -> Job:
    """A run on the table of its name, or on another; a table is named after its task."""
    table = table or name
    tree = {
        "domain": {"name": "protein"},
        "task": {"name": table},
        "data": {"train": str(data / f"{table}.jsonl"), "validation": 0.0},
        "training": {"epochs": 5, "batch_size": BATCH, "max_length": RESIDUES + 2},
    }
    return Job(name, "finetune", _small(tree, changes), BATCH * tokens)


def _small(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    model = {"preset": "bert-tiny", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    run = {"device": "cpu", "precision": "fp32", "log_every": 1, "checkpoint_every": 3, "keep": 4}
    whole = {"model": model, "run": run, **tree, "training": {"learning_rate": 1e-3} | tree["training"]}
    return laid_over(whole, changes)


def laid_over(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A tree with other values where ``changes`` has them."""
    merged = dict(tree)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = laid_over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


# Data

TABLES = ("classification", "multilabel", "regression", "tagging", "span", "choice")


def write_data(folder: Path, draw: random.Random) -> None:
    """Writes texts, proteins, and a table for each task."""
    folder.mkdir()
    words = ["".join(draw.choices("abcdefghiklmnoprstuw", k=draw.randint(2, 7))) for _ in range(40)]
    documents = [
        " ".join(" ".join(draw.choices(words, k=draw.randint(4, 9))).capitalize() + "." for _ in range(6))
        for _ in range(40)
    ]
    proteins = [_residues(draw, draw.randint(30, 90)) for _ in range(60)]
    for name in ("texts", "proteins"):
        (folder / name).mkdir()
    (folder / "texts" / "texts.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    records = "".join(f">{number}\n{protein}\n" for number, protein in enumerate(proteins))
    (folder / "proteins" / "proteins.fasta").write_text(records, encoding="utf-8")
    for table in TABLES:
        rows = [json.dumps(_record(table, draw)) for _ in range(RECORDS)]
        (folder / f"{table}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _record(task: str, draw: random.Random) -> dict[str, Any]:
    """A record of a task with as many residues as each other one, and a label that they tell."""
    residues = _residues(draw, RESIDUES)
    hydrophobic = [residue in "AILMFVW" for residue in residues]
    if task == "classification":
        return {"sequence": residues, "label": "much" if sum(hydrophobic) > 10 else "little"}
    if task == "multilabel":
        return {"sequence": residues, "label": [residue for residue in "KRH" if residue in residues]}
    if task == "regression":
        return {"sequence": residues, "label": sum(hydrophobic) / RESIDUES}
    if task == "tagging":
        return {"sequence": residues, "labels": ["in" if one else "out" for one in hydrophobic]}
    first, second = residues[:9], residues[9:-1]  # one letter fewer, for the second [SEP]
    if task == "span":
        start = draw.randrange(len(second) - 3)
        return {
            "question": second[start : start + 3] + first[3:],
            "context": second,
            "answer_text": second[start : start + 3],
            "answer_start": start,
        }
    choices = [second, _residues(draw, len(second))]
    right = draw.randrange(2)
    return {"context": first, "choices": choices if right == 0 else choices[::-1], "label": right}


def _residues(draw: random.Random, length: int) -> str:
    return "".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=length))


# One way, in a process of its own


def carry_out(plan: dict[str, Any], rank: int) -> None:
    """Carries out all jobs in one way, as one of its processes; the first one writes what it measured."""
    import torch

    torch.set_num_threads(1)
    way = Way(**plan["way"])
    folder, data = Path(plan["folder"]), Path(plan["data"])
    for job in jobs(data):
        if job.name not in plan["jobs"]:
            continue
        measure = Measure(job, way, folder / job.name, data.parent / f"corpora of {way.name}", rank)
        gradients = measure.gradients()
        found = {
            "losses": measure.losses(plan["steps"]),
            "bytes": measure.bytes(plan["again"]),
            "pieces": measure.pieces,
        }
        if rank == 0:
            np.savez(folder / f"{job.name}.npz", **gradients)
            (folder / f"{job.name}.json").write_text(json.dumps(found), encoding="utf-8")
            shutil.rmtree(folder / job.name)
            print(f"{way.name}: {job.name}", flush=True)


class Measure:
    """What is measured of a job in one way."""

    def __init__(self, job: Job, way: Way, folder: Path, corpora: Path, rank: int) -> None:
        self.job, self.way, self.folder, self.corpora, self.rank = job, way, folder, corpora, rank
        self._runs = 0
        self.pieces: list[int] = []

    def gradients(self) -> dict[str, np.ndarray]:
        """The gradients of the first step, in float64 and without dropout."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        found: dict[str, np.ndarray] = {}

        def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            for number, weight in enumerate(weights):
                if weight.grad is not None:
                    found.setdefault(str(number), weight.grad.numpy().copy())

        # Weights of this size tell sequences apart as trained ones do. With BERT's first ones the choices of a record
        # are so alike that their gradients cancel, and what is left is rounded to 11 digits in any order.
        changes = {"training": {"clip_norm": None} | self._length(1), "model": {"initializer_range": 0.2}}
        if self.job.command == "finetune":
            changes["data"] = {"train_size": BATCH}
        hook = register_optimizer_step_pre_hook(keep)
        torch.set_default_dtype(torch.float64)
        try:
            self._run("gradients", 0.0, changes)
        finally:
            torch.set_default_dtype(torch.float32)
            hook.remove()
        return found

    def losses(self, steps: int) -> list[float]:
        """The losses of so many steps, in float32 and without dropout."""
        with self._counted_pieces():
            run = self._run("losses", 0.0, {"training": self._length(steps)})
        return [row["loss"] for row in _rows(run) if "loss" in row] if self.rank == 0 else []

    def bytes(self, again: bool) -> dict[str, str]:
        """Checksums of what 10 steps with dropout end with; of the same once more, and resumed after six."""
        changes = {"training": self._length(10)}
        run = self._run("bytes", 0.1, changes)
        sums = {"first": self._checksum(run)}
        if again:
            sums["again"] = self._checksum(self._run("bytes", 0.1, changes, overwrite=True))
            if self.rank == 0:
                for step in (9, 10):
                    shutil.rmtree(run / "checkpoints" / f"step-{step:08d}")
            sums["resumed"] = self._checksum(self._run("bytes", 0.1, changes, resume="auto"))
        return sums

    def _length(self, steps: int) -> dict[str, Any]:
        if self.job.command == "pretrain":
            return {"steps": steps}
        return {"epochs": max(1, steps * BATCH // RECORDS)}

    def _run(self, name: str, dropout: float, changes: dict[str, Any], **how: Any) -> Path:
        import seqbert

        output = self.folder / name
        output.parent.mkdir(parents=True, exist_ok=True)
        tree = laid_over(self.job.carried_out(self.way, output, self.corpora, dropout), changes)
        self._runs += 1
        os.environ["MASTER_PORT"] = str(self._port())
        (seqbert.pretrain if self.job.command == "pretrain" else seqbert.finetune)(tree, **how)
        sys.excepthook = sys.__excepthook__  # each group of processes lays one more over it
        return output

    def _port(self) -> int:
        """A port at which the processes meet for a run: a free one, which the first tells the others in a file."""
        told = self.folder.with_name(f"{self.job.name} {self._runs}.port")
        if self.rank == 0:
            draft = told.with_suffix(".draft")
            draft.write_text(str(free_port()), encoding="utf-8")
            draft.rename(told)
        while not told.exists():
            time.sleep(0.005)
        return int(told.read_text(encoding="utf-8"))

    def _checksum(self, run: Path) -> str:
        if self.rank:
            return ""
        digest = hashlib.sha256(json.dumps(_rows(run)).encode())
        for name in ("model", "optimizer"):
            digest.update((run / "checkpoints" / "step-00000010" / f"{name}.safetensors").read_bytes())
        return digest.hexdigest()

    @contextlib.contextmanager
    def _counted_pieces(self) -> Iterator[None]:
        """Notes into how many pieces the loop cuts this process' share of a step."""
        from seqbert.training import loop

        cut = loop.split

        def counted(*arguments: Any) -> Any:
            pieces = cut(*arguments)
            self.pieces.append(len(pieces))
            return pieces

        loop.split = counted  # type: ignore[assignment]
        try:
            yield
        finally:
            loop.split = cut


def _rows(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl without timings."""
    from seqbert.training.logging import TIMED

    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMED} for line in lines]


# All ways, and what they say


def main() -> int:
    """Runs what the command line asks for."""
    arguments = _parser().parse_args()
    if arguments.plan is not None:
        carry_out(json.loads(arguments.plan.read_text(encoding="utf-8")), int(os.environ["RANK"]))
        return 0
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="seqbert-invariance-"))
    try:
        write_data(folder / "data", random.Random(0))
        ways = [way for way in WAYS if not arguments.quick or way.name in QUICK_WAYS]
        names = list(QUICK_JOBS) if arguments.quick else arguments.jobs
        with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
            for _ in pool.map(lambda way: run_way(way, folder, names, 10 if arguments.quick else 50), ways[::-1]):
                pass
        report = compared(folder, ways, names)
        report["seconds"] = round(time.monotonic() - begun, 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(lines(report)))
    return 1 if report["broken"] else 0


def run_way(way: Way, folder: Path, names: list[str], steps: int) -> None:
    """Carries out the jobs in one way, in processes of their own.

    Raises:
        SystemExit: One of them failed; the message is its own.
    """
    own = folder / way.name
    own.mkdir()
    plan = {
        "way": dataclasses.asdict(way),
        "folder": str(own),
        "data": str(folder / "data"),
        "jobs": names,
        "steps": steps,
        "again": way.workers == 0,
    }
    path = own / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    logs = [own / f"rank{rank}.txt" for rank in range(way.processes)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            job = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": way.processes, "MASTER_ADDR": "127.0.0.1"}
            with log.open("wb") as file:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, __file__, "--plan", str(path)],
                        env=os.environ | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in job.items()},
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr if rank == 0 else file,
                        stderr=file,
                    )
                )
        codes = _ended(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if codes != [0] * len(codes):
        said = "\n".join(log.read_text(encoding="utf-8", errors="replace")[-2000:] for log in logs)
        raise SystemExit(f"{way.name} failed:\n{said}")


def _ended(processes: list[subprocess.Popen[bytes]]) -> list[int | None]:
    """Waits until all processes have ended, or one has failed; gives the exit codes of those that have."""
    deadline = time.monotonic() + SECONDS
    while True:
        codes = [process.poll() for process in processes]
        if any(codes) or all(code == 0 for code in codes) or time.monotonic() > deadline:
            return codes
        time.sleep(0.1)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def compared(folder: Path, ways: list[Way], names: list[str]) -> dict[str, Any]:
    """How far each way is from 1x8, for each job; ``broken`` names what is beyond a limit."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    limits = {job.name: job.losses for job in jobs(folder / "data")}
    broken = []
    for name in names:
        base = _measured(folder / "1x8", name)
        rows[name] = {}
        for way in ways:
            found = _measured(folder / way.name, name)
            sums = found["bytes"]
            expected = base["bytes"]["first"] if way.workers else sums["first"]
            row = {
                "gradients": relative_difference(base["gradients"], found["gradients"]),
                "losses": float(np.abs(np.subtract(base["losses"], found["losses"])).max()),
                "bytes": all(one == expected for one in sums.values()),
                "pieces": [min(found["pieces"]), max(found["pieces"])],
            }
            rows[name][way.name] = row
            if not row["gradients"] <= GRADIENTS:
                broken.append(f"{name}, {way.name}: gradients differ by {row['gradients']:.1e}")
            if not row["losses"] <= limits.get(name, LOSSES):
                broken.append(f"{name}, {way.name}: losses differ by {row['losses']:.1e}")
            if not row["bytes"]:
                broken.append(f"{name}, {way.name}: not the same bytes")
    limits_told = {"gradients": GRADIENTS, "losses": LOSSES, "losses_of_muon": MUON_LOSSES}
    return {"limits": limits_told, "jobs": rows, "broken": broken}


def _measured(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz") as file:
        return found | {"gradients": dict(file)}


def relative_difference(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> float:
    """The largest difference of the gradients of a model, relative to the largest gradient of its tensor.

    >>> relative_difference({"a": np.array([1.0, -4.0])}, {"a": np.array([1.0, -3.0])})
    0.25
    """
    if expected.keys() != found.keys():
        return float("inf")
    sizes = {name: float(np.abs(values).max()) for name, values in expected.items()}
    largest = max(sizes.values())
    differences = [
        float(np.abs(values - found[name]).max()) / (sizes[name] if sizes[name] > VANISHING * largest else largest)
        for name, values in expected.items()
    ]
    return max(differences)


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The comparison as a person reads it."""
    limits = report["limits"]
    titles = {
        "gradients": f"gradients of one step, relative (float64, no dropout; at most {limits['gradients']:.0e})",
        "losses": f"losses of all steps (float32, no dropout; at most {limits['losses']:.0e}, "
        f"with Muon {limits['losses_of_muon']:.0e})",
        "bytes": "bytes: again, and resumed in the middle; with other workers: those of 1x8 (dropout)",
        "pieces": "pieces that the batch of a step, or a process' share of it, went through in",
    }
    ways = list(next(iter(report["jobs"].values())))
    for what, title in titles.items():
        yield title
        yield "  ".join([f"{'':16}", *(f"{way:>12}" for way in ways)])
        for name, row in report["jobs"].items():
            yield "  ".join([f"{name:16}", *(f"{_cell(row[way][what]):>12}" for way in ways)])
        yield ""
    yield from report["broken"]
    yield f"{len(report['jobs'])} jobs in {len(ways)} ways, {report['seconds']:.0f} seconds"
    yield f"{len(report['broken'])} limits are broken"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "equal" if value else "DIFFER"
    if isinstance(value, list):
        return "-".join(str(one) for one in sorted(set(value)))
    return f"{value:.1e}" if value else "0"


def _parser() -> argparse.ArgumentParser:
    names = [job.name for job in jobs(Path())]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="some jobs, in some ways, over fewer steps")
    parser.add_argument("--at_once", type=int, default=2, metavar="N", help="ways that run at a time")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)  # for the processes that this one starts
    return parser


if __name__ == "__main__":
    sys.exit(main())
