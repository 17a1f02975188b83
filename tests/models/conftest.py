"""What the tests of the encoder share: small shapes, packed batches, and their padded twins."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from seqbert.data.packing import PackedBatch
from seqbert.domain import SPECIAL_TOKENS
from seqbert.models.config import EncoderConfig

VOCABULARY = [*SPECIAL_TOKENS, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]

LENGTHS = (1, 2, 2, 7, 7, 7, 12)


@pytest.fixture(scope="session")
def small() -> EncoderConfig:
    """Two blocks of two heads, without dropout."""
    return EncoderConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=16,
        dropout=0.0,
    )


@pytest.fixture(scope="session")
def vocab_size() -> int:
    """Size of the small vocabulary."""
    return len(VOCABULARY)


@pytest.fixture(scope="session")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of letters between blanks, saved."""
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def packed() -> Callable[..., PackedBatch]:
    """A function that makes a batch of random pairs of the given lengths."""

    def make(lengths: Sequence[int] = LENGTHS, vocabulary: str = "letters", seed: int = 0) -> PackedBatch:
        generator = np.random.default_rng(seed)
        sequences = [generator.integers(5, len(VOCABULARY), length) for length in lengths]
        segments = [np.arange(length) >= length // 2 + 1 for length in lengths]
        ids, segment_ids = (np.concatenate(parts) for parts in (sequences, segments))
        numbers = np.arange(len(lengths))
        return PackedBatch.of(vocabulary, ids, segment_ids, np.array(lengths), numbers, {})

    return make


@dataclasses.dataclass
class Padded:
    """A batch as transformers takes it, and how to get a packed stream back from its outputs."""

    inputs: dict[str, torch.Tensor]

    def stream(self, tensor: torch.Tensor) -> torch.Tensor:
        """``[sequences, longest, ...]`` to ``[tokens, ...]``."""
        return tensor[self.inputs["attention_mask"].bool()]


@pytest.fixture(scope="session")
def padded() -> Callable[[PackedBatch], Padded]:
    """A function that pads a packed batch."""

    def make(batch: PackedBatch) -> Padded:
        shape = (len(batch.lengths), max(batch.lengths))
        mask = torch.arange(shape[1])[None] < torch.tensor(batch.lengths)[:, None]
        inputs = {"attention_mask": mask.long()}
        for name, stream in (("input_ids", batch.ids), ("token_type_ids", batch.segment_ids)):
            inputs[name] = torch.zeros(shape, dtype=torch.int64)
            inputs[name][mask] = stream
        return Padded(inputs)

    return make
