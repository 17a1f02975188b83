"""``seqbert fill``: what a masked LM would put where [MASK] stands."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import CheckpointError, DataError
from seqbert.inference.trained import Trained

MASK = SPECIAL_TOKENS[4]


@dataclasses.dataclass(frozen=True, slots=True)
class Filler:
    """A token for a masked place, and the probability that the model gives it."""

    token: str
    probability: float


def fill(run: str | Path | Trained, sequence: str, *, domain: str | None = None, top: int = 5) -> list[list[Filler]]:
    """The most probable tokens for each [MASK] of a sequence.

    Args:
        run: A run's folder, or a model that is loaded already.
        sequence: What the domain reads, with [MASK] for each token that is wanted. Where tokens overlap (k-mers),
            [MASK] stands for one symbol: all tokens over it are hidden, and the fillers are those that begin with it.
        domain: The domain, where the run has several.
        top: How many tokens to give for each mask.

    Returns:
        For each [MASK], in order, its fillers, the most probable first; special tokens are left out.

    Raises:
        DataError: if the sequence has no [MASK], or is too long for the model.
        CheckpointError: if the model has no masked LM head.
    """
    trained = run if isinstance(run, Trained) else Trained.of_run(run, domain)
    if MASK not in sequence:
        raise DataError(f'The sequence has no {MASK}: put it where a token is wanted, as in "{sequence} {MASK}".')
    if trained.domain.overlap:
        return _fill_overlapping(trained, sequence, top)
    return fill_ids(trained, _encode_around_masks(trained, sequence), top=top)


@torch.inference_mode()
def fill_ids(trained: Trained, ids: np.ndarray, top: int = 5) -> list[list[Filler]]:
    """The fillers for each [MASK] id in ``ids [tokens]``, which have no [CLS] and [SEP] around them.

    Raises:
        CheckpointError: if the model has no masked LM head.
    """
    if "masked_lm" not in trained.heads or trained.model.config.causal:
        raise CheckpointError("This model was not trained as a masked LM, so it cannot fill a mask.")
    batch = trained.sequence(ids)
    (mask_id,) = trained.token_ids(MASK)
    places = (batch.ids == mask_id).nonzero().squeeze(1)
    logits = trained.heads["masked_lm"](trained.hidden(batch)[places]).float()
    probabilities = logits.softmax(-1)
    size = trained.domain.vocabulary.get_vocab_size()
    probabilities[:, size:] = 0.0  # rows that no token has
    probabilities[:, trained.token_ids(*SPECIAL_TOKENS)] = 0.0
    best = probabilities.topk(min(top, size - len(SPECIAL_TOKENS)), dim=-1)
    return [
        [Filler(trained.domain.vocabulary.id_to_token(i) or "", p) for i, p in zip(row_ids, row, strict=True)]
        for row_ids, row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class FilledExample:
    """A held-out stretch with one token masked, what the model would put there, and what stood there."""

    shown: str
    fillers: list[Filler]
    truth: str


def fill_example(run: str | Path, domain: str, ids: list[int], place: int, top: int = 3) -> FilledExample:
    """Masks the token at ``place`` of ``ids`` and fills it."""
    trained = Trained.of_run(run, domain)
    masked = np.array(ids)
    masked[max(0, place - trained.domain.overlap) : place + 1] = trained.token_ids(MASK)
    decode = trained.domain.decode
    shown = " ".join(part for part in (decode(ids[:place]), MASK, decode(ids[place + 1 :])) if part)
    truth = trained.domain.vocabulary.id_to_token(ids[place]) or ""
    return FilledExample(shown, fill_ids(trained, masked, top)[-1], truth)


def _fill_overlapping(trained: Trained, sequence: str, top: int) -> list[list[Filler]]:
    """The tokens that begin with each masked symbol, all tokens that reach it being hidden."""
    domain, overlap = trained.domain, trained.domain.overlap
    (mask_id,) = trained.token_ids(MASK)
    stand_in = domain.decode([len(SPECIAL_TOKENS)])[0]  # any symbol: the tokens over it are hidden
    parts = [domain.canonical(part) for part in sequence.split(MASK)]
    ids = domain.encode([stand_in.join(parts)], offsets=False).ids.astype(np.int64)
    places = np.cumsum([domain.symbols(part) for part in parts[:-1]]) + np.arange(len(parts) - 1)
    if len(ids) <= overlap or places[-1] >= len(ids):
        raise DataError(
            f"The model's tokens are {overlap + 1} symbols long: a [MASK] needs at least {overlap} symbols behind it."
        )
    for place in places:
        ids[max(0, place - overlap) : place + 1] = mask_id
    order = np.searchsorted(np.flatnonzero(ids == mask_id), places)
    filled = fill_ids(trained, ids, top)
    return [filled[number] for number in order]


def _encode_around_masks(trained: Trained, sequence: str) -> np.ndarray:
    """Ids of the text before, between and behind the masks, with the mask's own id between them."""
    (mask_id,) = trained.token_ids(MASK)
    pieces: list[np.ndarray] = []
    for number, part in enumerate(sequence.split(MASK)):
        if number:
            pieces.append(np.array([mask_id]))
        text = trained.domain.canonical(part)
        if text:
            pieces.append(trained.domain.encode([text], offsets=False).ids)
    return np.concatenate(pieces).astype(np.int64)
