"""Optimizers, each with its config."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from seqbert.errors import ConfigError
from seqbert.training.device import multiplies_bf16


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


@dataclasses.dataclass
class MuonConfig:
    """Muon (Jordan et al. 2024) for the weight matrices of the encoder's blocks, AdamW for everything else.

    Everything else are embeddings, heads, biases, LayerNorm, and what LoRA or a BiLSTM adds.
    """

    name: Literal["muon"] = "muon"
    """The optimizer."""
    momentum: float = 0.95
    """Of the matrices: decay of the mean of gradients."""
    nesterov: bool = True
    """Whether the newest gradient counts once more beside that mean."""
    ns_steps: int = 5
    """Steps of the Newton-Schulz iteration that makes an update orthogonal; each costs as many products."""
    adjust_lr_fn: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    """How long the update of a matrix is. match_rms_adamw: 0.2 sqrt(max(rows, columns)) times the learning rate, as
    much for each weight as AdamW's, so that one rate does for both (Liu et al. 2025, section 2.2); original:
    sqrt(max(1, rows / columns)) times."""
    adamw_rate: float = 1.0
    """Learning rate of what AdamW updates, relative to that of the matrices."""
    beta1: float = 0.9
    """Of AdamW: decay of the mean of gradients."""
    beta2: float = 0.98
    """Of AdamW: decay of the mean of squared gradients."""
    eps: float = 1e-6
    """Of AdamW: added to the root of the mean square."""
    weight_decay: float = 0.01
    """Decay of weight matrices, those of embeddings and heads too; biases and LayerNorm have none."""

    def __post_init__(self) -> None:
        _check(self)
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum is {self.momentum}; it is at least 0 and below 1.")
        if not 1 <= self.ns_steps < 100:
            raise ConfigError(f"ns_steps is {self.ns_steps}; it is at least 1 and below 100.")
        if not self.adamw_rate > 0:
            raise ConfigError(f"adamw_rate is {self.adamw_rate}, and it must be above 0.")


OptimizerConfig = AdamWConfig | BertAdamConfig | MuonConfig
"""Any of the optimizers."""

MUON_STATE, BERT_ADAM_STATE, ADAMW_STATE = (
    ("momentum_buffer",),
    ("exp_avg", "exp_avg_sq"),
    ("exp_avg", "exp_avg_sq", "step"),
)
"""What each optimizer keeps of a parameter; its groups have it as ``state_names``."""

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that takes singular values near 1 (Jordan et al. 2024, *Muon*)."""


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


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are made orthogonal (Jordan et al. 2024): ``torch.optim.Muon``, many matrices at a time.

    Matrices of one shape go through the Newton-Schulz iteration together: on a GPU a step is a few dozen large products
    instead of a thousand small ones. The iteration is in bf16, or in fp32 where the device has no instructions for
    that: a processor that imitates bf16 takes many times as long.

    Args:
        groups: Parameter groups of matrices, as for any optimizer.
        lr: Learning rate.
        momentum: Decay of the mean of gradients.
        nesterov: Whether the newest gradient counts once more beside that mean.
        ns_steps: Steps of the Newton-Schulz iteration.
        adjust_lr_fn: How the length of an update depends on the shape of its matrix; see :class:`MuonConfig`.
        weight_decay: Times the learning rate and the weight, what an update takes off beside.

    Raises:
        ValueError: A parameter is no matrix.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        adjust_lr_fn: Literal["match_rms_adamw", "original"] = "match_rms_adamw",
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "ns_steps": ns_steps}
        super().__init__(groups, defaults | {"adjust_lr_fn": adjust_lr_fn, "weight_decay": weight_decay})
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(f"Muon updates matrices, and a parameter has the shape {tuple(parameter.shape)}")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[Any, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape, parameter.dtype, parameter.device].append(parameter)
            for parameters in alike.values():
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Updates matrices of one shape."""
        gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
        means = [self._mean(parameter) for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
        directions = torch._foreach_lerp(gradients, means, group["momentum"]) if group["nesterov"] else means
        precision = torch.bfloat16 if multiplies_bf16(parameters[0].device) else torch.float32
        updates = orthogonal(torch.stack([one.to(precision) for one in directions]), group["ns_steps"])
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        length = group["lr"] * _length(parameters[0].shape, group["adjust_lr_fn"])
        torch._foreach_add_(parameters, list(updates.to(parameters[0].dtype).unbind()), alpha=-length)

    def _mean(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state[MUON_STATE[0]] = torch.zeros_like(parameter)
        return cast(Tensor, state[MUON_STATE[0]])


def orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """About ``U V^T`` of matrices ``U S V^T``, ``[matrices, rows, columns]``, by the Newton-Schulz iteration.

    Five steps leave singular values between 0.7 and 1.2 (Jordan et al. 2024), which is near enough for an update.
    """
    first, third, fifth = NEWTON_SCHULZ
    is_tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if is_tall else matrices
    wide = wide / wide.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(steps):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), wide, beta=first)
    return wide.mT if is_tall else wide


def _length(shape: torch.Size, adjust_lr_fn: str) -> float:
    """How long the update of a matrix is, in learning rates."""
    rows, columns = shape
    if adjust_lr_fn == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


class Joined(torch.optim.Optimizer):
    """Several optimizers, each over parameters of its own, as one: with their groups and their state.

    Args:
        parts: The optimizers.
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()  # what was loaded are new objects

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self._parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]

    def step(self) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for part in self._parts:
            part.step()


def build_optimizer(
    config: OptimizerConfig,
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
            number -1. Each group has its factor as ``lr_scale``, and as ``state_names`` what is kept of its members.
        layers: Number of the encoder's blocks; read with ``layer_decay`` only.
    """
    matrices: list[tuple[float, nn.Parameter]] = []
    others: list[tuple[float, nn.Parameter]] = []
    others_rate = config.adamw_rate if isinstance(config, MuonConfig) else 1.0
    for name, parameter in parameters:
        if parameter.requires_grad:
            scale = layer_decay ** _depth(name, layers) if layer_decay != 1 else 1.0
            if isinstance(config, MuonConfig) and is_hidden_matrix(name, parameter):
                matrices.append((scale, parameter))
            else:
                others.append((scale * others_rate, parameter))
    betas = (config.beta1, config.beta2)
    if isinstance(config, BertAdamConfig):
        groups = _grouped(others, config.weight_decay, learning_rate, BERT_ADAM_STATE)
        return BertAdam(groups, learning_rate, betas, config.eps)
    groups = _grouped(others, config.weight_decay, learning_rate, ADAMW_STATE)
    adamw = torch.optim.AdamW(groups, learning_rate, betas, config.eps, fused=True)
    if not matrices:
        return adamw
    assert isinstance(config, MuonConfig)
    groups = _grouped(matrices, config.weight_decay, learning_rate, MUON_STATE)
    options = (config.momentum, config.nesterov, config.ns_steps, config.adjust_lr_fn)
    return Joined([Muon(groups, learning_rate, *options), adamw])


def _grouped(
    members: Iterable[tuple[float, nn.Parameter]], weight_decay: float, learning_rate: float, state: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The parameter groups of parameters, each with what its rate is multiplied by."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for scale, parameter in members:
        groups.setdefault((scale, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": groups[scale, decayed],
            "weight_decay": weight_decay if decayed else 0.0,
            "lr": learning_rate * scale,
            "lr_scale": scale,
            "state_names": state,
        }
        for scale, decayed in sorted(groups, reverse=True)
    ]


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a weight matrix of the encoder's blocks, and not what LoRA adds to one."""
    return name.startswith("encoder.blocks.") and parameter.ndim == 2 and ".parametrizations." not in name


def _depth(name: str, layers: int) -> int:
    """How many steps of layer-wise decay lie between a parameter and the heads."""
    if block := re.match(r"encoder\.blocks\.(\d+)\.", name):
        return layers - int(block[1])
    return layers + 1 if name.startswith("encoder.embeddings.") else 0


def _check(config: OptimizerConfig) -> None:
    if not (0 <= config.beta1 < 1 and 0 <= config.beta2 < 1):
        raise ConfigError("beta1 and beta2 must be at least 0 and below 1.")
    if not config.eps > 0 or config.weight_decay < 0:
        raise ConfigError("eps must be above 0, and weight_decay at least 0.")
