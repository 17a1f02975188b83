"""``seqbert generate``: continues a sequence with a causal model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seqbert.data.packing import pack
from seqbert.domain import SPECIAL_TOKENS, Domain
from seqbert.errors import ConfigError
from seqbert.inference.grammar import Grammar
from seqbert.inference.trained import Trained
from seqbert.models.losses import in_full_precision


@dataclasses.dataclass(frozen=True, slots=True)
class Generated:
    """A sequence that was continued.

    Attributes:
        text: Canonical text, the beginning included.
        tokens: Number of tokens that were added.
        log_probability: Of the added tokens, in nats, under the model as it is: temperature, cuts and grammar left out.
    """

    text: str
    tokens: int
    log_probability: float


def generate(
    run: str | Path | Trained,
    beginning: str = "",
    *,
    tokens: int = 64,
    number: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    output: str | Path | None = None,
    domain: str | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> list[Generated]:
    """Continues a sequence token by token, as a left-to-right model was trained to (Radford et al. 2018).

    Special tokens are never drawn. Where the domain has rules about which kinds of tokens follow each other, they are
    kept; where tokens overlap, each begins with what the one before it ends in. What is longer than the encoder can
    take is seen from its end.

    Args:
        run: A run that was trained with ``model.causal`` and ``objective.causal_lm``, or a model that is loaded.
        beginning: What is continued, as a user types it; empty: the model begins by itself.
        tokens: How many are added.
        number: How many continuations.
        temperature: Logits are divided by it; 0: the most probable token each time.
        top_k: Only so many most probable tokens are drawn from; None: all.
        top_p: Only the most probable tokens that together have this probability (Holtzman et al. 2020, section 3.1);
            None: all.
        seed: Of what is drawn.
        output: Where the first continuation is written, in the domain's own format.
        domain: The domain, where the run has several.
        device: cpu, cuda, mps, or auto. Not read where ``run`` is loaded already.
        precision: fp32, bf16, or auto. Not read where ``run`` is loaded already.

    Raises:
        ConfigError: The model sees both sides, has no head for words, or an argument cannot be used.
        CheckpointError: There is no model.
    """
    _check(tokens, number, temperature, top_k, top_p, seed)
    trained = Trained.on(run, domain, device, precision)
    _check_model(trained)
    begin = trained.token_ids(SPECIAL_TOKENS[2])[0]
    text = trained.domain.canonical(beginning) if beginning else ""
    if text and len(text) <= trained.domain.overlap:
        raise ConfigError(
            f"The model's tokens are {trained.domain.overlap + 1} symbols long, and the beginning has {len(text)}: "
            "give it at least one token, or nothing."
        )
    given = trained.domain.encode([text], offsets=False).ids.astype(np.int64)
    ids = np.tile(np.r_[begin, given], (number, 1))
    special = trained.token_ids(*SPECIAL_TOKENS)
    may_follow = _successors(trained.domain)
    draws = torch.Generator().manual_seed(seed)
    total = torch.zeros(number, dtype=torch.float64)
    room = trained.model.config.max_position_embeddings
    for _ in range(tokens):
        seen = ids if ids.shape[1] <= room else np.c_[ids[:, :1], ids[:, 1 - room :]]
        logits = _next_logits(trained, seen)
        chances = logits.log_softmax(-1)
        logits[:, special] = -math.inf
        if may_follow is not None:
            fits = torch.from_numpy(may_follow(ids[:, -1]))
            logits = torch.where(fits | ~(fits & logits.isfinite()).any(-1, keepdim=True), logits, -math.inf)
        chosen = _chosen(logits, temperature, top_k, top_p, draws)
        total += chances.gather(1, chosen[:, None])[:, 0].double()
        ids = np.c_[ids, chosen.numpy()]
    made = [
        Generated(trained.domain.decode(row[1:].tolist()), tokens, float(chance))
        for row, chance in zip(ids, total, strict=True)
    ]
    if output is not None:
        trained.domain.write(made[0].text, Path(output))
    return made


def _check(tokens: int, number: int, temperature: float, top_k: int | None, top_p: float | None, seed: int) -> None:
    for name, value in (("tokens", tokens), ("number", number), ("top_k", top_k)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}, and it must be at least 1.")
    if not temperature >= 0:
        raise ConfigError(f"temperature is {temperature}, and it cannot be below 0.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ConfigError(f"top_p is {top_p}; it is above 0 and at most 1.")
    if seed < 0:
        raise ConfigError(f"seed is {seed}, and it cannot be below 0.")


def _check_model(trained: Trained) -> None:
    if not trained.model.config.causal:
        raise ConfigError(
            f'The model of "{trained.run}" sees both sides of a token, and cannot continue a sequence: `seqbert fill` '
            "asks it for what is masked. To generate, pretrain with model.causal: true, objective.masked_lm: null and "
            "objective.causal_lm: {weight: 1.0}."
        )
    if "masked_lm" not in trained.heads:
        raise ConfigError(
            f'The model of "{trained.run}" has no head over the vocabulary: it was fine-tuned for a task.'
        )


def _successors(domain: Domain) -> Callable[[np.ndarray], np.ndarray] | None:
    """Of the last tokens, ``[sequences]``: whether each may follow them, ``[sequences, vocabulary]``; None: all may.

    Where nothing may follow, as behind an unknown token, everything does.
    """
    shared = domain.overlap
    if shared:
        spelled = domain.vocabulary.get_vocab()
        heads, tails = np.empty(len(spelled), object), np.empty(len(spelled), object)
        for token, place in spelled.items():
            heads[place], tails[place] = token[:shared], token[-shared:]
        _, codes = np.unique(np.r_[heads, tails].astype(str), return_inverse=True)
        begins, ends = np.split(codes, 2)
        return lambda last: np.equal(begins, ends[last][:, None])
    grammar = Grammar.of(domain)
    if grammar is None:
        return None
    begin = domain.vocabulary.token_to_id(SPECIAL_TOKENS[2])
    rows = grammar.follows[:, grammar.kind]
    return lambda last: np.where((last == begin)[:, None], grammar.begins[grammar.kind], rows[grammar.kind[last]])


def _next_logits(trained: Trained, ids: np.ndarray) -> Tensor:
    """Logits of the token behind each of some equally long sequences, ``[sequences, vocabulary]``, on the CPU."""
    batch = pack(trained.domain.name, list(ids))
    last = torch.arange(1, len(ids) + 1) * ids.shape[1] - 1
    with torch.inference_mode(), trained.device.autocast():
        logits = trained.heads["masked_lm"](trained.hidden(batch, last))
    return in_full_precision(logits).cpu().clone()


def _chosen(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, draws: torch.Generator
) -> Tensor:
    """A token for each row, ``[sequences]``."""
    if temperature == 0:
        return logits.argmax(-1)
    ordered, places = (logits / temperature).sort(-1, descending=True)
    if top_k is not None:
        ordered[:, top_k:] = -math.inf
    if top_p is not None:
        chances = ordered.softmax(-1)
        ordered[chances.cumsum(-1) - chances >= top_p] = -math.inf  # the first that passes the sum is kept
    drawn = torch.multinomial(ordered.softmax(-1), 1, generator=draws)
    return places.gather(1, drawn)[:, 0]
