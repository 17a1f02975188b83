"""Measuring functions about what encoders are: their size, and what their vectors have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqbert.analysis.parameters import describe
from seqbert.models.config import ModelConfig
from seqbert.studies.measures import Rows

BLOCKS = ("attention", "feed-forward", "blocks LayerNorm")


def parameters(folder: Path, seed: int, layers: Sequence[int], widths: Sequence[int]) -> Rows:
    """Parameters of the blocks of BERT, in millions, for each number of layers and hidden size.

    Args:
        folder: Not used: there is nothing to draw.
        seed: Not used: nothing is drawn by lot.
        layers: Numbers of blocks.
        widths: Hidden sizes, multiples of 64.
    """
    rows: Rows = []
    for count in layers:
        for width in widths:
            shape = ModelConfig(
                num_hidden_layers=count,
                hidden_size=width,
                num_attention_heads=width // 64,
                intermediate_size=4 * width,
            )
            parts = describe(shape.resolve(), heads=()).parameters
            millions = sum(parts[part] for part in BLOCKS) / 1e6
            rows.append({"labels": {"layers": count, "width": width}, "metrics": {"millions": millions}})
    return rows
