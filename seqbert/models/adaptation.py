"""What is trained of a pretrained encoder, and from where: freezing, drawing anew, low-rank updates."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqbert.errors import ConfigError, nearest
from seqbert.models.heads import CARRIED_OVER, TASKS
from seqbert.models.initialisation import draw
from seqbert.models.model import Model

LORA_TARGETS = {
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "output": "attention.output",
    "intermediate": "feed_forward.intermediate",
    "feed_forward_output": "feed_forward.output",
}
"""Weights of a block that LoRA can be put on, and where they stand in it."""


@dataclasses.dataclass
class LoRAConfig:
    """Low-rank updates in place of training the encoder's weights (Hu et al. 2022, *LoRA*, section 4.1).

    Raises:
        ConfigError: A value cannot be used.
    """

    rank: int = 8
    """Rank of the update to each weight."""
    alpha: float = 16.0
    """The update is multiplied by alpha over rank."""
    targets: list[str] = dataclasses.field(default_factory=lambda: ["query", "value"])
    """Weights of each block that are updated: query, key, value and output of its attention, intermediate and
    feed_forward_output. The default is that of Hu et al. 2022, section 4.2."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"rank is {self.rank}, and it must be at least 1.")
        if not self.alpha > 0:
            raise ConfigError(f"alpha is {self.alpha}, and it must be above 0.")
        if not self.targets:
            raise ConfigError(f"targets is empty; name at least one of {', '.join(LORA_TARGETS)}.")
        for target in self.targets:
            if target not in LORA_TARGETS:
                raise ConfigError(
                    f'targets has "{target}", and it may have {", ".join(LORA_TARGETS)}.'
                    + nearest(target, LORA_TARGETS)
                )
        if len(set(self.targets)) < len(self.targets):
            raise ConfigError("targets names a weight twice.")


class LowRankUpdate(nn.Module):
    """``weight + scale * up @ down``, with ``up`` 0 at first, so that training begins at ``weight``.

    Args:
        weight: What is updated, ``[rows, columns]``.
        rank: Rank of the update.
        scale: What it is multiplied by.
    """

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.down = nn.Parameter(weight.new_zeros(rank, columns))
        self.up = nn.Parameter(weight.new_zeros(rows, rank))
        self.scale = scale

    def forward(self, weight: Tensor) -> Tensor:
        """The weight with its update."""
        return torch.addmm(weight, self.up, self.down, alpha=self.scale)


def freeze(model: Model, embeddings: bool, layers: int) -> None:
    """Takes the embeddings and the lowest ``layers`` blocks out of training.

    Raises:
        ConfigError: The encoder has fewer blocks.
    """
    _check_layers(model, layers, "frozen")
    if embeddings:
        model.encoder.embeddings.requires_grad_(False)
    for block in model.encoder.blocks[:layers]:
        block.requires_grad_(False)


def reinitialise_top(model: Model, layers: int, seed: int) -> None:
    """Draws the top ``layers`` blocks, and the poolers or dense layers of tasks, anew (Zhang et al. 2021, section 5).

    Raises:
        ConfigError: The encoder has fewer blocks, or stands under features and would stay as it was drawn.
    """
    _check_layers(model, layers, "drawn anew")
    if not layers:
        return
    if model.is_frozen:
        raise ConfigError("reinitialise draws blocks anew, and features never train them: leave one of them out.")
    count = len(model.encoder.blocks)
    blocks = [f"encoder.blocks.{number}" for number in range(count - layers, count)]
    poolers = [
        f"heads.{vocabulary}.{kind}.{module}"
        for vocabulary in model.vocabularies
        for kind in model.heads_of(vocabulary)
        if kind in (*TASKS, "pair")
        for module in CARRIED_OVER
    ]
    model.initialise(seed, within=[*blocks, *poolers])


def add_lora(model: Model, config: LoRAConfig, seed: int) -> None:
    """Puts low-rank updates on the encoder's weights and freezes the rest of it; heads are trained as they are.

    Each ``down`` is normal with the deviation of the authors' released code; ``up`` is 0.

    Raises:
        ConfigError: The model has features, for which the encoder is not trained.
    """
    if model.features is not None:
        raise ConfigError("lora updates the encoder, and features keep it, or train it whole: leave one of them out.")
    model.encoder.requires_grad_(False)
    for number, block in enumerate(model.encoder.blocks):
        for target in config.targets:
            linear = block.get_submodule(LORA_TARGETS[target])
            assert isinstance(linear, nn.Linear)
            update = LowRankUpdate(linear.weight, config.rank, config.alpha / config.rank)
            name = f"encoder.blocks.{number}.{LORA_TARGETS[target]}.lora"
            with torch.no_grad():
                update.down.copy_(draw(update.down.shape, (3 * linear.in_features) ** -0.5, seed, name))
            parametrize.register_parametrization(linear, "weight", update)


@torch.no_grad()
def merged(model: Model) -> Model:
    """The model with its low-rank updates added to the weights: a copy, or the model itself where it has none."""
    if not any(parametrize.is_parametrized(module) for module in model.modules()):
        return model
    # Built anew: a deep copy shares the classes that parametrize made, and taking it off there takes it off here.
    heads = {name: model.heads_of(name) for name in model.vocabularies}
    twin = Model(model.config, model.vocabularies, heads, mask_ids=model.mask_ids)
    twin.to(next(model.parameters()).device)
    for name, parameter in twin.named_parameters():
        module, _, weight = name.rpartition(".")
        parameter.copy_(getattr(model.get_submodule(module), weight))
    return twin.train(model.training)


def _check_layers(model: Model, layers: int, what: str) -> None:
    if not 0 <= layers <= len(model.encoder.blocks):
        raise ConfigError(f"{layers} blocks are to be {what}, and the encoder has {len(model.encoder.blocks)}.")
