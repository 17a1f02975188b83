"""Small labelled tables and fine-tuning runs for tests."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

from runs import WORDS, laid_over

GOOD, BAD = ("good", "fine", "great"), ("bad", "poor", "awful")


def write_reviews(path: Path, records: int = 60, seed: int = 0, labels: tuple[str, str] = ("no", "yes")) -> Path:
    """A CSV table of short texts that say something good (the second label) or bad (the first)."""
    draw = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for number in range(records):
            words = draw.choices(WORDS, k=draw.randint(3, 8))
            words.insert(draw.randint(0, len(words)), draw.choice((BAD, GOOD)[number % 2]))
            table.writerow([" ".join(words), labels[number % 2]])
    return path


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tree of a fine-tuning run of a few seconds; ``changes`` are laid over it."""
    tree: dict[str, Any] = {
        "output": str(folder / "run"),
        "domain": {"name": "text", "vocab_size": 150},
        "task": {"name": "classification"},
        "data": {"train": [str(write_reviews(folder / "reviews.csv"))], "validation": 0.25},
        "model": {"preset": "bert-tiny", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "max_length": 24},
        "run": {"device": "cpu", "precision": "fp32", "workers": 0, "log_every": 1, "checkpoint_every": 3},
    }
    return laid_over(tree, changes)
