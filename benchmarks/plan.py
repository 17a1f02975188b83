"""Measures what comes before the GPU: the plan of an epoch, the loader, and checkpoints.

    python benchmarks/plan.py --sequences 100000000     # plans of 10^4, 10^5, … 10^8 sequences
    python benchmarks/plan.py --loader                  # from a corpus to masked batches: tokens a second and process
    python benchmarks/plan.py --checkpoints bert-base   # bytes of checkpoints, and seconds to write those up to this

A plan says which stretch of which document stands at which place of which step. The sequences are synthetic: lengths of
documents, drawn from a log-normal distribution like that of proteins, in a file that is mapped into memory as those of
a corpus are. There are no tokens behind them, for a plan reads none. It is measured for documents of one group, for 100
groups in order (a file for each language) whose shares follow Zipf's law, and for the same groups shuffled.

Seconds are the processor's, so that other programs do not count; for checkpoints, which wait for the disk, the clock's.

Of memory, ``held`` is what Python and NumPy hold, and ``resident`` by how much the process grew; the mapped file, which
the system may drop from memory at any time, is apart. Steps are drawn from the epoch's order alone, and with those that
fill them up at random, as in training. A cold step is one that nothing is remembered for, like the first of an epoch
or after a resume; a crossing one goes from one block of sequences into the next.

Prints one JSON object; tables and progress go to standard error. Files are written to a temporary folder, under
``--folder`` if that is given: 1 GB for 10^8 sequences, and twice a checkpoint.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import pickle
import platform
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

WINDOW = 510
"""Most tokens of a window: BERT's 512 less [CLS] and [SEP]."""

MEDIAN, SPREAD = 270, 0.75
"""Of the lengths of documents: their median, and the standard deviation of their logarithm. The mean is 358 tokens."""

STEPS = (64, 512, 2**15)
"""Sequences in a step."""

GROUPS = 100
LAYOUTS = ("one group", f"{GROUPS} in order", f"{GROUPS} shuffled")

CHUNK = 2**20
"""Documents that are drawn at once."""

PRESETS = ("bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large")

BATCHES = (2**14, 2**17, 2**20)
"""Tokens of a global batch."""

RANKS = (1, 8, 64)
"""Processes that build a global batch together."""

LENGTH = 512
"""Most tokens of a sequence of the loader."""


def main() -> int:
    """Measures what the command line asks for."""
    arguments = _parser().parse_args()
    report: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = Path(temporary)
        if arguments.sequences:
            report["plan"] = collect(measure_plans(folder, arguments.sequences, arguments.seconds), PLAN_COLUMNS)
        if arguments.loader:
            report["loader"] = collect(measure_loader(folder, arguments.tokens, arguments.seconds), LOADER_COLUMNS)
        if arguments.checkpoints:
            report["checkpoints"] = collect(measure_checkpoints(folder, arguments.checkpoints), CHECKPOINT_COLUMNS)
    if len(report) == 1:
        _parser().error("give --sequences, --loader or --checkpoints")
    print(json.dumps(report, indent=2))
    return 0


def machine() -> dict[str, Any]:
    """What it was measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": cores,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


# The plan


def measure_plans(folder: Path, most: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Measures plans of 10^4, 10^5, … and of ``most`` sequences, in each layout."""
    for size in [*(10**power for power in range(4, 12) if 10**power < most), most]:
        for layout in LAYOUTS:
            yield measure_plan(folder, size, layout, seconds)


def measure_plan(folder: Path, sequences: int, layout: str, seconds: float) -> dict[str, Any]:
    """Measures the plan of an epoch.

    Args:
        folder: Where the lengths and the groups of the documents are written.
        sequences: Windows of an epoch, of which the documents have about so many.
        layout: One of :data:`LAYOUTS`.
        seconds: How long steps of each size are drawn for.
    """
    from seqbert.data.corpus import Split, TokenStore
    from seqbert.data.plan import Plan
    from seqbert.domain import Balance

    documents = max(1, round(sequences / _windows_of_a_document()))
    tokens = _map(folder / "tokens", np.int64, (_lengths(low, high) for low, high in _chunks(documents)))
    codes = (_codes(low, high, documents, layout) for low, high in _chunks(documents))
    group = _map(folder / "groups", np.uint16, codes)
    none = np.zeros(0, np.int64)
    split = Split("train", none, tokens, none, group, none, none, TokenStore(folder, 0), False)
    balance = None if layout == LAYOUTS[0] else Balance("group", 0.5)

    before = resident_bytes()
    started = time.process_time()
    plan = Plan(split, WINDOW, 0, balance)
    row: dict[str, Any] = {
        "layout": layout,
        "sequences": plan.total,
        "documents": documents,
        "build_seconds": time.process_time() - started,
        "mapped_bytes": tokens.nbytes + (0 if balance is None else group.nbytes),
    }
    for count in STEPS:
        extra = _extra(count)
        row[f"steps_of_{count}"] = {
            "sequences_per_second": count / _seconds_of_a_step(plan, count, 0, seconds),
            "extra": extra,
            "seconds_with_extra": _seconds_of_a_step(plan, count, extra, seconds),
        }
    row["cold_step_seconds"] = _cold(plan)
    row["crossing_step_seconds"] = _crossing(plan) if balance is None else None
    row["resident_bytes"] = resident_bytes() - before
    del plan
    row |= _held_bytes(lambda: Plan(split, WINDOW, 0, balance))
    return row


def _held_bytes(build: Callable[[], Any]) -> dict[str, int]:
    """What a plan holds when it is built, at most while it is built, and after steps of all sizes."""
    gc.collect()
    tracemalloc.start()
    plan = build()
    held, peak = tracemalloc.get_traced_memory()
    for count in STEPS:
        plan.step(0, range(count), range(_extra(count)))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"held_bytes": held, "building_bytes": peak, "held_bytes_after_steps": after}


def _seconds_of_a_step(plan: Any, count: int, extra: int, seconds: float) -> float:
    return _repeat(lambda step: _step(plan, step, count, extra), seconds)


def _step(plan: Any, step: int, count: int, extra: int = 0) -> Any:
    return plan.step(step, range(step * count, (step + 1) * count), range(step * extra, (step + 1) * extra))


def _cold(plan: Any, count: int = STEPS[1]) -> float:
    """Median seconds of steps in epochs that were not drawn from before."""
    steps = [plan.total * epoch // count for epoch in range(100, 105)]
    return statistics.median(_time(lambda step=step: _step(plan, step, count)) for step in steps)


def _crossing(plan: Any, count: int = STEPS[1] - 1) -> float | None:
    """Median seconds of steps, of a size that does not divide a block, that go into the next; None if there is none."""
    from seqbert.data.sampling import BLOCK

    steps = [block * BLOCK // count for block in range(1, 6) if (block + 1) * BLOCK < plan.total]
    found = []
    for step in steps:
        _step(plan, step - 1, count)
        found.append(_time(lambda step=step: _step(plan, step, count)))
    return statistics.median(found) if found else None


def _extra(count: int) -> int:
    """Sequences that ``Stage.sized`` would have drawn at random in a step of so many of these lengths."""
    lengths = np.minimum(_lengths(0, CHUNK), WINDOW)
    return int(6 * float(lengths.std() / lengths.mean()) * count**0.5) + 2


@functools.cache
def _windows_of_a_document() -> float:
    from seqbert.data.windows import Windows

    return Windows(_lengths(0, CHUNK), WINDOW).total / CHUNK


def _lengths(low: int, high: int) -> np.ndarray:
    """Tokens of the documents ``low`` to ``high - 1``."""
    draw = np.random.default_rng(low).lognormal(np.log(MEDIAN), SPREAD, high - low)
    return np.maximum(draw, 1).astype(np.int64)


def _codes(low: int, high: int, documents: int, layout: str) -> np.ndarray:
    """Groups of the documents ``low`` to ``high - 1``: the share of the n-th group is as 1 / n."""
    if layout == LAYOUTS[0]:
        return np.zeros(high - low, np.uint16)
    shares = 1 / np.arange(1, GROUPS + 1)
    places = np.arange(low, high) / documents if layout == LAYOUTS[1] else np.random.default_rng(low).random(high - low)
    codes = np.searchsorted(np.cumsum(shares / shares.sum()), places, side="right")
    return np.minimum(codes, GROUPS - 1).astype(np.uint16)


def _chunks(documents: int) -> Iterator[tuple[int, int]]:
    for low in range(0, documents, CHUNK):
        yield low, min(low + CHUNK, documents)


def _map(path: Path, dtype: type, parts: Iterable[np.ndarray]) -> np.ndarray:
    """Writes an array part by part, and maps it into memory."""
    path.unlink(missing_ok=True)  # an earlier map of it stays what it is
    with path.open("wb") as file:
        for part in parts:
            part.tofile(file)
    return np.memmap(path, dtype, "r")


# The loader


def measure_loader(folder: Path, tokens: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Measures making masked batches from a corpus of synthetic text, in one process.

    Args:
        folder: Where the corpus is built.
        tokens: Words of the text.
        seconds: How long batches of each kind are made for.
    """
    from seqbert import registry
    from seqbert.data.building import BuildRequest, build_corpus
    from seqbert.data.corpus import TRAIN
    from seqbert.data.packing import Share
    from seqbert.data.plan import Plan, Source
    from seqbert.objectives import Objective, ObjectiveConfig

    _write_text(folder / "synthetic.txt", tokens)
    plugin = registry.load("text")
    request = BuildRequest(plugin(plugin.Options()), [str(folder / "synthetic.txt")], vocab_size=8000)
    started = time.perf_counter()
    corpus = build_corpus(request, folder / "corpora")
    build_seconds = time.perf_counter() - started
    stored = sum(path.stat().st_size for path in corpus.folder.iterdir())
    print(
        f"corpus: {corpus.manifest['tokens']:,} tokens, {build_seconds:.1f} s to build with its tokenizer, "
        f"{stored / corpus.manifest['tokens']:.2f} bytes a token",
        file=sys.stderr,
    )
    split = corpus.split(TRAIN)
    for pair in ("none", "next_sentence"):
        objective = Objective(ObjectiveConfig(pair=pair), corpus)
        plan = Plan.of(corpus, split, objective.window_size(LENGTH), 0)
        for budget in BATCHES:
            source = Source(corpus, split, plan, 0, LENGTH, budget)
            objective.calibrate(source)
            for ranks in RANKS:
                make = functools.partial(objective.examples, source, share=Share(0, ranks))
                batch = make(0)
                spent = _repeat(make, seconds)
                yield {
                    "pair": pair,
                    "tokens_of_global_batch": budget,
                    "ranks": ranks,
                    "tokens": batch.tokens,
                    "seconds": spent,
                    "tokens_per_second": batch.tokens / spent,
                    "bytes": len(pickle.dumps(batch)),
                }


def _write_text(path: Path, words: int) -> None:
    """Documents of sentences of random words, a line each, whose frequencies follow Zipf's law."""
    draw = np.random.default_rng(0)
    letters = draw.integers(97, 123, (20_000, 12), np.uint8)
    known = [bytes(row[:length]).decode() for row, length in zip(letters, draw.integers(2, 11, 20_000), strict=True)]
    shares = 1 / np.arange(1, len(known) + 1)
    chosen = draw.choice(len(known), words, p=shares / shares.sum())
    sentences = np.split(chosen, np.cumsum(draw.integers(8, 40, max(1, words // 24))))
    with path.open("w", encoding="utf-8") as file:
        for sentence in sentences:
            file.write(" ".join(known[word] for word in sentence) + ".\n")
            if draw.random() < 0.05:
                file.write("\n")


# Checkpoints


def measure_checkpoints(folder: Path, largest: str) -> Iterator[dict[str, Any]]:
    """Counts the bytes of a checkpoint of each preset, and writes those of presets up to ``largest``."""
    from seqbert.analysis.parameters import describe
    from seqbert.models.config import PRESETS as SHAPES

    for name in PRESETS:
        parameters = describe(SHAPES[name]).total_parameters
        row: dict[str, Any] = {"preset": name, "parameters": parameters, "bytes": 3 * 4 * parameters}
        if PRESETS.index(name) <= PRESETS.index(largest):
            row |= _write_checkpoint(folder / name, SHAPES[name])
        yield row


def _write_checkpoint(folder: Path, shape: Any) -> dict[str, float]:
    """Seconds for which training waits, and until everything is on disk, for a model with AdamW's two moments."""
    import torch

    from seqbert.inference.describing import PUBLISHED_VOCABULARY
    from seqbert.models.model import Model
    from seqbert.training.checkpoint import Checkpoints, Progress

    model = Model(shape, {"text": PUBLISHED_VOCABULARY}, {"text": ("masked_lm", "pair")})
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.tensor(1.0), **moments}
    folder.mkdir()
    checkpoints = Checkpoints(folder, 1)
    started = time.perf_counter()
    checkpoints.save(model, optimizer, Progress(step=1))
    waited = time.perf_counter() - started
    checkpoints.wait()
    spent = time.perf_counter() - started
    written = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    shutil.rmtree(folder)
    return {"written_bytes": written, "waiting_seconds": waited, "seconds": spent, "bytes_per_second": written / spent}


# What they share


def resident_bytes() -> int:
    """Memory of this process that is not of a mapped file; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)


def _time(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def _repeat(call: Callable[[int], Any], seconds: float) -> float:
    """Mean seconds of a call with 1, 2, …, for at least so long; that with 0 is not counted."""
    call(0)
    started, calls = time.process_time(), 0
    while (spent := time.process_time() - started) < seconds or calls == 0:
        calls += 1
        call(calls)
    return spent / calls


Column = Callable[[dict[str, Any]], str]


def _rate(count: int) -> Column:
    return lambda row: f"{row[f'steps_of_{count}']['sequences_per_second']:,.0f}"


def _filled(count: int) -> Column:
    return lambda row: f"{1e3 * row[f'steps_of_{count}']['seconds_with_extra']:,.2f}"


def _milliseconds(key: str) -> Column:
    return lambda row: "-" if row[key] is None else f"{1e3 * row[key]:,.1f}"


def _megabytes(key: str) -> Column:
    return lambda row: f"{row[key] / 1e6:,.1f}" if key in row else "-"


PLAN_COLUMNS: dict[str, Column] = {
    "documents in": lambda row: row["layout"],
    "sequences": lambda row: f"{row['sequences']:,}",
    "build s": lambda row: f"{row['build_seconds']:.2f}",
    "held MB": _megabytes("held_bytes"),
    "after steps": _megabytes("held_bytes_after_steps"),
    "resident MB": _megabytes("resident_bytes"),
    "mapped MB": _megabytes("mapped_bytes"),
    **{f"sequences/s in {count:,}": _rate(count) for count in STEPS},
    **{f"ms of {count:,} + random": _filled(count) for count in STEPS},
    "cold ms": _milliseconds("cold_step_seconds"),
    "crossing ms": _milliseconds("crossing_step_seconds"),
}

LOADER_COLUMNS: dict[str, Column] = {
    "pair": lambda row: row["pair"],
    "global batch": lambda row: f"{row['tokens_of_global_batch']:,}",
    "ranks": lambda row: str(row["ranks"]),
    "tokens of a rank": lambda row: f"{row['tokens']:,}",
    "ms": _milliseconds("seconds"),
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "bytes a token": lambda row: f"{row['bytes'] / row['tokens']:.1f}",
}

CHECKPOINT_COLUMNS: dict[str, Column] = {
    "preset": lambda row: row["preset"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "computed MB": _megabytes("bytes"),
    "written MB": _megabytes("written_bytes"),
    "training waits ms": lambda row: _milliseconds("waiting_seconds")(row) if "seconds" in row else "-",
    "on disk after s": lambda row: f"{row['seconds']:.2f}" if "seconds" in row else "-",
    "MB/s": _megabytes("bytes_per_second"),
}


def collect(rows: Iterator[dict[str, Any]], columns: dict[str, Column]) -> list[dict[str, Any]]:
    """All rows; each goes to standard error as a line of a table when it is there."""
    widths = [max(len(title), 12) for title in columns]
    print("  ".join(title.rjust(width) for title, width in zip(columns, widths, strict=True)), file=sys.stderr)
    collected = []
    for row in rows:
        cells = (cell(row).rjust(width) for cell, width in zip(columns.values(), widths, strict=True))
        print("  ".join(cells), file=sys.stderr, flush=True)
        collected.append(row)
    return collected


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--sequences", type=int, metavar="N", help="measure plans of up to N sequences")
    parser.add_argument("--loader", action="store_true", help="measure making masked batches")
    parser.add_argument("--checkpoints", choices=PRESETS, metavar="PRESET", help="write checkpoints up to this preset")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="for each rate; default: 1")
    parser.add_argument("--tokens", type=int, default=2_000_000, metavar="N", help="words of the loader's text")
    parser.add_argument("--folder", metavar="FOLDER", help="for temporary files; default: the system's")
    return parser


if __name__ == "__main__":
    sys.exit(main())
