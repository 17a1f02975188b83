"""The feature-based approach: layers of a frozen encoder, and a bidirectional LSTM over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from seqbert.errors import ConfigError
from seqbert.models.config import EncoderConfig

_LEAST_BLOCKS = {"second_to_last": 2, "sum_last_four": 4, "concat_last_four": 4, "weighted_sum_last_four": 4}


@dataclasses.dataclass(frozen=True)
class FeaturesConfig:
    """What the heads stand on in place of the last hidden states.

    Features of a frozen encoder (Devlin et al. 2019, section 5.3, table 7), or an LSTM that is trained with it.

    Raises:
        ConfigError: A value cannot be used.
    """

    layers: Literal[
        "last",
        "second_to_last",
        "sum_last_four",
        "concat_last_four",
        "weighted_sum_last_four",
        "weighted_sum",
        "embeddings",
    ] = "concat_last_four"
    """Which hidden states: of one layer, of the last four added up or side by side, of the last four or of all blocks
    weighted and added up with learned weights, or the embeddings alone. The default did best in the paper."""
    lstm_hidden: int = 768
    """Width of the LSTM in each direction (Devlin et al. 2019, section 5.3)."""
    lstm_layers: int = 2
    """Layers of the bidirectional LSTM; 0: the heads stand on the hidden states themselves."""
    frozen: bool = True
    """Whether the encoder is kept as it is; else it is trained too, with the LSTM on top (the same paper, table 5)."""

    def __post_init__(self) -> None:
        if self.lstm_hidden < 1:
            raise ConfigError(f"lstm_hidden is {self.lstm_hidden}, and it must be at least 1.")
        if self.lstm_layers < 0:
            raise ConfigError(f"lstm_layers is {self.lstm_layers}, and it cannot be below 0.")


class WeightedSum(nn.Module):
    """A weighted mean of layers times a scale, all of them learned (Peters et al. 2018, equation 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(layers))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """``[tokens, width]`` of each layer to the same shape."""
        shares = self.weights.softmax(0)
        return self.scale * torch.stack([share * layer for share, layer in zip(shares, layers, strict=True)]).sum(0)


class Features(nn.Module):
    """One vector a token, from all layers of an encoder.

    Args:
        config: Which layers, and the LSTM.
        encoder: Shape of the encoder whose layers they are.

    Raises:
        ConfigError: The encoder has too few blocks for the layers that are asked for.
    """

    def __init__(self, config: FeaturesConfig, encoder: EncoderConfig) -> None:
        super().__init__()
        least = _LEAST_BLOCKS.get(config.layers, 1)
        if encoder.num_hidden_layers < least:
            raise ConfigError(
                f"features.layers is {config.layers}, which takes an encoder of at least {least} blocks, and this one "
                f"has {encoder.num_hidden_layers}: choose last, weighted_sum or embeddings."
            )
        self.config = config
        weighted = {"weighted_sum": encoder.num_hidden_layers, "weighted_sum_last_four": 4}.get(config.layers)
        self.sum = WeightedSum(weighted) if weighted else None
        width = encoder.hidden_size * (4 if config.layers == "concat_last_four" else 1)
        self.lstm = None
        if config.lstm_layers:
            self.lstm = nn.LSTM(width, config.lstm_hidden, config.lstm_layers, bidirectional=True)
            width = 2 * config.lstm_hidden
        self.width = width

    def forward(self, layers: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
        """The features of a packed stream.

        Args:
            layers: The embeddings' output and then each block's, each ``[tokens, hidden_size]``.
            lengths: Lengths of the sequences in the stream, in any order.

        Returns:
            ``[tokens, width]``. The LSTM reads each sequence by itself.
        """
        chosen = self._choose(layers)
        if self.lstm is None:
            return chosen
        sequences = [sequence for sequence in torch.split(chosen, list(lengths)) if len(sequence)]
        if not sequences:
            return chosen.new_zeros(0, self.width)
        states, _ = self.lstm(pack_sequence(sequences, enforce_sorted=False))
        return torch.cat(unpack_sequence(states))

    def _choose(self, layers: Sequence[Tensor]) -> Tensor:
        match self.config.layers:
            case "embeddings":
                return layers[0]
            case "last":
                return layers[-1]
            case "second_to_last":
                return layers[-2]
            case "sum_last_four":
                return torch.stack(list(layers[-4:])).sum(0)
            case "concat_last_four":
                return torch.cat(list(layers[-4:]), dim=1)
            case "weighted_sum" | "weighted_sum_last_four":
                assert self.sum is not None
                mixed: Tensor = self.sum(layers[-len(self.sum.weights) :])
                return mixed
