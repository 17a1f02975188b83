"""Optimizers, each with its config."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, Literal

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
        _check(self)


@dataclasses.dataclass
class BertAdamConfig:
    """The optimizer of BERT's released code: Adam without bias correction, with decoupled weight decay.

    Without the correction the first updates are about three times as large. On few examples that makes runs fail
    (Zhang et al. 2021, section 4); it is here to repeat old results.
    """

    name: Literal["bert_adam"] = "bert_adam"
    """The optimizer."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.999
    """Decay of the mean of squared gradients."""
    eps: float = 1e-6
    """Added to the root of the mean square."""
    weight_decay: float = 0.01
    """Decay of weight matrices; biases and LayerNorm have none (Devlin et al. 2019, appendix A.2)."""

    def __post_init__(self) -> None:
        _check(self)


class BertAdam(torch.optim.Optimizer):
    """Adam as BERT's released ``optimization.py`` has it: ``m / (sqrt(v) + eps)``, ``m`` and ``v`` as they are.

    Args:
        groups: Parameter groups, as for any optimizer.
        lr: Learning rate.
        betas: Decay of the mean of gradients ``m`` and of squared gradients ``v``.
        eps: Added to the root of ``v``.
        weight_decay: Times the learning rate and the weight, what an update takes off beside.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                mean = state["exp_avg"].lerp_(parameter.grad, 1 - beta1)
                square = state["exp_avg_sq"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                update = mean / square.sqrt().add_(group["eps"])
                parameter.sub_(update.add_(parameter, alpha=group["weight_decay"]), alpha=group["lr"])


def build_optimizer(
    config: AdamWConfig | BertAdamConfig,
    parameters: Iterable[tuple[str, nn.Parameter]],
    learning_rate: float,
    layer_decay: float = 1.0,
    layers: int = 0,
) -> torch.optim.Optimizer:
    """The optimizer over those of the named parameters that are trained; vectors (biases, LayerNorm) are not decayed.

    Args:
        config: Which optimizer, and its numbers.
        parameters: A model's parameters by name.
        learning_rate: Of the heads, and with ``layer_decay`` 1 of everything.
        layer_decay: What the rate is multiplied by from one block to the next below it (Clark et al. 2020, appendix
            B): block ``i`` learns at ``layer_decay ** (layers - i)`` of the rate, the embeddings as a block of
            number -1. Each group has its factor as ``lr_scale``.
        layers: Number of the encoder's blocks; read with ``layer_decay`` only.
    """
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in parameters:
        if parameter.requires_grad:
            scale = layer_decay ** _depth(name, layers) if layer_decay != 1 else 1.0
            groups.setdefault((scale, parameter.ndim > 1), []).append(parameter)
    param_groups = [
        {
            "params": groups[scale, decayed],
            "weight_decay": config.weight_decay if decayed else 0.0,
            "lr": learning_rate * scale,
            "lr_scale": scale,
        }
        for scale, decayed in sorted(groups, reverse=True)
    ]
    betas = (config.beta1, config.beta2)
    if isinstance(config, BertAdamConfig):
        return BertAdam(param_groups, learning_rate, betas, config.eps)
    return torch.optim.AdamW(param_groups, learning_rate, betas, config.eps, fused=True)


def _depth(name: str, layers: int) -> int:
    """How many steps of layer-wise decay lie between a parameter and the heads."""
    if block := re.match(r"encoder\.blocks\.(\d+)\.", name):
        return layers - int(block[1])
    return layers + 1 if name.startswith("encoder.embeddings.") else 0


def _check(config: AdamWConfig | BertAdamConfig) -> None:
    if not (0 <= config.beta1 < 1 and 0 <= config.beta2 < 1):
        raise ConfigError("beta1 and beta2 must be at least 0 and below 1.")
    if not config.eps > 0 or config.weight_decay < 0:
        raise ConfigError("eps must be above 0, and weight_decay at least 0.")
