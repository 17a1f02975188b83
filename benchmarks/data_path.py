"""Measures how fast a corpus becomes masked batches, in one process and through the loader's worker.

    python benchmarks/data_path.py --data books/ > data_path.json
    python benchmarks/data_path.py --domain protein --data uniprot.fasta --max_length 512

The corpus is built first, or found in ``--corpus_dir``; that is not measured. For each length, with and without
masking by the domain's unit and with pairs, it measures

batches
    ``Objective.examples``: the order of the epoch, the places of the step's sequences, their tokens from the mapped
    files, special tokens, what is masked, and the packed batch. Tokens of the batch a second, from the median step.
loader
    The same, made in one worker process and received here through its pipe: batches a second times their tokens.
    This process does nothing else meanwhile, so it is the most that training can draw from one worker.
wait_share
    The share of a step that training waits for its batch, where a step of this many tokens takes ``--step_seconds``.

Prints one JSON object; ``ratio`` is the slowest of them over the goal of 50 million tokens a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOAL = 50e6
"""Tokens a second of one process."""

WARM = 3
"""Steps before the clock starts: the first ones map files and permute an epoch."""


def main() -> int:
    """Measures what the command line asks for."""
    arguments = _parser().parse_args()
    import torch

    from seqbert.data.allocator import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()  # as the loader's workers do
    with tempfile.TemporaryDirectory() as folder:
        corpus = build(arguments, Path(arguments.corpus_dir or folder))
        rows = [measure(corpus, arguments, *case) for case in cases(corpus, arguments.max_length)]
    slowest = min(row["batches_tokens_per_second"] for row in rows)
    report = {
        "domain": arguments.domain,
        "corpus_tokens": corpus.report["train"]["tokens"],
        "tokens_per_step": arguments.tokens_per_step,
        "rows": rows,
        "goal": GOAL,
        "ratio": round(slowest / GOAL, 3),
    }
    print(json.dumps(report, indent=2))
    return 0


def build(arguments: argparse.Namespace, cache: Path) -> Any:
    """The corpus of the files that the command line names."""
    from seqbert import registry
    from seqbert.data.building import BuildRequest, build_corpus

    plugin = registry.load(arguments.domain)
    request = BuildRequest(plugin(plugin.Options()), arguments.data, vocab_size=arguments.vocab_size)
    return build_corpus(request, cache, 1, lambda text, share: print(text, file=sys.stderr) if share is None else None)


def cases(corpus: Any, lengths: list[int]) -> Iterator[tuple[int, str, str]]:
    """Length, masking unit and pair objective of each row: those that the corpus has."""
    for length in lengths:
        yield length, "token", "none"
        if corpus.unit != "token":
            yield length, corpus.unit, "none"
        if len(corpus.split("train").length) > corpus.split("train").documents > 1:
            yield length, "token", "next_sentence"


def measure(corpus: Any, arguments: argparse.Namespace, length: int, unit: str, pair: str) -> dict[str, Any]:
    """One row of the report."""
    from seqbert.data.plan import Plan, Source
    from seqbert.objectives import Objective, ObjectiveConfig
    from seqbert.objectives.masked_lm import MaskedLMConfig
    from seqbert.training.loader import load_steps

    print(f"length {length}, unit {unit}, pairs {pair}", file=sys.stderr, flush=True)
    objective = Objective(ObjectiveConfig(MaskedLMConfig(unit=unit), pair=pair), corpus)  # type: ignore[arg-type]
    split = corpus.split("train")
    plan = Plan.of(corpus, split, objective.window_size(length), 0)
    source = Source(corpus, split, plan, 0, length, arguments.tokens_per_step)
    objective.calibrate(source)
    seconds, batches = [], []
    for step in range(WARM + arguments.steps):
        begun = time.perf_counter()
        batches.append(objective.examples(source, step))
        seconds.append(time.perf_counter() - begun)
    tokens = statistics.fmean(batch.tokens for batch in batches)
    a_step = statistics.median(seconds[WARM:])

    steps = load_steps([(objective, source)], range(WARM + arguments.steps), workers=1)
    for _ in range(WARM):
        next(steps)
    begun = time.perf_counter()
    received = sum(batch.tokens for (batch,) in steps)
    passed = time.perf_counter() - begun
    return {
        "max_length": length,
        "unit": unit,
        "pair": pair,
        "mean_length": round(statistics.fmean(batches[0].lengths), 1),
        "batch_seconds": round(a_step, 6),
        "batches_tokens_per_second": round(tokens / a_step),
        "loader_tokens_per_second": round(received / passed),
        "wait_share": round(waited(objective, source, arguments), 5),
    }


def waited(objective: Any, source: Any, arguments: argparse.Namespace) -> float:
    """The share of its time that a loop waits for batches of one worker, if its steps take a given time besides."""
    from seqbert.training.loader import load_steps

    steps = load_steps([(objective, source)], range(WARM + arguments.waits), workers=1)
    wait = whole = 0.0
    for number in range(WARM + arguments.waits):
        begun = time.perf_counter()
        next(steps)
        received = time.perf_counter()
        time.sleep(arguments.step_seconds)
        if number >= WARM:
            wait += received - begun
            whole += time.perf_counter() - begun
    return wait / whole


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domain", default="text")
    parser.add_argument("--data", nargs="+", required=True, help="files or folders of the domain")
    parser.add_argument("--vocab_size", type=int, default=8192)
    parser.add_argument("--corpus_dir", help="where the corpus is built, and found again; else a folder for this run")
    parser.add_argument("--max_length", type=int, nargs="+", default=[50, 512])
    parser.add_argument("--tokens_per_step", type=int, default=32768)
    parser.add_argument("--steps", type=int, default=200, help="steps of each measurement")
    parser.add_argument("--waits", type=int, default=20, help="steps over which waiting is measured")
    parser.add_argument(
        "--step_seconds", type=float, default=0.02, help="time of a step beside its batch: 1.6 million tokens a second"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
