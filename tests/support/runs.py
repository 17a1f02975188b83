"""Small pretraining runs for tests."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "bird",
    "sees",
    "hears",
    "likes",
    "small",
    "old",
    "grey",
    "house",
    "tree",
    "river",
    "walks",
    "sleeps",
    "and",
    "or",
    "but",
    "never",
]


def write_texts(folder: Path, documents: int = 60, seed: int = 0) -> Path:
    """A folder with one text file of short documents, a sentence a line."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    blocks = [
        " ".join(" ".join(draw.choices(WORDS, k=draw.randint(4, 9))).capitalize() + "." for _ in range(6))
        for _ in range(documents)
    ]
    (folder / "texts.txt").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return folder


def write_fasta(folder: Path, records: int = 40, length: int = 150, letters: str = "ACGT", seed: int = 0) -> Path:
    """A folder with one FASTA file of random records."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f">r{n}\n{''.join(draw.choices(letters, k=length))}" for n in range(records)]
    (folder / "records.fasta").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tree of a run of a few seconds on texts under ``folder``; ``changes`` are laid over it."""
    tree: dict[str, Any] = {
        "output": str(folder / "run"),
        "domains": {"text": {"data": [str(write_texts(folder / "texts"))], "vocab_size": 120, "validation": 0.1}},
        "model": {"preset": "bert-tiny", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
        "training": {
            "max_length": 32,
            "tokens_per_step": 512,
            "steps": 8,
            "evaluate_every": 4,
            "validation_tokens": 2048,
        },
        "run": {
            "device": "cpu",
            "precision": "fp32",
            "workers": 0,
            "corpus_dir": str(folder / "corpora"),
            "log_every": 1,
            "checkpoint_every": 3,
            "keep": 9,
        },
    }
    return laid_over(tree, changes)


def laid_over(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(tree)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = laid_over(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
