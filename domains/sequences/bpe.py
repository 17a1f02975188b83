"""Byte-pair encoding over the letters of sequences (Gage 1994; Sennrich et al. 2016; Zhou et al. 2024 for DNA).

A sequence has no words, so a whole one, or a long stretch, is what pairs are counted and merged in; only letters that
stand alone, such as X or N, part it. How long a token may grow is bounded, for homologous sequences share stretches of
any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seqbert.domain import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

TRAINED_ON = 1 << 22
"""Most letters that merges are learned from, taken evenly from all sequences: each costs the trainer some 32 bytes."""

PIECE = 1 << 16
"""Letters of a piece of a long sequence."""


def train_bpe(
    plain: Tokenizer,
    segments: Iterable[str],
    vocab_size: int,
    longest: int,
    cuts: PreTokenizer,
    trained_on: int = TRAINED_ON,
    piece: int = PIECE,
) -> Tokenizer:
    """A tokenizer whose tokens are letters and merges of letters; the same input gives the same tokens.

    Args:
        plain: A tokenizer with a token a letter, behind the special tokens: its normalizer, decoder and post-processor
            serve here too.
        segments: Canonical sequences.
        vocab_size: Most entries, the special tokens and the letters included.
        longest: Most letters of a token.
        cuts: Cuts a sequence where nothing is merged.
        trained_on: Most letters that merges are learned from.
        piece: Letters of the pieces that these are taken in.
    """
    from tokenizers import Tokenizer, decoders, models, trainers

    letters = sorted((plain.get_vocab().items()), key=lambda entry: entry[1])[len(SPECIAL_TOKENS) :]
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL_TOKENS[1]))
    tokenizer.pre_tokenizer = cuts
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=[letter for letter, _ in letters],
        limit_alphabet=len(letters),
        max_token_length=longest,
        show_progress=False,
    )
    tokenizer.train_from_iterator(evenly(segments, trained_on, piece), trainer)
    tokenizer.normalizer = plain.normalizer
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = plain.post_processor
    return tokenizer


def evenly(segments: Iterable[str], most: int, piece: int = PIECE) -> Iterator[str]:
    """Every segment, or where they have more than ``most`` letters together every second, every fourth and so on.

    Long ones are cut into pieces before, so that no one of them takes the place of all others.

    >>> list(evenly(["AAAA", "CCCC", "GGGG", "TTTT", "AC"], 10))
    ['AAAA', 'GGGG', 'AC']
    """
    kept: list[str] = []
    letters = 0
    step = 1
    pieces = (segment[at : at + piece] for segment in segments for at in range(0, len(segment), piece))
    for number, letters_of_piece in enumerate(pieces):
        if number % step:
            continue
        kept.append(letters_of_piece)
        letters += len(letters_of_piece)
        while letters > most and len(kept) > 1:
            kept = kept[::2]
            letters = sum(map(len, kept))
            step *= 2
    return iter(kept)
