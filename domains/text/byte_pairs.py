"""Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes as in Radford et al. 2019, section 2.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from domains.text.words import count_words, occurrences, word_splitter
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError, DataError

BYTES = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
"""The characters that stand for the 256 bytes in tokens: letters and marks for themselves, a space as "Ġ"."""


def train_byte_pairs(
    segments: Iterable[str], vocab_size: int, normalizer: normalizers.Normalizer, split_han: bool
) -> Tokenizer:
    """Learns a vocabulary of byte sequences from text and returns a complete tokenizer.

    Every text can be spelled, so nothing is unknown, and what was encoded is decoded again byte for byte. Words are
    those of WordPiece, but each has the space before it; the first of a text gets one too, so that it is the same
    token as elsewhere. Pairs that occur once are not merged; equally frequent pairs are merged in the order of their
    tokens, so that the same segments give the same bytes on any number of threads.

    Args:
        segments: Text; consumed once.
        vocab_size: The most entries that the vocabulary may have, special tokens included.
        normalizer: Brings text to its canonical form.
        split_han: Whether each Han character is a word.

    Raises:
        ConfigError: ``vocab_size`` leaves no room for the 256 bytes.
        DataError: There is no text.
    """
    room = vocab_size - len(SPECIAL_TOKENS)
    if room < len(BYTES):
        raise ConfigError(
            f"A vocab_size of {vocab_size} leaves no room for the {len(BYTES)} bytes beside the {len(SPECIAL_TOKENS)} "
            f"special tokens, and tokens: bpe spells every text with them: the minimum is "
            f"{len(BYTES) + len(SPECIAL_TOKENS)}."
        )
    spaced = with_first_space(normalizer)
    splitter = word_splitter(split_han, spaced=True)
    words = count_words(segments, spaced, splitter)
    if not words:
        raise DataError("There is no text to learn a vocabulary from: every segment is empty.")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = {to_bytes.pre_tokenize_str(word)[0][0]: count for word, count in sorted(words.items())}

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        occurrences(spelled),
        trainers.BpeTrainer(vocab_size=room, min_frequency=2, initial_alphabet=list(BYTES), show_progress=False),
    )
    learned = json.loads(learner.to_str())["model"]
    tokens = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *tokens])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(left, right) for left, right in learned["merges"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splitter, to_bytes])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return finished(tokenizer, spaced)


def with_first_space(normalizer: normalizers.Normalizer) -> normalizers.Normalizer:
    """The normalizer, and then a space before what there is."""
    return normalizers.Sequence([normalizer, normalizers.Prepend(" ")])


def finished(tokenizer: Tokenizer, normalizer: normalizers.Normalizer) -> Tokenizer:
    """The tokenizer with its special tokens, ``[CLS] A [SEP] B [SEP]`` around, and offsets without spaces."""
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.normalizer = normalizer
    frame = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(add_prefix_space=True, trim_offsets=True), frame]
    )
    return tokenizer
