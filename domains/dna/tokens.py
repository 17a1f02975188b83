"""The four ways to cut bases into tokens: one by one, overlapping k-mers, blocks side by side, and learned words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from domains.dna.options import DNAOptions
from domains.dna.strands import AMBIGUOUS, BASES_OF, complements, reverse_complement
from domains.sequences.alphabet import Alphabet, places
from domains.sequences.bpe import train_bpe
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BPE_VOCABULARY = 4096
"""Entries of a learned vocabulary unless the config says otherwise (Zhou et al. 2024, section 3.1)."""

STRETCH = 512
"""Letters beyond which no learned word reaches: texts are cut so, counted from their start, and memory is bounded."""

_LONGEST_WORD = 16  # as SentencePiece, with which DNABERT-2's vocabulary was learned, has it by default
_LEARNED_FROM = 2**24  # bases, from which 4,096 words are learned in half a minute
_AT_ONCE = 2**16  # letters that go to the tokenizer as one text; a multiple of STRETCH

_NO_DIGIT = np.uint8(4)
_DIGITS = np.full(256, _NO_DIGIT)
for _digit, _letters in enumerate(("Aa", "TtUu", "Cc", "Gg")):
    _DIGITS[list(_letters.encode())] = _digit

_NO_KMER, _NO_BASE = -1, -2  # instead of a k-mer's code: a token that says nothing of its bases, and one that has none


class Cut(NamedTuple):
    """Tokens of several texts, end to end.

    Attributes:
        ids: Token ids, ``[tokens]`` int32.
        starts: Where each token begins in its text, ``[tokens]``.
        ends: Where it ends, ``[tokens]``.
        lengths: Tokens of each text, ``[texts]``.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray


class Tokens(ABC):
    """One way to cut bases into tokens.

    Attributes:
        overlap: How many bases a token shares with the next.
        step: Texts may be cut at multiples of so many letters, and their parts give the same tokens.
    """

    overlap = 0

    def __init__(self, options: DNAOptions, alphabet: Alphabet) -> None:
        self.options = options
        self.alphabet = alphabet
        self.bases = BASES_OF[options.alphabet]
        self.step = options.k

    def words(self) -> dict[int, list[str]]:
        """The words of bases by their length; each stands at the place that its digits in base 4 say."""
        return {1: list(self.bases)}

    @abstractmethod
    def make(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """A tokenizer that cuts as :meth:`cut` does; fixed ones do not look at ``segments``.

        Raises:
            ConfigError: ``vocab_size`` is below what the tokens need.
        """

    def take(self, tokenizer: Tokenizer) -> None:
        """Works with this tokenizer from now on.

        Raises:
            ConfigError: It lacks one of the words.
        """
        vocabulary = tokenizer.get_vocab()
        words = self.words()
        if missing := next((word for same in words.values() for word in same if word not in vocabulary), None):
            raise ConfigError(
                f'This tokenizer has no token "{missing}", which the dna options tokens {self.options.tokens}, k '
                f"{self.options.k} and alphabet {self.options.alphabet} ask for: set tokenizer to null, or give the "
                "options that it was made with."
            )
        self.tokenizer = tokenizer
        self.unknown_id = vocabulary[tokenizer.model.unk_token or SPECIAL_TOKENS[1]]
        self.letter_ids = self.alphabet.ids(vocabulary, self.unknown_id)
        self.word_ids = {size: np.array([vocabulary[word] for word in same], np.int32) for size, same in words.items()}
        self.complements = complements(vocabulary, self.options.alphabet)
        self.sizes = np.zeros(len(self.complements), np.int64)
        for token, index in vocabulary.items():
            self.sizes[index] = 0 if token in SPECIAL_TOKENS else len(token)

    @abstractmethod
    def cut(self, texts: Sequence[str], frame: int = 0) -> Cut:
        """The tokens of canonical texts; ``frame`` bases of each stand before its first codon."""

    def turn(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the other strand, and for each the place of the old token that covers its middle base.

        The text is decoded, turned and cut anew; where every token can be turned by itself, that does the same.
        """
        text, begins = self.decode(ids), self._begins(ids)
        cut = self.cut([reverse_complement(text, self.options.alphabet)])
        middles = len(text) - 1 - (cut.starts + cut.ends - 1) // 2
        return cut.ids, np.searchsorted(begins, middles, side="right") - 1

    def _begins(self, ids: np.ndarray) -> np.ndarray:
        """Where each token begins in the decoded text of all of them, ``[tokens]``."""
        sizes = self.sizes[ids]
        begins: np.ndarray = np.cumsum(sizes) - sizes
        return begins

    def decode(self, ids: np.ndarray) -> str:
        """The bases of token ids; special tokens are left out."""
        return str(self.tokenizer.decode(ids.tolist(), skip_special_tokens=True))


class _FixedTokens(Tokens):
    """Tokens that are known beforehand: all words, then the letters that are not among them."""

    def make(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """See :meth:`Tokens.make`."""
        tokens = [word for same in self.words().values() for word in same]
        tokens += [letter for letter in self.bases + AMBIGUOUS if letter not in tokens[: len(self.bases)]]
        needed = len(SPECIAL_TOKENS) + len(tokens)
        if vocab_size is not None and vocab_size < needed:
            raise ConfigError(
                f"The dna vocabulary with tokens {self.options.tokens} and k {self.options.k} needs {needed} tokens, "
                f"but vocab_size is {vocab_size}: leave it out (null), give {needed} or more, or lower k."
            )
        return self._fixed(tokens)

    @abstractmethod
    def _fixed(self, tokens: list[str]) -> Tokenizer:
        """The tokenizer over these tokens."""


class BaseTokens(_FixedTokens):
    """A token a base, and one for each IUPAC code."""

    def _fixed(self, tokens: list[str]) -> Tokenizer:
        from tokenizers import Regex, decoders, pre_tokenizers

        return self.alphabet.tokenizer(tokens, pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse())

    def cut(self, texts: Sequence[str], frame: int = 0) -> Cut:
        """See :meth:`Tokens.cut`; the frame changes nothing."""
        letters, sizes = _letters_of(texts)
        starts = places(sizes)
        return Cut(self.letter_ids[letters], starts, starts + 1, sizes)

    def turn(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`Tokens.turn`."""
        return self.complements[ids[::-1]], np.arange(len(ids))[::-1]


class KmerTokens(_FixedTokens):
    """Overlapping k-mers, in the order of DNABERT's vocabulary, and behind them the single letters.

    A k-mer that holds an IUPAC code is written as its first letter alone, so that nothing is lost: the bases beside
    the code are known from the k-mers that begin there. Behind a last k-mer that holds one, so are the k - 1 letters
    with which no k-mer begins; and all letters of a text that is shorter than a k-mer. Under a vocabulary without
    the letters, such as DNABERT's own, those tokens are unknown.
    """

    def __init__(self, options: DNAOptions, alphabet: Alphabet) -> None:
        super().__init__(options, alphabet)
        self.overlap = options.k - 1

    def words(self) -> dict[int, list[str]]:
        """All k-mers."""
        return {self.options.k: _words(self.bases, self.options.k)}

    def _fixed(self, tokens: list[str]) -> Tokenizer:
        """It takes k-mers with blanks between, as DNABERT's does."""
        from tokenizers import Regex, pre_tokenizers

        letters = self.bases + AMBIGUOUS
        behind = rf"(?<=\A[{self.bases}])[{letters}]*[{AMBIGUOUS}][{letters}]*|(?<=\A[{AMBIGUOUS}])[{letters}]+"
        cuts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(behind), "removed")]
        return self.alphabet.tokenizer(tokens, pre_tokenizers.Sequence(cuts))

    def take(self, tokenizer: Tokenizer) -> None:
        """See :meth:`Tokens.take`."""
        super().take(tokenizer)
        vocabulary = tokenizer.get_vocab()
        size = max(vocabulary.values()) + 1
        self._codes = np.full(size, _NO_KMER)
        self._codes[[vocabulary[t] for t in ("[PAD]", "[CLS]", "[SEP]") if t in vocabulary]] = _NO_BASE
        self._codes[self.word_ids[self.options.k]] = np.arange(4**self.options.k)
        self._letter_of = np.zeros(size, np.uint8)
        for letter in set(self.bases + AMBIGUOUS) - set(self.words()[self.options.k]):
            if letter in vocabulary:
                self._letter_of[vocabulary[letter]] = ord(letter)

    def cut(self, texts: Sequence[str], frame: int = 0) -> Cut:
        """See :meth:`Tokens.cut`; the frame changes nothing."""
        letters, sizes = _letters_of(texts)
        k = self.options.k
        digits = np.append(_DIGITS[letters], np.full(k - 1, _NO_DIGIT))
        codes = np.zeros(len(letters), np.int32)
        by_letter = np.zeros(len(letters), bool)
        for place in range(k):
            digit = digits[place : place + len(letters)]
            codes = codes * 4 + (digit & 3)
            by_letter |= digit == _NO_DIGIT
        # The letters behind the last k-mer are tokens where it does not show them, or where there is none.
        firsts = np.cumsum(sizes) - sizes
        whole = np.flatnonzero(sizes >= k)
        shown = np.zeros(len(sizes), bool)
        shown[whole] = ~by_letter[firsts[whole] + sizes[whole] - k]
        lengths = np.where(shown, sizes - (k - 1), sizes)
        starts = places(lengths)
        tokens = starts + np.repeat(firsts.astype(starts.dtype), lengths)
        by_letter = by_letter[tokens]
        behind = starts > np.repeat((sizes - k).astype(starts.dtype), lengths)  # no k-mer begins there
        by_letter |= behind
        ids = self.word_ids[k][codes[tokens]]
        if by_letter.any():
            ids[by_letter] = self.letter_ids[letters[tokens[by_letter]]]
        ends = np.where(by_letter, starts + 1, starts + k)
        return Cut(ids, starts, ends, lengths)

    def turn(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`Tokens.turn`. Only letters between k-mers make it necessary to cut anew."""
        letters = self._letter_of[ids]
        if not letters.any():
            return self.complements[ids[::-1]], np.arange(len(ids))[::-1]
        k, codes = self.options.k, self._codes[ids]
        # A k-mer that the next token does not go on with is the last of its segment; segments lie end to end.
        pure, bases = codes >= 0, np.frombuffer(self.bases.encode(), np.uint8)
        apart = np.where(
            letters[1:] > 0,
            bases[codes[:-1] // 4 ** max(k - 2, 0) % 4] != letters[1:],
            codes[:-1] % 4 ** (k - 1) != codes[1:] // 4,
        )
        apart &= pure[:-1] & (k > 1)
        edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(ids)]
        new: list[np.ndarray] = []
        source: list[np.ndarray] = []
        for start, stop in reversed(list(pairwise(edges))):
            text = self.decode(ids[start:stop])
            cut = self.cut([reverse_complement(text, self.options.alphabet)])
            new.append(cut.ids)
            source.append(start + np.clip(len(text) - k - cut.starts, 0, stop - start - 1))
        return np.concatenate(new), np.concatenate(source)

    def decode(self, ids: np.ndarray) -> str:
        """The bases of k-mers: of each base what its own letter says, or else most of the k-mers that cover it.

        Of equal counts the first in the order of the vocabulary is taken; N where no token says anything: [UNK] and
        [MASK] hold their places.
        """
        k = self.options.k
        kept = self._codes[ids] != _NO_BASE
        codes, letters = self._codes[ids][kept], self._letter_of[ids][kept]
        if not len(codes):
            return ""
        length = int((np.arange(len(codes)) + np.where(letters > 0, 1, k)).max())
        votes = np.zeros((len(codes) + k - 1, len(self.bases)), np.int32)
        (known,) = np.nonzero(codes >= 0)
        for place in range(k):
            votes[known + place, codes[known] // 4 ** (k - 1 - place) % 4] += 1
        bases = np.frombuffer(self.bases.encode(), np.uint8)[votes.argmax(axis=1)]
        text = np.where(votes.any(axis=1), bases, np.uint8(ord("N")))
        text[: len(letters)][letters > 0] = letters[letters > 0]
        return text[:length].tobytes().decode("ascii")


class BlockTokens(_FixedTokens):
    """K bases side by side; what is not k plain bases is spelled by letters, or at an end is a shorter word."""

    def words(self) -> dict[int, list[str]]:
        """All words of k bases; with shorter words at the ends those of fewer too."""
        shortest = 1 if self.options.tail == "keep" else self.options.k
        return {size: _words(self.bases, size) for size in range(shortest, self.options.k + 1)}

    def _fixed(self, tokens: list[str]) -> Tokenizer:
        from tokenizers import Regex, decoders, pre_tokenizers

        k, frame = self.options.k, self.options.frame
        first = rf"\A.{{{frame}}}|" if frame else ""
        sizes = f"1,{k}" if self.options.tail == "keep" else str(k)
        patterns = [f"{first}.{{1,{k}}}", rf"\A[{self.bases}]{{{sizes}}}\z|."]
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        return self.alphabet.tokenizer(tokens, pre_tokenizers.Sequence(cuts), decoders.Fuse())

    def cut(self, texts: Sequence[str], frame: int = 0) -> Cut:
        """See :meth:`Tokens.cut`; blocks begin behind the frame."""
        letters, sizes = _letters_of(texts)
        k = self.options.k
        in_text = places(sizes)
        begins = (in_text - frame) % k == 0
        begins |= in_text == 0
        (block_starts,) = np.nonzero(begins)
        block_sizes = np.diff(block_starts, append=len(letters))
        digits = _DIGITS[letters]
        ambiguous = digits == _NO_DIGIT
        spelled = np.logical_or.reduceat(ambiguous, block_starts) if len(letters) else ambiguous
        if self.options.tail != "keep":
            spelled |= block_sizes < k
        begins |= np.repeat(spelled, block_sizes)

        (starts,) = np.nonzero(begins)
        token_sizes = np.diff(starts, append=len(letters))
        ids = self.letter_ids[letters[starts]]
        for size in range(2, k + 1):
            (chosen,) = np.nonzero(token_sizes == size)
            codes = np.zeros(len(chosen), np.int32)
            for place in range(size):
                codes = codes * 4 + digits[starts[chosen] + place]
            if len(chosen):
                ids[chosen] = self.word_ids[size][codes]
        lengths = np.diff(np.searchsorted(starts, np.append(0, np.cumsum(sizes))))
        return Cut(ids, in_text[starts], in_text[starts] + token_sizes, lengths)

    def turn(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`Tokens.turn`. A shorter word ends a segment, and the next begins its own blocks."""
        sizes = self.sizes[ids]
        ends = np.flatnonzero((sizes > 1) & (sizes < self.options.k)) + 1
        edges = np.unique(np.concatenate([[0], ends, [len(ids)]])).tolist()
        new: list[np.ndarray] = []
        source: list[np.ndarray] = []
        for start, stop in reversed(list(pairwise(edges))):
            turned, old = super().turn(ids[start:stop])
            new.append(turned)
            source.append(start + old)
        return np.concatenate(new), np.concatenate(source)


class BpeTokens(Tokens):
    """Words of bases, learned by byte-pair encoding; IUPAC codes are tokens of their own, and no word holds one."""

    def __init__(self, options: DNAOptions, alphabet: Alphabet) -> None:
        super().__init__(options, alphabet)
        self.step = STRETCH

    def make(self, segments: Iterable[str], vocab_size: int | None) -> Tokenizer:
        """Learns a vocabulary from at most 2^24 letters, in stretches of 512 taken evenly from all of ``segments``.

        Raises:
            ConfigError: ``vocab_size`` leaves no room for a word.
        """
        from tokenizers import Regex, decoders, pre_tokenizers

        alphabet = self.bases + AMBIGUOUS
        size = BPE_VOCABULARY if vocab_size is None else vocab_size
        if size <= len(SPECIAL_TOKENS) + len(alphabet):
            raise ConfigError(
                f"vocab_size is {size}; the dna vocabulary with tokens bpe has {len(SPECIAL_TOKENS) + len(alphabet)} "
                "tokens before the first word is learned: give more, such as 4096."
            )
        patterns = [f".{{1,{STRETCH}}}", f"[{self.bases}]+|."]
        cuts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns])
        tokenizer = self.alphabet.tokenizer([*alphabet], cuts, decoders.Fuse())
        return train_bpe(tokenizer, segments, size, _LONGEST_WORD, cuts, _LEARNED_FROM, STRETCH)

    def cut(self, texts: Sequence[str], frame: int = 0) -> Cut:
        """See :meth:`Tokens.cut`; there are no frames."""
        parts = [(number, start) for number, text in enumerate(texts) for start in range(0, len(text), _AT_ONCE)]
        cut = [texts[number][start : start + _AT_ONCE] for number, start in parts]
        ids: list[np.ndarray] = [np.zeros(0, np.int32)]
        spans: list[np.ndarray] = [np.zeros((0, 2), np.int64)]
        lengths = np.zeros(len(texts), np.int64)
        for (number, start), encoding in zip(
            parts, self.tokenizer.encode_batch(cut, add_special_tokens=False), strict=True
        ):
            lengths[number] += len(encoding)
            ids.append(np.array(encoding.ids, np.int32))
            spans.append(np.array(encoding.offsets, np.int64).reshape(-1, 2) + start)
        starts, ends = np.concatenate(spans).T
        return Cut(np.concatenate(ids), starts, ends, lengths)


TOKENS: dict[str, type[Tokens]] = {"base": BaseTokens, "kmer": KmerTokens, "block": BlockTokens, "bpe": BpeTokens}
"""By the value of the option ``tokens``."""


def _words(bases: str, size: int) -> list[str]:
    """All words of so many bases."""
    return ["".join(letters) for letters in product(bases, repeat=size)]


def _letters_of(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The letters of all texts end to end, ``[letters]`` uint8, and how many each has, ``[texts]``."""
    letters = np.frombuffer("".join(texts).encode("latin-1", "replace"), np.uint8)
    return letters, np.fromiter(map(len, texts), np.int64, len(texts))
