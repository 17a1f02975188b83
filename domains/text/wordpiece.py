"""WordPiece: a learned vocabulary of word beginnings and continuations (Wu et al. 2016, section 4.1).

The merges are those of byte-pair encoding (Sennrich et al. 2016), which the ``tokenizers`` library learns
in the same way every time; its own WordPiece trainer does not. The two agree on what they learn once each
character is replaced by one symbol where it begins a word and by another where it continues one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

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

from domains.text.words import LONGEST_WORD, count_words, occurrences, word_splitter
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError, DataError

CONTINUATION = "##"
"""What a token that does not begin a word starts with."""

_COVERAGE = 0.9995  # share of the characters of a text that a vocabulary must spell; SentencePiece's default
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
    words = count_words(segments, normalizer, word_splitter(split_han))
    if not words:
        raise DataError("There is no text to learn a vocabulary from: every segment is empty.")
    beginnings, continuations = _alphabet(words, vocab_size, word_splitter(split_han))
    pre_tokenizer = word_splitter(split_han, continuations)
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
    tokenizer.decoder = _decoder(split_han)
    return tokenizer


def usual_spaces(text: str, split_han: bool) -> str:
    """Canonical text with the spaces that decoding gives it: what WordPiece keeps of a text.

    Its words are joined by spaces, less those before a closing mark, after an opening one, within contractions,
    hyphenated words and numbers, and between Han characters where each is a word. A run of more than 100 letters gets
    one after each 100. Nothing else changes, and a second time nothing does.
    """
    words = [word for word, _ in word_splitter(split_han).pre_tokenize_str(text)]
    return str(_decoder(split_han).decode(words))


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
    shifted = {
        begin[word[0]] + "".join(go_on[character] for character in word[1:]): count
        for word, count in sorted(words.items())
    }
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        occurrences(shifted),
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


def _decoder(split_han: bool) -> decoders.Decoder:
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
    ]
    if split_han:
        superfluous += [rf"(?<={han}) (?={han}|{kana})", rf"(?<={kana}) (?={han})"]
    return decoders.Sequence(
        [
            decoders.WordPiece(prefix=CONTINUATION, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(Regex("|".join(superfluous)), ""),
        ]
    )
