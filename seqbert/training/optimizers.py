"""Optimizers, each with its config."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

import torch
from torch import nn

from seqbert.errors import ConfigError


@dataclasses.dataclass
class AdamWConfig:
    """AdamW (Loshchilov and Hutter 2019) with bias correction."""

    name: Literal["adamw"] = "adamw"
    """The optimizer."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.98
    """Decay of the mean of squared gradients; RoBERTa (Liu et al. 2019, section 3.1) found 0.98 stabler than 0.999."""
    eps: float = 1e-6
    """Added to the root of the mean square; BERT's released code uses 1e-6."""
    weight_decay: float = 0.01
    """Decay of weight matrices; biases and LayerNorm have none (Devlin et al. 2019, appendix A.2)."""

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise ConfigError("beta1 and beta2 must be at least 0 and below 1.")
        if not self.eps > 0 or self.weight_decay < 0:
            raise ConfigError("eps must be above 0, and weight_decay at least 0.")


def build_optimizer(
    config: AdamWConfig, parameters: Iterable[tuple[str, nn.Parameter]], learning_rate: float
) -> torch.optim.Optimizer:
    """The optimizer over named parameters; vectors (biases, LayerNorm) are not decayed."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for _, parameter in parameters:
        groups[parameter.ndim > 1].append(parameter)
    return torch.optim.AdamW(
        [
            {"params": members, "weight_decay": config.weight_decay if decayed else 0.0}
            for decayed, members in groups.items()
        ],
        lr=learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )
