"""Byte-pair encoding over the words of music: frequent runs of words within a bar become one token.

Each word of the alphabet stands for one private-use character, so that a bar is a "word" to the merges of the
``tokenizers`` library; no merge reaches over a bar line. This is what MidiTok does (Fradet, Gutowski, Chhel and
Briot 2023, "Byte Pair Encoding for Symbolic Music", section 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqbert.domain import SPECIAL_TOKENS, Encoded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_SIZE = 4096
_FIRST = 0xE000  # of the private-use characters, of which there are 6,400
_UNKNOWN = "\uf8ff"  # the last of them: no word is so far on


class Spelling:
    """Words as private-use characters, and back.

    Args:
        words: The alphabet, in order.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._characters = {word: chr(_FIRST + index) for index, word in enumerate(words)}

    def __call__(self, words: Iterable[str]) -> str:
        """The characters of these words; one that the alphabet lacks becomes a character that no vocabulary has."""
        return "".join([self._characters.get(word, _UNKNOWN) for word in words])

    def back(self, characters: str) -> list[str]:
        """The words that characters stand for; what is none of ours stands for itself."""
        last = _FIRST + len(self.words)
        return [self.words[ord(c) - _FIRST] if _FIRST <= ord(c) < last else c for c in characters]


def learn(segments: Iterable[str], spelling: Spelling, size: int) -> Tokenizer:
    """A tokenizer with merges learned from these texts: at most ``size`` entries, the same for the same texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(spelling(["Bar"]), "merged_with_next")
    tokenizer.train_from_iterator(
        (spelling(segment.split()) for segment in segments),
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=[spelling([word]) for word in spelling.words],
            limit_alphabet=len(spelling.words),
            show_progress=False,
        ),
    )
    return tokenizer


def encode(texts: Sequence[str], tokenizer: Tokenizer, spelling: Spelling, offsets: bool) -> Encoded:
    """The tokens of texts; a masking unit is a bar, and a token's offsets are those of its first and last word."""
    rows = [text.split() for text in texts]
    encodings = tokenizer.encode_batch([spelling(row) for row in rows], add_special_tokens=False)
    lengths = np.fromiter((len(encoding) for encoding in encodings), np.int64, len(encodings))
    total = int(lengths.sum())
    ids = np.fromiter((i for encoding in encodings for i in encoding.ids), np.int32, total)
    units = np.fromiter((bar or 0 for encoding in encodings for bar in encoding.word_ids), np.int32, total)
    spans = None
    if offsets:
        spans = np.array(list(_spans(texts, encodings)), np.int64).reshape(-1, 2)
    return Encoded(ids, lengths, units, spans)


def _spans(texts: Sequence[str], encodings: Sequence[object]) -> Iterator[tuple[int, int]]:
    for text, encoding in zip(texts, encodings, strict=True):
        places = [match.span() for match in re.finditer(r"\S+", text)]
        for first, stop in encoding.offsets:  # type: ignore[attr-defined]
            yield places[first][0], places[stop - 1][1]
