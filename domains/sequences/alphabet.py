"""The letters of a kind of sequence: how a record is written in them, and a tokenizer over them.

Shared by the plugins whose sequences are letters in a fixed alphabet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqbert.domain import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_COUNTED_AT_ONCE = 1 << 20


class Cleaned(NamedTuple):
    """A sequence in an alphabet's canonical letters, and what was done to it.

    Attributes:
        text: The canonical letters.
        lower: Lower-case letters that were upper-cased.
        aliased: Letters that were written as another, such as U as T.
        removed: Characters that were taken out.
        rare: Letters of the alphabet outside its plain ones, such as ambiguity codes.
        unknown: Characters outside the alphabet, written as its replacement.
        unknown_at: Place of the first of these in the sequence as it was, from 1; None where there is none.
    """

    text: str
    lower: int = 0
    aliased: int = 0
    removed: int = 0
    rare: int = 0
    unknown: int = 0
    unknown_at: int | None = None


class Alphabet:
    """Letters that a sequence may hold, and how anything else is written in them; lower case as upper case.

    Args:
        plain: The usual letters, upper case. A sequence of these alone passes without a further look.
        rare: The alphabet's other letters.
        replacement: The letter that stands for a character outside the alphabet.
        aliases: Letters that are written as another.
        removed: Characters that are taken out.
    """

    def __init__(
        self,
        plain: str,
        rare: str,
        replacement: str,
        aliases: Mapping[str, str] | None = None,
        removed: str = "",
    ) -> None:
        self._canonical = {letter: letter for letter in plain + rare} | dict(aliases or {})
        self._canonical |= {letter.lower(): canonical for letter, canonical in self._canonical.items()}
        self._plain = plain.encode("ascii")
        self._rare = _bytes_of(rare)
        self._aliased = _bytes_of("".join(aliases or ()))
        self._removed = removed.encode("ascii")
        known = set(map(ord, self._canonical)) | set(self._removed)
        self._unknown = [byte for byte in range(256) if byte not in known]
        table = bytearray(replacement.encode("ascii") * 256)
        for letter, canonical in self._canonical.items():
            table[ord(letter)] = ord(canonical)
        self._table = bytes(table)

    def clean(self, sequence: bytes) -> Cleaned:
        """Writes a sequence in canonical letters and counts what that changed."""
        if not sequence.translate(None, self._plain):
            return Cleaned(sequence.decode("ascii"))
        counts = _byte_counts(sequence)
        unknown = int(counts[self._unknown].sum())
        return Cleaned(
            text=sequence.translate(self._table, self._removed).decode("ascii"),
            lower=int(counts[ord("a") : ord("z") + 1].sum()),
            aliased=int(counts[self._aliased].sum()),
            removed=int(counts[list(self._removed)].sum()),
            rare=int(counts[self._rare].sum()),
            unknown=unknown,
            unknown_at=min(sequence.find(b) + 1 for b in self._unknown if counts[b]) if unknown else None,
        )

    def ids(self, vocabulary: Mapping[str, int], unknown_id: int) -> np.ndarray:
        """The id of each byte's letter, ``[256]`` int32; one that is not in the vocabulary is unknown."""
        ids = np.full(256, unknown_id, np.int32)
        for letter, canonical in self._canonical.items():
            ids[ord(letter)] = vocabulary.get(canonical, unknown_id)
        return ids

    def tokenizer(self, tokens: Iterable[str], pre_tokenizer: Any, decoder: Any | None = None) -> Tokenizer:
        """A word-level tokenizer over the special tokens and ``tokens``, cased as the alphabet is.

        Args:
            tokens: The tokens behind the special ones, in the order of their ids.
            pre_tokenizer: A ``tokenizers`` pre-tokenizer that cuts a text into them.
            decoder: A ``tokenizers`` decoder, or None to join tokens with blanks.
        """
        from tokenizers import Tokenizer, models, normalizers, processors

        vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *tokens])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Replace(a, b) for a, b in self._canonical.items() if a != b]
        )
        tokenizer.pre_tokenizer = pre_tokenizer
        if decoder is not None:
            tokenizer.decoder = decoder
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
        )
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        return tokenizer


def places(sizes: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... anew in each of several groups of these sizes, end to end; ``[sum of sizes]``.

    >>> places(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    total = int(sizes.sum())
    dtype = np.int32 if total < 2**31 else np.int64
    starts: np.ndarray = np.repeat((np.cumsum(sizes) - sizes).astype(dtype), sizes)
    counted: np.ndarray = np.arange(total, dtype=dtype) - starts
    return counted


def each_character(text: str) -> np.ndarray:
    """Start and end of every character, ``[characters, 2]``: the words of a text whose letters are labelled.

    >>> each_character("MA").tolist()
    [[0, 1], [1, 2]]
    """
    starts = np.arange(len(text), dtype=np.int64)
    return np.stack([starts, starts + 1], axis=1)


def _bytes_of(letters: str) -> list[int]:
    return sorted(set((letters.upper() + letters.lower()).encode("ascii")))


def _byte_counts(sequence: bytes) -> np.ndarray:
    """How often each byte stands in a sequence, ``[256]``; by parts, for bincount widens bytes eightfold."""
    values = np.frombuffer(sequence, np.uint8)
    counts = np.zeros(256, np.int64)
    for start in range(0, len(values), _COUNTED_AT_ONCE):
        counts += np.bincount(values[start : start + _COUNTED_AT_ONCE], minlength=256)
    return counts
