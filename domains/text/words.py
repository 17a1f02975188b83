"""What a word is, for every kind of token: the pattern that text is cut by before words are spelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tokenizers import Regex, normalizers, pre_tokenizers

LONGEST_WORD = 100
"""A longer run of letters, as in scripts without spaces, is cut after this many, not given up as unknown."""

WORDS_TO_TRAINER = 1 << 26
"""Occurrences of words that a vocabulary is learned from at most; more are scaled down in proportion."""

_CHUNKS_IN_MEMORY = 1_000_000
_WORDS_IN_MEMORY = 4_000_000


def word_splitter(
    split_han: bool, letters: Sequence[str] | None = None, spaced: bool = False
) -> pre_tokenizers.PreTokenizer:
    """Cuts canonical text into words: each punctuation mark and symbol alone, and what other stretches lie between.

    Args:
        split_han: Whether each Han character is a word.
        letters: The characters that a word of several may hold; None: all.
        spaced: Whether a word has the space before it; otherwise spaces go.
    """
    alone = r"\p{P}\p{S}" + (r"\p{Han}" if split_han else "")
    parts = [f"[{alone}]"]
    if letters is None:
        parts.append(rf"[^\s{alone}]{{1,{LONGEST_WORD}}}")
    elif letters:
        parts.append(f"[{_character_class(letters)}]{{1,{LONGEST_WORD}}}")
    parts.append(r"\S")
    space = " ?" if spaced else ""
    pattern = Regex("|".join(space + part for part in parts))
    return pre_tokenizers.Split(pattern, behavior="removed", invert=True)


def count_words(
    segments: Iterable[str], normalizer: normalizers.Normalizer, splitter: pre_tokenizers.PreTokenizer
) -> Counter[str]:
    """How often each word occurs.

    Stretches between white space are counted first and cut into words once each, by the tokenizer's own
    rules. Memory grows with the distinct words; beyond four million the rarest seen so far are forgotten.
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    threshold = 1

    def cut_chunks() -> None:
        nonlocal words, threshold
        for chunk, count in chunks.items():
            for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(chunk)):
                words[word] += count
        chunks.clear()
        while len(words) > _WORDS_IN_MEMORY:
            words = Counter({word: count for word, count in words.items() if count > threshold})
            threshold += 1

    for segment in segments:
        chunks.update(segment.split())
        if len(chunks) > _CHUNKS_IN_MEMORY:
            cut_chunks()
    cut_chunks()
    return words


def occurrences(words: Mapping[str, int]) -> Iterator[str]:
    """The words as text, each as often as it is counted, for a trainer that counts for itself.

    More than :data:`WORDS_TO_TRAINER` are scaled down in proportion, so that the order of the counts stays.
    """
    scale = min(1.0, WORDS_TO_TRAINER / max(1, sum(words.values())))
    for word, count in words.items():
        times = round(count * scale)
        while times > 0:  # in pieces of bounded size
            yield (word + " ") * min(times, 10_000)
            times -= 10_000


def _character_class(characters: Iterable[str]) -> str:
    """The inside of a bracket expression, as ranges of code points."""
    points = sorted(map(ord, characters))
    starts = [points[0]] + [right for left, right in pairwise(points) if right != left + 1]
    ends = [left for left, right in pairwise(points) if right != left + 1] + [points[-1]]
    return "".join(rf"\x{{{start:x}}}-\x{{{end:x}}}" for start, end in zip(starts, ends, strict=True))
