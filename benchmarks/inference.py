"""Measures ``seqbert embed`` and ``seqbert predict`` against transformers as people run it.

    python benchmarks/inference.py MODEL SST-2/train.tsv --column sentence --precision bf16 > inference.json

Both get a table of texts, in its own order, and the same weights: MODEL, a Hugging Face folder, with a classification
head that a short fine-tuning gives it. They do three things, from a model that is loaded already:

- embed: from the table to a file with a vector a text, the mean over its tokens;
- predict: from the table to a file with a label a text;
- encoder: the encoder alone, over batches that are made already.

seqbert runs as its commands do. transformers takes batches of 32 texts in the order of the table, tokenizes each and
pads it to its longest text, and runs under ``torch.inference_mode`` (bf16: autocast, as for seqbert). With --sorted a
third contender is transformers over the texts in order of length, as sentence-transformers does it. Texts of more than
--max-length tokens are left out, so that nobody cuts anything.

Each has a process of its own and they take turns, pass by pass; times are medians over the passes. Nothing else may run
on the machine. Needs the extra "benchmarks".

Prints one JSON object: texts per second of each, the ratios, and how far vectors and labels agree.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.metadata
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Contender, ContenderError, answers

JOBS = ("embed", "predict", "encoder")

BATCH = 32
"""Texts of one of transformers' batches."""

TAUGHT = 64
"""Texts that the classification head is taught with, to tell the longer half of them from the shorter."""


def main() -> int:
    """Runs what the command line asks for; 1 where a contender fails."""
    arguments = parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # read by torch in the processes to come
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if arguments.threads > 1 else "false"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments.contender:
        name, folder = arguments.contender
        serve(CONTENDERS[name](arguments, Path(folder)))
        return 0
    try:
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(measure(arguments, Path(name)), indent=2))
    except ContenderError as error:
        print(f"inference: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = asked.add_argument
    add("model", metavar="MODEL", help="a Hugging Face folder with BERT weights and their tokenizer")
    add("table", metavar="TABLE", help="a table with texts: .csv, or .tsv without quotes")
    add("--column", default="text", help="the column of the texts (text)")
    add("--records", type=int, default=2048, help="texts, from the first on (2,048)")
    add("--max-length", type=int, default=128, help="tokens; texts of more are left out (128)")
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="of matrix products (fp32)")
    add("--threads", type=int, default=1, help="of each process (1)")
    add("--passes", type=int, default=3, help="timed passes (3)")
    add("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="what is measured (all)")
    add("--sorted", action="store_true", help="also transformers over texts in order of length")
    add("--contender", nargs=2, help=argparse.SUPPRESS)  # a process that measures, and the folder that it works in
    return asked


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Lets the contenders take turns, and compares them."""
    with contextlib.redirect_stdout(sys.stderr):
        about = prepare(arguments, folder)
    names = [name for name in CONTENDERS if name != "transformers_sorted" or arguments.sorted]
    seconds: dict[str, dict[str, list[float]]] = {job: {name: [] for name in names} for job in arguments.jobs}
    processes = {name: Contender(__file__, name, str(folder)) for name in names}
    try:
        for number in range(arguments.passes + 1):  # the first warms up
            for job in arguments.jobs:
                for name in names if number % 2 == 0 else reversed(names):
                    processes[name].tell(job)
                    taken = processes[name].answer()
                    print(f"pass {number} of {arguments.passes}: {job}, {name}, {taken:.2f} s", file=sys.stderr)
                    if number:
                        seconds[job][name].append(taken)
    finally:
        for process in processes.values():
            process.end()
    rates = {
        job: {name: about["texts"] / statistics.median(taken) for name, taken in of_job.items()}
        for job, of_job in seconds.items()
    }
    return {
        **about,
        **{name: getattr(arguments, name) for name in ("model", "precision", "threads", "passes")},
        "versions": {name: importlib.metadata.version(name) for name in ("seqbert", "torch", "transformers")},
        "texts_per_second": {
            job: {name: round(rate, 1) for name, rate in of_job.items()} for job, of_job in rates.items()
        },
        "ratios": {
            job: {
                f"seqbert / {name}": round(of_job["seqbert"] / rate, 2)
                for name, rate in of_job.items()
                if name != "seqbert"
            }
            for job, of_job in rates.items()
        },
        "agreement": agreement(folder, arguments.jobs),
    }


def prepare(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Writes the table that both read, and makes the run whose model both load."""
    from transformers import AutoTokenizer

    import seqbert

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    texts = read_texts(Path(arguments.table), arguments.column)[: arguments.records]
    lengths = [len(ids) for ids in tokenizer(texts, verbose=False)["input_ids"]]
    kept = [(text, length) for text, length in zip(texts, lengths, strict=True) if length <= arguments.max_length]
    if len(kept) < 2:
        raise SystemExit(f"inference: {arguments.table} has less than two texts of {arguments.max_length} tokens.")
    texts, lengths = [text for text, _ in kept], [length for _, length in kept]
    write_table(folder / "texts.csv", [("text",), *((text,) for text in texts)])
    taught = sorted(texts[:TAUGHT], key=len)
    labels = ["short" if place < len(taught) // 2 else "long" for place in range(len(taught))]
    write_table(folder / "taught.csv", [("text", "label"), *zip(taught, labels, strict=True)])
    seqbert.finetune(
        {
            "output": str(folder / "run"),
            "init": arguments.model,
            "domain": {"name": "text"},
            "task": {"name": "classification"},
            "data": {"train": [str(folder / "taught.csv")], "validation": 0.25},
            "training": {"epochs": 1, "batch_size": 8, "max_length": arguments.max_length},
            "run": {"device": "cpu", "precision": "fp32", "workers": 0},
        }
    )
    padded = sum(BATCH * max(lengths[low : low + BATCH]) for low in range(0, len(lengths), BATCH))
    padded -= (-len(lengths) % BATCH) * max(lengths[-(len(lengths) % BATCH) :])  # rows that the last batch lacks
    return {
        "texts": len(texts),
        "tokens": sum(lengths),
        "mean_length": round(statistics.fmean(lengths), 1),
        "longest": max(lengths),
        "padding_efficiency": round(sum(lengths) / padded, 3),
    }


def read_texts(path: Path, column: str) -> list[str]:
    """The texts of a table; lines without one are passed over."""
    is_plain = path.suffix == ".tsv"
    with path.open(encoding="utf-8", newline="") as file:
        quoting = csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL
        rows = csv.DictReader(file, delimiter="\t" if is_plain else ",", quoting=quoting)
        if column not in (rows.fieldnames or ()):
            raise SystemExit(f'inference: {path} has no column "{column}"; name one with --column.')
        return [text for row in rows if (text := (row[column] or "").strip())]


def write_table(path: Path, rows: list[tuple[str, ...]]) -> None:
    """A CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def agreement(folder: Path, jobs: list[str]) -> dict[str, float]:
    """How far seqbert and transformers say the same of the same texts."""
    found: dict[str, float] = {}
    if "embed" in jobs:
        import pyarrow.parquet as pq

        ours = np.stack(pq.read_table(folder / "seqbert.parquet")["vector"].to_pylist())
        theirs = np.load(folder / "transformers.npy")
        norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        found["least_cosine"] = round(float(((ours * theirs).sum(axis=1) / norms).min()), 6)
    if "predict" in jobs:
        labels = [read_texts(folder / f"{name}.csv", "prediction") for name in ("seqbert", "transformers")]
        equal = [one == other for one, other in zip(*labels, strict=True)]
        found["equal_labels"] = round(statistics.fmean(equal), 4)
    return found


def serve(contender: Seqbert | Transformers) -> None:
    """What a contender's process does: the job that each line names."""
    replies = answers()
    for line in sys.stdin:
        job = getattr(contender, line.strip())
        begun = time.perf_counter()
        job()
        print(time.perf_counter() - begun, file=replies)


class Seqbert:
    """What the commands do, with a run that is loaded already."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        import torch

        from seqbert.inference.trained import Trained
        from seqbert.training.device import Device, RunConfig
        from seqbert.training.finetuned import Finetuned

        torch.set_num_threads(arguments.threads)
        device = Device.of(RunConfig(device="cpu", precision=arguments.precision), trains=False)
        self.folder, self.table = folder, folder / "texts.csv"
        self.trained = Trained.of_run(folder / "run", device=device)
        self.finetuned = Finetuned.of_run(folder / "run", device)
        self.batches = list(self._packed())

    def embed(self) -> None:
        """``seqbert embed``."""
        import seqbert

        seqbert.embed(self.trained, self.table, self.folder / "seqbert.parquet")

    def predict(self) -> None:
        """``seqbert predict``."""
        import seqbert

        seqbert.predict(self.finetuned, str(self.table), self.folder / "seqbert.csv")

    def encoder(self) -> None:
        """The encoder over packed batches."""
        for batch in self.batches:
            self.trained.hidden(batch)

    def _packed(self) -> Iterator[Any]:
        """The batches in which the commands run the table."""
        from seqbert.domain import Report

        examples = list(self.trained.examples(self.table, [], Report()))
        batcher = self.finetuned.source(examples).batcher
        for chosen in batcher.all(self.trained.device.micro_tokens):
            yield batcher.pack(chosen)


class Transformers:
    """A loop over padded batches."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, is_sorted: bool = False) -> None:
        import torch
        from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

        torch.set_num_threads(arguments.threads)
        self.folder, self.is_sorted = folder, is_sorted
        self.mixed = torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16")
        weights = folder / "run" / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(weights)
        self.model = AutoModel.from_pretrained(weights).eval()
        self.classifier = AutoModelForSequenceClassification.from_pretrained(weights).eval()
        self.batches = [inputs for _, inputs in self._padded()]

    def embed(self) -> None:
        """The mean over each text's tokens."""
        vectors: dict[int, Any] = {}
        for places, inputs in self._padded():
            hidden = self._run(self.model, inputs).last_hidden_state.float()
            mask = inputs["attention_mask"][:, :, None]
            means = (hidden * mask).sum(1) / mask.sum(1)
            vectors |= zip(places, means.numpy(), strict=True)
        if not self.is_sorted:
            np.save(self.folder / "transformers.npy", np.stack([vectors[place] for place in range(len(vectors))]))

    def predict(self) -> None:
        """The label of the largest logit of each text."""
        labels: dict[int, str] = {}
        for places, inputs in self._padded():
            chosen = self._run(self.classifier, inputs).logits.argmax(-1)
            labels |= zip(places, (self.classifier.config.id2label[number] for number in chosen.tolist()), strict=True)
        if not self.is_sorted:
            rows = [(str(place), labels[place]) for place in range(len(labels))]
            write_table(self.folder / "transformers.csv", [("id", "prediction"), *rows])

    def encoder(self) -> None:
        """The encoder over padded batches."""
        for inputs in self.batches:
            self._run(self.model, inputs)

    def _run(self, model: Any, inputs: Any) -> Any:
        import torch

        with torch.inference_mode(), self.mixed:
            return model(**inputs)

    def _padded(self) -> Iterator[tuple[list[int], Any]]:
        """Batches of the table's texts, each tokenized when it is asked for, and where its texts stand in the table."""
        texts = read_texts(self.folder / "texts.csv", "text")
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]) if self.is_sorted else 0)
        for low in range(0, len(order), BATCH):
            places = order[low : low + BATCH]
            yield places, self.tokenizer([texts[place] for place in places], padding=True, return_tensors="pt")


CONTENDERS: dict[str, Any] = {
    "seqbert": Seqbert,
    "transformers": Transformers,
    "transformers_sorted": lambda arguments, folder: Transformers(arguments, folder, is_sorted=True),
}
"""What the processes are."""


if __name__ == "__main__":
    raise SystemExit(main())
