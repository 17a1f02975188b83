"""A small labelled table of letters and a fine-tuning run on it."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

from letters import ALPHABET
from runs import laid_over


def write_table(path: Path, records: int = 48, seed: int = 0) -> Path:
    """Random words, of which those of the second label hold "ccc"."""
    draw = random.Random(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["sequence", "label"])
        for number in range(records):
            letters = draw.choices(ALPHABET, k=12)
            if number % 2:
                letters[4:7] = "ccc"
            table.writerow(["".join(letters), ("no", "yes")[number % 2]])
    return path


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tree of a run of a second; ``changes`` are laid over it."""
    tree: dict[str, Any] = {
        "output": str(folder / "run"),
        "domain": {"name": "strands"},
        "task": {"name": "classification"},
        "data": {"train": [str(write_table(folder / "table.csv"))], "validation": 0.25},
        "model": {"preset": "bert-tiny", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "max_length": 24},
        "run": {"device": "cpu", "workers": 0, "log_every": 1, "checkpoint_every": 3},
    }
    return laid_over(tree, changes)
