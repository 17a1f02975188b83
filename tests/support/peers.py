"""What tests share that compare with models of transformers."""

from pathlib import Path
from typing import Any

import torch

from seqbert.models import hub
from seqbert.models.model import Model


def drawn_wide(peer: Any) -> Any:
    """A model of transformers for evaluation, with everything in it moved far enough from its beginning to matter."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in peer.eval().parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return peer


def opened(folder: Path) -> tuple[Model, hub.LoadReport]:
    """Our model of a Hugging Face folder, with "letters" for its vocabulary, and what became of the weights."""
    checkpoint = hub.read_checkpoint(folder)
    sizes, heads = {"letters": checkpoint.vocab_size}, {"letters": checkpoint.heads}
    model = Model(checkpoint.config, sizes, heads, mask_ids=checkpoint.mask_ids("letters"))
    return model.eval(), hub.load_into(model, "letters", checkpoint)
