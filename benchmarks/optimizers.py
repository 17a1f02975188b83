"""Measures what an update costs: AdamW, Muon, and Muon as ``torch.optim.Muon`` does it, one matrix after the other.

    python benchmarks/optimizers.py --preset bert-mini --threads 1

All update the same weights with the same gradients, in turn, several rounds of each; printed are medians in
milliseconds as JSON. Muon's are of the matrices of the blocks and of AdamW over the rest. How many tokens a step must
have for it to be a small part follows from the products: the Newton-Schulz iteration takes as many for any batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from seqbert.models.config import PRESETS
from seqbert.models.model import Model
from seqbert.training.optimizers import AdamWConfig, Joined, MuonConfig, build_optimizer, is_hidden_matrix


def main() -> None:
    """Runs what the command line asks for."""
    arguments = _parser().parse_args()
    torch.set_num_threads(arguments.threads)
    print(json.dumps(measured(arguments.preset, arguments.vocabulary, arguments.ns_steps, arguments.rounds), indent=2))


def measured(name: str, vocabulary: int, ns_steps: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of an update by each optimizer, and how they compare."""
    updates = {
        "adamw": _adamw(name, vocabulary),
        "muon": _muon(name, vocabulary, ns_steps),
        "torch_muon": _torch_muon(name, vocabulary, ns_steps),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in updates}
    for number in range(rounds + 1):
        for kind, update in updates.items():
            begun = time.perf_counter()
            update()
            if number:  # the first round makes the state
                seconds[kind].append(time.perf_counter() - begun)
    medians = {kind: 1000 * statistics.median(one) for kind, one in seconds.items()}
    return {
        "preset": name,
        "threads": torch.get_num_threads(),
        "ns_steps": ns_steps,
        "milliseconds": {kind: round(one, 2) for kind, one in medians.items()},
        "newton_schulz_gflop": round(_newton_schulz_flop(_model(name, vocabulary), ns_steps) / 1e9, 3),
        "muon_over_torch_muon": round(medians["muon"] / medians["torch_muon"], 3),
        "muon_over_adamw": round(medians["muon"] / medians["adamw"], 1),
    }


def _model(name: str, vocabulary: int) -> Model:
    model = Model(PRESETS[name], {"x": vocabulary}, {"x": ("masked_lm",)})
    model.initialise(seed=0)
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.grad = 1e-3 * torch.randn(parameter.shape, generator=draw)
    return model


def _adamw(name: str, vocabulary: int) -> Callable[[], object]:
    return build_optimizer(AdamWConfig(), _model(name, vocabulary).named_parameters(), 1e-3).step


def _muon(name: str, vocabulary: int, ns_steps: int) -> Callable[[], object]:
    return build_optimizer(MuonConfig(ns_steps=ns_steps), _model(name, vocabulary).named_parameters(), 1e-3).step


def _torch_muon(name: str, vocabulary: int, ns_steps: int) -> Callable[[], object]:
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for key, parameter in _model(name, vocabulary).named_parameters():
        (matrices if is_hidden_matrix(key, parameter) else rest).append(parameter)
    muon = torch.optim.Muon(matrices, 1e-3, ns_steps=ns_steps, adjust_lr_fn="match_rms_adamw")
    return Joined([muon, torch.optim.AdamW(rest, 1e-3, fused=True)]).step


def _newton_schulz_flop(model: Model, ns_steps: int) -> int:
    """Of every matrix of the blocks in each step: two products of its short side's square with it, and one cube."""
    shapes = [tuple(one.shape) for name, one in model.named_parameters() if is_hidden_matrix(name, one)]
    return sum(2 * ns_steps * (2 * min(shape) ** 2 * max(shape) + min(shape) ** 3) for shape in shapes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", default="bert-mini", choices=PRESETS, metavar="NAME", help="shape of the encoder")
    parser.add_argument("--vocabulary", type=int, default=30522, metavar="N", help="entries of the vocabulary")
    parser.add_argument("--ns_steps", type=int, default=5, metavar="N", help="steps of the Newton-Schulz iteration")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="updates of each that are measured")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), metavar="N", help="of PyTorch")
    return parser


if __name__ == "__main__":
    main()
