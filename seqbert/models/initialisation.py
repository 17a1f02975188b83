"""What new weights begin as: normal draws that depend on the seed and a name, and beginnings with a purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqbert.models.config import EncoderConfig

SHARPNESS = 3.0
"""What each wavelength adds at most to the score of the neighbour that a head looks at."""

WAVELENGTHS = 8
"""How many of a head's wavelengths, from the shortest, tell neighbours from other tokens."""


class Undrawn(TorchFunctionMode):
    """A context in which modules are made without drawing weights that are replaced at once.

    PyTorch's modules draw their own beginnings, which takes longer than all else in making them, and on the meta device
    imports the compiler. What a weight holds is then whatever lay in its memory.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Leaves the tensor that ``torch.nn.init`` is given as it is, and does everything else."""
        named = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def draw(shape: torch.Size, deviation: float, seed: int, name: str) -> Tensor:
    """Normal numbers that depend on the seed and the name alone, on the CPU."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    return torch.empty(shape, device="cpu").normal_(0, deviation, generator=generator)


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines and cosines of geometrically spaced wavelengths, ``[positions, width]``, of mean square 1.

    Vaswani et al. 2017, section 3.5. A step from one position to the next is the same rotation everywhere, so that a
    head learns to look at neighbours from all positions at once.
    """
    angle = torch.arange(positions)[:, None] * _frequencies(width)
    waves = torch.stack([torch.sin(angle), torch.cos(angle)], dim=2)
    return 2**0.5 * waves.flatten(1)[:, :width]


def _frequencies(width: int) -> Tensor:
    """Of each sine and cosine among :func:`sinusoids`, ``[width / 2]``, in radians a position."""
    frequencies: Tensor = 10000.0 ** (-torch.arange(0, width, 2) / width)
    return frequencies


def neighbour_of(head: int, causal: bool) -> int:
    """Which token a head of the first block looks at first, counted from its own.

    >>> [neighbour_of(head, causal=False) for head in range(5)], [neighbour_of(head, causal=True) for head in range(3)]
    ([1, -1, 2, -2, 3], [-1, -2, -3])
    """
    if causal:
        return -head - 1
    distance = head // 2 + 1
    return distance if head % 2 == 0 else -distance


class NeighbourHeads:
    """Changes drawn weights so that each head of the first block looks at one neighbour.

    Most of what a masked token can be told early on is told by the tokens beside it, and a Transformer spends its first
    thousands of steps on finding out how to look at them. Heads of trained encoders do so (Clark et al. 2019, *What
    Does BERT Look At?*, section 3.1); here they begin that way, and are free to change. The shape and the layout of the
    weights are those of any other encoder.

    A score is ``SHARPNESS * sum(cos((distance - neighbour) * frequency))`` over the shortest wavelengths of the
    positions. With learned positions that begin as sinusoids, queries and keys take some of the sinusoids up, the keys
    turned by the distance, from dimensions that words and segments leave to them at first. Rotary positions turn
    whatever stands in a query and a key; there all words begin with a common direction beside their own, from which
    queries and keys take a constant.

    Args:
        config: The encoder's shape.
        seed: Keys the common direction.
    """

    def __init__(self, config: EncoderConfig, seed: int) -> None:
        self._config = config
        self._heads = config.num_attention_heads
        self._width = config.head_dim
        self._count = min(WAVELENGTHS, self._width // 2)
        self._offsets = torch.tensor([neighbour_of(head, config.causal) for head in range(self._heads)])
        direction = draw(torch.Size([config.hidden_size]), 1.0, seed, "common direction")
        direction -= direction.mean()  # LayerNorm takes the mean off
        self._direction = direction / direction.norm()
        # Of the learned positions' sinusoids those of the wavelengths that a head of rotary positions has.
        self._pairs = torch.arange(self._count) * (config.hidden_size // self._width)

    def change(self, name: str, drawn: Tensor) -> Tensor:
        """What the parameter of this name begins as, given what was drawn for it."""
        is_rotary = self._config.position == "rotary"
        if name == "encoder.blocks.0.attention.query.weight":
            return drawn + self._weight(torch.zeros_like(self._offsets))
        if name == "encoder.blocks.0.attention.key.weight":
            return drawn + self._weight(self._offsets)
        if is_rotary and name.startswith("encoder.embeddings.word."):
            size = float(self._config.initializer_range * self._config.hidden_size**0.5)  # of a word's own part
            return drawn.add(self._direction, alpha=size)
        if not is_rotary and name.startswith(("encoder.embeddings.word.", "encoder.embeddings.segment.")):
            taken = torch.cat([2 * self._pairs, 2 * self._pairs + 1])
            return drawn.index_fill(1, taken, 0.0)
        return drawn

    def _weight(self, offsets: Tensor) -> Tensor:
        """For each head ``[head_dim, hidden_size]``, one below another: what a position is seen as, less the offset."""
        return self._rotary(offsets) if self._config.position == "rotary" else self._sinusoidal(offsets)

    def _rotary(self, offsets: Tensor) -> Tensor:
        config, count, half = self._config, self._count, self._width // 2
        frequency = config.theta_of(0) ** (-torch.arange(count) / half)
        angle = -offsets[:, None] * frequency
        constant = torch.zeros(self._heads, self._width)
        constant[:, :count], constant[:, half : half + count] = angle.cos(), angle.sin()
        share = (config.hidden_size / 2) ** 0.5  # of a normalised state, along the common direction
        size = (SHARPNESS * self._width**0.5) ** 0.5 / share
        weight: Tensor = size * torch.outer(constant.flatten(), self._direction)
        return weight

    def _sinusoidal(self, offsets: Tensor) -> Tensor:
        config, count, pairs = self._config, self._count, self._pairs
        angle = offsets[:, None] * _frequencies(config.hidden_size)[pairs]
        parts = 3 if config.type_vocab_size else 2  # of a normalised state: words, positions and segments
        size = (SHARPNESS * self._width**0.5 * parts / 2) ** 0.5  # sinusoids of mean square 1 are sqrt(2) high
        weight = torch.zeros(self._heads, self._width, config.hidden_size)
        sines, cosines = torch.arange(count) * 2, torch.arange(count) * 2 + 1
        weight[:, sines, 2 * pairs], weight[:, sines, 2 * pairs + 1] = angle.cos(), -angle.sin()
        weight[:, cosines, 2 * pairs], weight[:, cosines, 2 * pairs + 1] = angle.sin(), angle.cos()
        return weight.flatten(0, 1).mul_(size)
