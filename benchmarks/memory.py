"""Measures the peak memory of a training step beside weights and optimizer state, against transformers.

    python benchmarks/memory.py --model bert-mini --lengths mixed --precision bf16 > memory.json

The steps, the batches and the options are those of ``step.py`` beside this file. A process of its own for each takes a
step to make the optimizer's state, and has PyTorch record every allocation of the next one. Its peak is the most that
was held at one time. Weights and state are held before it; what it holds of gradients counts, for both.

Prints one JSON object: for each batch and contender the peak in bytes, and transformers' over seqbert's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import step
from contenders import Contender, ContenderError, answers


def main() -> int:
    """Runs what the command line asks for; 1 where a contender fails."""
    arguments = step.parser().parse_args()
    if arguments.contender:
        replies = answers()
        print(json.dumps(peaks(arguments, arguments.contender)), file=replies)
        return 0
    rows = {}
    for name in arguments.only or [one for one in step.contenders(arguments) if one != "products"]:
        contender = Contender(__file__, name)
        try:
            rows[name] = contender.answer()
        except ContenderError as error:
            print(f"memory: {error}", file=sys.stderr)
            return 1
        finally:
            contender.end()
    shown = ("model", "vocabulary", "lengths", "max_length", "tokens", "precision", "dropout")
    settings = {name: getattr(arguments, name) for name in shown}
    print(json.dumps({**settings, "contenders": rows, "ratios": ratios(rows)}, indent=2))
    return 0


def ratios(rows: dict[str, dict[str, Any]]) -> dict[str, float]:
    """How many times as much as seqbert each of the others takes at its largest batch."""
    if "seqbert" not in rows:
        return {}
    own = max(rows["seqbert"]["peak_bytes"])
    return {
        f"{name} / seqbert": round(max(row["peak_bytes"]) / own, 3) for name, row in rows.items() if name != "seqbert"
    }


def peaks(arguments: argparse.Namespace, contender: str) -> dict[str, Any]:
    """The peak of a step on each batch, beside what is held before it."""
    import torch

    torch.set_num_threads(arguments.threads)
    batches = step.batches_of(arguments, contender)
    steps = step.STEPS[contender](arguments, batches)
    for _ in batches:  # also makes what is kept from one batch to the next
        next(steps)
    gradients = 4 * step.parameters_of(arguments)
    found = [recorded_peak(lambda: next(steps)) for _ in batches]
    return {"peak_bytes": found, "tokens": [batch.tokens for batch in batches], "gradient_bytes": gradients}


def recorded_peak(run: Any) -> int:
    """The most bytes that were held at once while something ran, beside those held before."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as recorded:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    held: dict[int, int] = {}
    most = 0
    for change in sorted(changes, key=lambda event: float(event["ts"])):
        size, address = change["args"]["Bytes"], change["args"]["Addr"]
        if size > 0:
            held[address] = size
            most = max(most, sum(held.values()))
        else:  # of gradients of the step before too, which do not count
            held.pop(address, None)
    return most


if __name__ == "__main__":
    raise SystemExit(main())
