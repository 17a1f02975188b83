"""WordPiece: a learned vocabulary of word beginnings and continuations (Wu et al. 2016, section 4.1).

The merges are those of byte-pair encoding (Sennrich et al. 2016), which the ``tokenizers`` library learns
in the same way every time; its own WordPiece trainer does not. The two agree on what they learn once each
character is replaced by one symbol where it begins a word and by another where it continues one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError, DataError

CONTINUATION = "##"
"""What a token that does not begin a word starts with."""

LONGEST_WORD = 100
"""A longer run of letters, as in scripts without spaces, is cut after this many, not given up as unknown."""

_COVERAGE = 0.9995  # share of the characters of a text that a vocabulary must spell; SentencePiece's default
_CHUNKS_IN_MEMORY = 1_000_000
_WORDS_IN_MEMORY = 4_000_000
_WORDS_TO_TRAINER = 1 << 26
_FIRST_SYMBOL = 0x20000  # above every white space; enough room to Unicode's end for each character twice


def train_wordpiece(
    segments: Iterable[str], vocab_size: int, normalizer: normalizers.Normalizer, split_han: bool
) -> Tokenizer:
    """Learns a vocabulary from text and returns a complete BERT tokenizer.

    The tokenizer normalizes, cuts into words (white space; each punctuation mark and symbol alone; each
    Han character alone if asked; a character that the vocabulary cannot spell alone, so that ``[UNK]`` is
    always one character), spells words by the longest matching token first, and puts ``[CLS] A [SEP]`` or
    ``[CLS] A [SEP] B [SEP]`` around.

    Every character that the vocabulary spells can begin a word and continue one. Characters are taken
    from the most frequent on: those that make up 99.95 % of the text as long as there is room, rarer ones
    as long as they leave half of the vocabulary to longer tokens; the rest becomes ``[UNK]``. Pairs that
    occur once are not merged.

    Memory grows with the distinct words, and beyond four million of them the rarest seen so far are
    forgotten. The same segments in the same order give the same bytes, on any number of threads.

    Args:
        segments: Text; consumed once.
        vocab_size: The most entries that the vocabulary may have, special tokens included.
        normalizer: Brings text to its canonical form.
        split_han: Whether each Han character is a word.

    Raises:
        ConfigError: ``vocab_size`` leaves no room for any character.
        DataError: There is no text.
    """
    words = _count_words(segments, normalizer, _pre_tokenizer(split_han, None))
    if not words:
        raise DataError("There is no text to learn a vocabulary from: every segment is empty.")
    beginnings, continuations = _alphabet(words, vocab_size, _pre_tokenizer(split_han, None))
    pre_tokenizer = _pre_tokenizer(split_han, continuations)
    tokens = _learn_tokens(_spellable(words, pre_tokenizer, set(beginnings)), beginnings, continuations, vocab_size)
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *tokens])}

    tokenizer = Tokenizer(
        models.WordPiece(
            vocabulary,
            unk_token="[UNK]",
            continuing_subword_prefix=CONTINUATION,
            max_input_chars_per_word=LONGEST_WORD,
        )
    )
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = _decoder()
    return tokenizer


def _pre_tokenizer(split_han: bool, letters: Sequence[str] | None) -> pre_tokenizers.PreTokenizer:
    """Words as matches of one pattern; ``letters`` are the characters that words may hold, None: all."""
    alone = r"\p{P}\p{S}" + (r"\p{Han}" if split_han else "")
    parts = [f"[{alone}]"]
    if letters is None:
        parts.append(rf"[^\s{alone}]{{1,{LONGEST_WORD}}}")
    elif letters:
        parts.append(f"[{_character_class(letters)}]{{1,{LONGEST_WORD}}}")
    parts.append(r"\S")
    return pre_tokenizers.Split(Regex("|".join(parts)), behavior="removed", invert=True)


def _character_class(characters: Iterable[str]) -> str:
    """The inside of a bracket expression, as ranges of code points."""
    points = sorted(map(ord, characters))
    starts = [points[0]] + [right for left, right in pairwise(points) if right != left + 1]
    ends = [left for left, right in pairwise(points) if right != left + 1] + [points[-1]]
    return "".join(rf"\x{{{start:x}}}-\x{{{end:x}}}" for start, end in zip(starts, ends, strict=True))


def _count_words(
    segments: Iterable[str], normalizer: normalizers.Normalizer, pre_tokenizer: pre_tokenizers.PreTokenizer
) -> Counter[str]:
    """How often each word occurs.

    Stretches between white space are counted first and cut into words once each, by the tokenizer's own
    rules.
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    threshold = 1

    def cut_chunks() -> None:
        nonlocal words, threshold
        for chunk, count in chunks.items():
            for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(chunk)):
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


def _alphabet(
    words: Counter[str], vocab_size: int, pre_tokenizer: pre_tokenizers.PreTokenizer
) -> tuple[list[str], list[str]]:
    """The characters that the vocabulary spells, and those of them that can also continue a word, sorted."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    continuing = {character for character in characters if len(pre_tokenizer.pre_tokenize_str("a" + character)) == 1}

    room = vocab_size - len(SPECIAL_TOKENS)
    needed = _COVERAGE * characters.total()
    kept: list[str] = []
    used = covered = 0
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        cost = 2 if character in continuing else 1
        if used + cost > (room if covered < needed else room // 2):
            break
        kept.append(character)
        used += cost
        covered += count
    if not kept:
        full = len(SPECIAL_TOKENS) + len(characters) + len(continuing)
        raise ConfigError(
            f"A vocab_size of {vocab_size} leaves no room for a letter beside the {len(SPECIAL_TOKENS)} "
            f"special tokens: the minimum is {len(SPECIAL_TOKENS) + 2}; {full} spell every character here."
        )
    return sorted(kept), sorted(continuing.intersection(kept))


def _spellable(words: Counter[str], pre_tokenizer: pre_tokenizers.PreTokenizer, alphabet: set[str]) -> Counter[str]:
    """The words cut where a character is not in the alphabet, without those characters."""
    spellable: Counter[str] = Counter()
    for word, count in words.items():
        if alphabet.issuperset(word):
            spellable[word] += count
            continue
        for part, _ in pre_tokenizer.pre_tokenize_str(word):
            if alphabet.issuperset(part):
                spellable[part] += count
    return spellable


def _learn_tokens(
    words: Counter[str], beginnings: Sequence[str], continuations: Sequence[str], vocab_size: int
) -> list[str]:
    """The tokens in the order in which they were learned: single characters first."""
    spellings = [*beginnings, *(CONTINUATION + character for character in continuations)]
    symbols = [chr(_FIRST_SYMBOL + index) for index in range(len(spellings))]
    begin = dict(zip(beginnings, symbols, strict=False))
    go_on = dict(zip(continuations, symbols[len(beginnings) :], strict=True))

    def occurrences() -> Iterator[str]:
        scale = min(1.0, _WORDS_TO_TRAINER / words.total())
        for word in sorted(words):
            shifted = begin[word[0]] + "".join(go_on[character] for character in word[1:]) + " "
            times = round(words[word] * scale)
            while times > 0:  # in pieces of bounded size
                yield shifted * min(times, 10_000)
                times -= 10_000

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        occurrences(),
        trainers.BpeTrainer(
            vocab_size=vocab_size - len(SPECIAL_TOKENS),
            min_frequency=2,
            initial_alphabet=symbols,
            show_progress=False,
        ),
    )
    learned = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    return [_spelling([spellings[ord(symbol) - _FIRST_SYMBOL] for symbol in token]) for token, _ in learned]


def _spelling(parts: Sequence[str]) -> str:
    return parts[0] + "".join(part.removeprefix(CONTINUATION) for part in parts[1:])


def _decoder() -> decoders.Decoder:
    """Joins tokens to words, and takes off the spaces that belong to no script's punctuation.

    The clean-up that ``decoders.WordPiece`` offers is English only and rewrites words ("do not" becomes
    "don't").
    """
    closing = r"""[.,;:!?%)\]}»”…。、，．！？；：）」』】〉》।॥،؛؟]"""
    opening = r"""[(\[{«“¿¡（「『【〈《]"""
    wide = r"""[。、，．！？；：）」』】〉》]"""
    word = r"[\p{L}\p{M}\p{N}]"
    han, kana = r"\p{Han}", r"[\p{Hiragana}\p{Katakana}ー]"
    superfluous = [
        rf"^{CONTINUATION}",  # of a text that begins within a word
        rf" (?={closing})",
        rf"(?<={opening}|{wide}) ",
        rf"(?<={word}) (?=['’‐-] \p{{L}})",  # before an apostrophe or hyphen within a word, and after it
        rf"(?<={word} ['’‐-]) (?=\p{{L}})",
        r"(?<=\p{N} [.:]) (?=\p{N})|(?<=\p{N} ,) (?=\p{N}{3}(?!\p{N}))",  # 3.5, 10:30, 1,000
        rf"(?<={han}) (?={han}|{kana})",
        rf"(?<={kana}) (?={han})",
    ]
    return decoders.Sequence(
        [
            decoders.WordPiece(prefix=CONTINUATION, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(Regex("|".join(superfluous)), ""),
        ]
    )
