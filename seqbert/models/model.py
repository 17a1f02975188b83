"""An encoder together with the heads that a run needs."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.embeddings import by_vocabulary
from seqbert.models.encoder import Encoder
from seqbert.models.heads import MaskedLMHead, PairHead, check_heads


class Model(nn.Module):
    """The encoder and, for each vocabulary, the heads that are asked for; nothing is built that is not used.

    ``model.encoder(batch)`` gives hidden states; ``model.heads[vocabulary]["masked_lm"]`` takes the targets'
    rows of them, and ``["pair"]`` those of the sequences' first tokens.

    Args:
        config: The encoder's shape.
        vocabularies: Size of each vocabulary by name.
        heads: For each vocabulary the kinds of heads it has; one that is left out has none.

    Raises:
        ConfigError: A head is of no known kind, or belongs to no vocabulary.
    """

    def __init__(
        self,
        config: EncoderConfig,
        vocabularies: Mapping[str, int],
        heads: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        super().__init__()
        asked = dict(heads or {})
        for name in asked.keys() - vocabularies.keys():
            raise ConfigError(f'heads were asked for "{name}", which is none of the vocabularies')
        for kinds in asked.values():
            check_heads(kinds)
        self.encoder = Encoder(config, vocabularies)
        self.heads = by_vocabulary(
            {
                name: nn.ModuleDict({kind: self._head(kind, name) for kind in sorted(asked.get(name, ()))})
                for name in vocabularies
            }
        )

    @property
    def config(self) -> EncoderConfig:
        """The encoder's shape."""
        return self.encoder.config

    @property
    def vocabularies(self) -> dict[str, int]:
        """Number of word embeddings of each vocabulary."""
        return {name: self.word_embedding(name).num_embeddings for name in self.encoder.embeddings.word}

    def heads_of(self, vocabulary: str) -> set[str]:
        """The kinds of heads that a vocabulary has."""
        return set(cast(nn.ModuleDict, self.heads[vocabulary]))

    def word_embedding(self, vocabulary: str) -> nn.Embedding:
        """The word embeddings of a vocabulary; its masked LM head decodes with the same weight."""
        return cast(nn.Embedding, self.encoder.embeddings.word[vocabulary])

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draws all weights anew: normal with deviation ``initializer_range``, biases 0, LayerNorm weights 1.

        With ``position_init`` "sinusoidal" the positions begin as those of :func:`sinusoids` instead.

        Each weight has a generator of its own, keyed by the seed and the weight's name: one more vocabulary,
        head or block leaves the others as they are, on every device.
        """
        for prefix, module in self.named_modules():
            for name, parameter in module.named_parameters(prefix, recurse=False):
                if name.endswith("bias"):
                    parameter.zero_()
                elif isinstance(module, nn.LayerNorm):
                    parameter.fill_(1)
                else:
                    parameter.copy_(draw(parameter.shape, self.config.initializer_range, seed, name))
        if self.config.position_init == "sinusoidal":
            position = self.encoder.embeddings.position.weight
            position.copy_(sinusoids(*position.shape) * self.config.initializer_range)

    def _head(self, kind: str, vocabulary: str) -> nn.Module:
        if kind == "masked_lm":
            return MaskedLMHead(self.config, self.word_embedding(vocabulary))
        return PairHead(self.config)


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines and cosines of geometrically spaced wavelengths, ``[positions, width]``, of mean square 1.

    Vaswani et al. 2017, section 3.5. A step from one position to the next is the same rotation everywhere, so that a
    head learns to look at neighbours from all positions at once.
    """
    place = torch.arange(positions)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, width, 2) / width)
    waves = torch.stack([torch.sin(place * frequency), torch.cos(place * frequency)], dim=2)
    return 2**0.5 * waves.flatten(1)[:, :width]


def draw(shape: torch.Size, deviation: float, seed: int, name: str) -> Tensor:
    """Normal numbers that depend on the seed and the name alone, on the CPU."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    return torch.empty(shape, device="cpu").normal_(0, deviation, generator=generator)
