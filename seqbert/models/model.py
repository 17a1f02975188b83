"""An encoder together with the heads that a run needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from seqbert.data.packing import PackedBatch
from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig
from seqbert.models.embeddings import by_vocabulary
from seqbert.models.encoder import Encoder, EncoderOutput
from seqbert.models.heads import DenseHead, MaskedLMHead, PooledHead, TokenHead, build_head, head_outputs
from seqbert.models.initialisation import NeighbourHeads, draw, sinusoids
from seqbert.models.lstm import Features, FeaturesConfig, WeightedSum


class Model(nn.Module):
    """The encoder and, for each vocabulary, the heads that are asked for; nothing is built that is not used.

    ``model(batch)`` gives a row a token; ``model.heads[vocabulary][kind]`` takes the rows of its targets: of tokens for
    "masked_lm", "tagging" and "span", of the sequences' first tokens for "pair", "classification" and "choice".

    With features, the rows are built from the layers of the encoder; where that is frozen, it has no dropout.

    Args:
        config: The encoder's shape.
        vocabularies: Size of each vocabulary by name.
        heads: For each vocabulary the kinds of heads it has, or each kind with its number of outputs; a vocabulary that
            is left out has none.
        features: What the heads stand on, if not on the last hidden states.
        mask_ids: The id of [MASK] in each vocabulary; only the encoder's ``token_dropout`` asks for it.

    Raises:
        ConfigError: A head is of no known kind, lacks its number of outputs, belongs to no vocabulary, or cannot stand
            on features; or ``token_dropout`` is on and a vocabulary has no [MASK].
    """

    def __init__(
        self,
        config: EncoderConfig,
        vocabularies: Mapping[str, int],
        heads: Mapping[str, Collection[str] | Mapping[str, int]] | None = None,
        features: FeaturesConfig | None = None,
        mask_ids: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        asked = dict(heads or {})
        for name in asked.keys() - vocabularies.keys():
            raise ConfigError(f'heads were asked for "{name}", which is none of the vocabularies')
        outputs = {name: head_outputs(asked.get(name, ()), size) for name, size in vocabularies.items()}
        if features is not None and any("masked_lm" in kinds for kinds in outputs.values()):
            raise ConfigError('the head "masked_lm" stands on the encoder itself, and the model has features')
        self.encoder = Encoder(config, vocabularies, mask_ids)
        self.features = None if features is None else Features(features, config)
        if self.is_frozen:
            self.encoder.requires_grad_(False).eval()
        self.heads = by_vocabulary(
            {
                name: nn.ModuleDict(
                    {
                        kind: build_head(kind, config, self.width, number, self.word_embedding(name))
                        for kind, number in kinds.items()
                    }
                )
                for name, kinds in outputs.items()
            }
        )

    def forward(self, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """What the heads stand on, ``[tokens, width]``: the last hidden states, or the features.

        With ``rows`` it is that of these tokens alone, ``[rows, width]``: nothing that they do not need is computed.

        Raises:
            DataError: A sequence is longer than the encoder can take.
        """
        if self.features is None:
            return cast(Tensor, self.encoder(batch, rows=rows))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_frozen):
            output = cast(EncoderOutput, self.encoder(batch, layers=True))
        features = cast(Tensor, self.features(output.layers, batch.lengths))
        return features if rows is None else features[rows]

    def train(self, mode: bool = True) -> Self:
        """Switches dropout on or off; a frozen encoder keeps it off (Devlin et al. 2019, section 5.3)."""
        super().train(mode)
        if self.is_frozen:
            self.encoder.eval()
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether features stand on the encoder that keep it as it is."""
        return self.features is not None and self.features.config.frozen

    @property
    def width(self) -> int:
        """Width of the rows that the heads take."""
        return self.config.hidden_size if self.features is None else self.features.width

    @property
    def config(self) -> EncoderConfig:
        """The encoder's shape."""
        return self.encoder.config

    @property
    def vocabularies(self) -> dict[str, int]:
        """Number of word embeddings of each vocabulary."""
        return {name: self.word_embedding(name).num_embeddings for name in self.encoder.embeddings.word}

    @property
    def mask_ids(self) -> dict[str, int]:
        """The id of [MASK] in each vocabulary where the encoder's token dropout uses it; else empty."""
        return self.encoder.embeddings.mask_ids

    def heads_of(self, vocabulary: str) -> dict[str, int]:
        """The kinds of heads that a vocabulary has, and the number of outputs of each."""
        heads = cast("Mapping[str, MaskedLMHead | PooledHead | TokenHead | DenseHead]", self.heads[vocabulary])
        return {kind: head.outputs for kind, head in heads.items()}

    def word_embedding(self, vocabulary: str) -> nn.Embedding:
        """The word embeddings of a vocabulary; its masked LM head decodes with the same weight."""
        return cast(nn.Embedding, self.encoder.embeddings.word[vocabulary])

    @torch.no_grad()
    def initialise(
        self,
        seed: int,
        within: Collection[str] | None = None,
        frequencies: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Draws weights anew: normal with deviation ``initializer_range``, biases 0, LayerNorm weights 1.

        With ``position_init`` "sinusoidal" the positions begin as those of :func:`sinusoids` instead, and with
        ``attention_init`` "neighbours" the heads of the first block as :class:`NeighbourHeads` has them; with
        ``bias_init`` "unigram" the decoder of a masked LM predicts each token as often as it occurs. An LSTM's weights
        have the deviation that PyTorch gives them, and the layers of a weighted sum begin alike.

        Each weight has a generator of its own, keyed by the seed and the weight's name: one more vocabulary,
        head or block leaves the others as they are, on every device.

        Args:
            seed: What the generators are keyed by.
            within: Modules by name, such as ``encoder.blocks.3``, to draw and leave the rest; None: all.
            frequencies: How frequent the tokens of a vocabulary are, ``[vocab_size]``, each above 0 and 1 in all; where
                they are not known, biases begin at 0.
        """
        prefixes = None if within is None else tuple(f"{name}." for name in within)
        neighbours = NeighbourHeads(self.config, seed) if self.config.attention_init == "neighbours" else None
        for prefix, module in self.named_modules():
            for name, parameter in module.named_parameters(prefix, recurse=False):
                if prefixes is None or name.startswith(prefixes):
                    drawn = self._drawn(module, name, parameter, seed)
                    parameter.copy_(drawn if neighbours is None else neighbours.change(name, drawn))
        if self.config.bias_init == "unigram":
            for vocabulary, frequency in (frequencies or {}).items():
                name = f"heads.{vocabulary}.masked_lm"
                if prefixes is None or f"{name}.".startswith(prefixes):
                    bias = cast(MaskedLMHead, self.get_submodule(name)).bias
                    bias.copy_(torch.from_numpy(np.log(frequency)))

    def _drawn(self, module: nn.Module, name: str, parameter: Tensor, seed: int) -> Tensor:
        if name.rpartition(".")[2].startswith("bias"):
            return torch.zeros(parameter.shape)
        if isinstance(module, nn.LayerNorm | WeightedSum):
            return torch.ones(parameter.shape)
        deviation = self.config.initializer_range
        if module is self.encoder.embeddings.position and self.config.position_init == "sinusoidal":
            return sinusoids(*parameter.shape) * deviation
        if isinstance(module, nn.LSTM):
            deviation = (3 * module.hidden_size) ** -0.5  # of numbers spread evenly up to hidden_size ** -0.5
        return draw(parameter.shape, deviation, seed, name)
