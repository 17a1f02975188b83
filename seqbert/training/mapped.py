"""Words of one vocabulary that stand for the symbols of another domain (Kao and Lee 2021, section 3)."""

from __future__ import annotations

import re

import numpy as np
from tokenizers import Tokenizer

from seqbert.data.sampling import stream
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError

_WORD = re.compile(r"[^\W\d_]{2,}")
"""Whole words: no pieces that go on (##ing), no single characters, numbers, signs, and nothing in brackets."""


def special_tokens(old: Tokenizer, new: Tokenizer) -> dict[int, int]:
    """For the id of each special token in a new vocabulary its id in an old one, where both have it."""
    ids = ((new.token_to_id(token), old.token_to_id(token)) for token in SPECIAL_TOKENS)
    return {one: other for one, other in ids if one is not None and other is not None}


def map_vocabulary(old: Tokenizer, new: Tokenizer, seed: int) -> dict[int, int]:
    """Gives each token of a new vocabulary an ordinary word of an old one, no word twice.

    Special tokens stand for themselves: every record has them.

    Args:
        old: The tokenizer of the trained weights.
        new: The tokenizer of the domain.
        seed: Keys the draw; the same vocabularies and seed give the same words.

    Returns:
        For each id of the new vocabulary an id of the old one.

    Raises:
        ConfigError: The old vocabulary has fewer words than the new one has tokens.
    """
    known, asked = old.get_vocab(), new.get_vocab()
    kept = special_tokens(old, new)
    taken = set(kept.values())
    words = sorted(number for token, number in known.items() if _WORD.fullmatch(token) and number not in taken)
    wanted = sorted(set(asked.values()) - set(kept))
    if len(wanted) > len(words):
        raise ConfigError(
            f"The domain's vocabulary has {len(wanted):,} tokens, and that of init has {len(words):,} whole words to "
            "stand for them: make a smaller one (domain.vocab_size), or set domain.vocabulary to replace."
        )
    draw = np.random.Generator(np.random.Philox(key=[seed, stream("mapped words")]))
    drawn = draw.permutation(len(words))[: len(wanted)]
    return kept | dict(zip(wanted, (words[number] for number in drawn), strict=True))
