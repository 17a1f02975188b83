"""The unigram language model over pieces of words (Kudo 2018, "Subword Regularization", section 3.2).

The trainer of the ``tokenizers`` library, given the same text twice, returns two vocabularies: it sums and prunes in
the order of a hash table. So the vocabulary is learned here, by the same method, in one fixed order; the library
spells with it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers

from domains.text.byte_pairs import finished, with_first_space
from domains.text.words import count_words, word_splitter
from seqbert.domain import SPECIAL_TOKENS
from seqbert.errors import ConfigError, DataError

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""What spells a character that the vocabulary does not have: the bytes of its UTF-8."""

LONGEST_PIECE = 16
"""Characters of the longest piece; SentencePiece's default."""

_COVERAGE = 0.9995  # share of the characters that pieces spell; SentencePiece's default
_CHARACTERS = 2_000_000  # of the most frequent words, which pieces are learned from; the most that it takes is 1.4 GB
_CANDIDATES = 20  # times the vocabulary
_FEWEST_CANDIDATES = 10_000
_KEPT = 0.75  # of the pieces, in each round of pruning; SentencePiece's default
_ROUNDS = 2  # of expectation and maximisation between prunings; SentencePiece's default
_LEAST_EXPECTED = 0.5  # pieces that are expected less often are dropped; SentencePiece's default


def train_unigram(
    segments: Iterable[str], vocab_size: int, normalizer: normalizers.Normalizer, split_han: bool
) -> Tokenizer:
    """Learns pieces and their probabilities from text and returns a complete tokenizer.

    A word is spelled by its most probable pieces. Characters outside of the vocabulary are spelled by their bytes, so
    that nothing is unknown and what was encoded is decoded again exactly. Words are those of WordPiece, but each has
    the space before it; the first of a text gets one too.

    Candidates are the stretches of words of up to 16 characters that occur twice. Expectation and maximisation, with
    the digamma function for a sparse prior, alternate with pruning: the quarter goes whose loss costs the text least
    likelihood, where a piece's frequency is its expected one. Scores are rounded, and ties are broken by the pieces'
    order, so that the same segments give the same bytes on any number of threads. Where the distinct words have more
    than two million characters, the most frequent are learned from.

    Args:
        segments: Text; consumed once.
        vocab_size: The most entries that the vocabulary may have, special tokens included.
        normalizer: Brings text to its canonical form.
        split_han: Whether each Han character is a word.

    Raises:
        ConfigError: ``vocab_size`` leaves no room for the 256 bytes and a character.
        DataError: There is no text.
    """
    fixed = [*SPECIAL_TOKENS, *BYTE_TOKENS]
    room = vocab_size - len(fixed)
    if room < 1:
        raise ConfigError(
            f"A vocab_size of {vocab_size} leaves no room for a letter beside the {len(SPECIAL_TOKENS)} special tokens "
            f"and the 256 bytes, with which tokens: unigram spells what it has no piece for: the minimum is "
            f"{len(fixed) + 1}."
        )
    spaced = with_first_space(normalizer)
    splitter = word_splitter(split_han, spaced=True)
    words = count_words(segments, spaced, splitter)
    if not words:
        raise DataError("There is no text to learn a vocabulary from: every segment is empty.")
    alphabet = _alphabet(words, room)
    pieces = _learn(_spellable(words, alphabet), room)
    vocabulary = [(token, 0.0) for token in fixed] + pieces
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=SPECIAL_TOKENS.index("[UNK]"), byte_fallback=True))
    letters = [
        letter for letter in alphabet if not letter.isspace() and len(splitter.pre_tokenize_str("a" + letter)) == 1
    ]
    # What is spelled by bytes is a word of its own, so that they have the place of one character.
    tokenizer.pre_tokenizer = word_splitter(split_han, letters, spaced=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return finished(tokenizer, spaced)


def _alphabet(words: Counter[str], room: int) -> list[str]:
    """The characters that are pieces: those of most of the text, rarer ones while they leave half the room."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    needed = _COVERAGE * characters.total()
    kept: list[str] = []
    covered = 0
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if len(kept) >= (room if covered < needed else room // 2):
            break
        kept.append(character)
        covered += count
    return sorted(kept)


def _spellable(words: Counter[str], alphabet: list[str]) -> list[tuple[str, int]]:
    """The most frequent words, cut where a character is not in the alphabet, and how often each occurs; sorted."""
    known = set(alphabet)
    parts: Counter[str] = Counter()
    size = 0
    for word, count in sorted(words.items(), key=lambda item: (-item[1], item[0])):
        if known.issuperset(word):
            parts[word] += count
        else:
            for part in "".join(character if character in known else "\n" for character in word).split("\n"):
                if part:
                    parts[part] += count
        size += len(word)
        if size > _CHARACTERS:
            break
    return sorted(parts.items())


@dataclasses.dataclass(slots=True)
class _Lattice:
    """All ways to spell some strings with pieces: an edge for each place where a piece fits.

    Nodes are the places between characters, those of one string after those of another.

    Attributes:
        first: The node before each string, ``[strings]``.
        last: The node behind each string, ``[strings]``.
        start, end, piece: Of each edge, ``[edges]``.
        string: The string of each edge, ``[edges]``.
    """

    first: np.ndarray
    last: np.ndarray
    start: np.ndarray
    end: np.ndarray
    piece: np.ndarray
    string: np.ndarray

    def keep(self, kept: np.ndarray) -> _Lattice:
        """The lattice with the pieces that are kept, numbered anew."""
        here, numbers = kept[self.piece], np.cumsum(kept) - 1
        return _Lattice(
            self.first, self.last, self.start[here], self.end[here], numbers[self.piece[here]], self.string[here]
        )

    def forward(self, scores: np.ndarray, add: np.ufunc) -> np.ndarray:
        """For each node, all ways to it from its string's beginning, put together by ``add``: in logarithms."""
        depth = self.end - self.first[self.string]
        return self._walk(self.start, self.end, depth, self.first, scores, add)

    def backward(self, scores: np.ndarray, add: np.ufunc) -> np.ndarray:
        """For each node, all ways from it to its string's end."""
        depth = self.last[self.string] - self.start
        return self._walk(self.end, self.start, depth, self.last, scores, add)

    def _walk(
        self,
        sources: np.ndarray,
        targets: np.ndarray,
        depth: np.ndarray,
        begin: np.ndarray,
        scores: np.ndarray,
        add: np.ufunc,
    ) -> np.ndarray:
        order = np.lexsort((self.piece, targets, depth))
        sources, targets, depth = sources[order], targets[order], depth[order]
        steps = scores[self.piece[order]]
        total = np.full(int(self.last[-1]) + 1, -np.inf)
        total[begin] = 0.0
        edges = np.concatenate([np.searchsorted(depth, np.unique(depth)), [len(depth)]])
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            here = targets[low:high]
            heads = np.concatenate([[0], np.flatnonzero(here[1:] != here[:-1]) + 1])
            total[here[heads]] = add.reduceat(total[sources[low:high]] + steps[low:high], heads)
        return total


def _learn(words: list[tuple[str, int]], room: int) -> list[tuple[str, float]]:
    """The pieces with the logarithms of their probabilities, the most probable first."""
    from scipy.special import digamma

    counts = np.array([count for _, count in words], np.float64)
    most = max(_CANDIDATES * room, _FEWEST_CANDIDATES)
    lattice, pieces, frequency, nodes = _candidates([word for word, _ in words], counts, most)
    names = np.array(pieces)
    single = np.char.str_len(names) == 1
    scores = np.log(frequency / frequency.sum())
    own = _within(pieces, nodes, lattice)
    of = np.arange(len(names))  # the string of ``own`` that each piece is
    while True:
        for _ in range(_ROUNDS):
            expected = _expected(lattice, scores, counts)
            kept = single | (expected >= _LEAST_EXPECTED)
            lattice, own = lattice.keep(kept), own.keep(kept)
            names, single, of, expected = names[kept], single[kept], of[kept], expected[kept]
            mass = np.maximum(expected, _LEAST_EXPECTED)
            scores = digamma(mass) - digamma(mass.sum())
        surplus = len(names) - room
        if surplus <= 0:
            break
        instead = own.forward(scores, np.maximum)[own.last[of]]
        loss = np.where(single, np.inf, expected * (scores - instead))
        going = np.lexsort((names, np.round(loss, 6)))[: min(surplus, max(1, int((1 - _KEPT) * len(names))))]
        kept = np.ones(len(names), bool)
        kept[going] = False
        lattice, own = lattice.keep(kept), own.keep(kept)
        names, single, of, scores = names[kept], single[kept], of[kept], scores[kept]
    learned = zip(names.tolist(), np.round(scores, 6).tolist(), strict=True)
    return sorted(learned, key=lambda item: (-item[1], item[0]))


def _candidates(words: list[str], counts: np.ndarray, most: int) -> tuple[_Lattice, list[str], np.ndarray, np.ndarray]:
    """All single characters of the words and the commonest longer stretches, as a lattice of the words over them.

    A stretch is only looked at where the two that are one character shorter occur twice (as in Agrawal and Srikant
    1994, "Fast Algorithms for Mining Association Rules"), so that memory grows with the characters alone.

    Returns:
        The lattice, the pieces, how often each occurs, and the node at which each can be found.
    """
    text = "".join(words)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    string = np.repeat(np.arange(len(words)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    weight = counts[string]
    at = np.arange(len(text))
    here = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)  # the kind of stretch at each place
    places, kinds, frequencies, examples = [], [], [], []
    for length in range(1, LONGEST_PIECE + 1):
        keys = here[at]
        if length > 1:
            at = at[at + length <= ends[at]]
            at = at[here[at + 1] >= 0]
            keys = here[at] * (int(here.max()) + 1) + here[at + 1]
        if not len(at):
            break
        _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
        frequency = np.bincount(kind, weights=weight[at])
        common = (frequency >= 2) | (length == 1)
        examples.append(at[first[common]])
        frequencies.append(frequency[common])
        kind = np.where(common, np.cumsum(common) - 1, -1)[kind]
        at, kind = at[kind >= 0], kind[kind >= 0]
        here = np.full(len(text), -1)
        here[at] = kind
        places.append(at)
        kinds.append(kind)

    sizes = np.array(list(map(len, frequencies)))
    size = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    frequency, example = np.concatenate(frequencies), np.concatenate(examples)
    covered = np.where(size == 1, np.inf, frequency * size)
    chosen = np.sort(np.argsort(-covered, kind="stable")[: max(most, sizes[0])])
    numbers = np.full(len(size), -1)
    numbers[chosen] = np.arange(len(chosen))
    firsts = np.cumsum(sizes) - sizes
    piece = np.concatenate([numbers[kind + first] for kind, first in zip(kinds, firsts, strict=True)])
    width = np.repeat(np.arange(1, len(sizes) + 1), list(map(len, places)))
    place = np.concatenate(places)
    place, width, piece = place[piece >= 0], width[piece >= 0], piece[piece >= 0]
    begin = np.cumsum(lengths) - lengths + np.arange(len(words))
    start = place + string[place]
    lattice = _Lattice(begin, begin + lengths, start, start + width, piece, string[place])
    pieces = [text[low : low + width] for low, width in zip(example[chosen], size[chosen], strict=True)]
    return lattice, pieces, frequency[chosen], (example + string[example])[chosen]


def _within(pieces: list[str], nodes: np.ndarray, lattice: _Lattice) -> _Lattice:
    """The lattice of the pieces themselves over shorter ones; ``nodes`` are where each stands in ``lattice``."""
    order = np.argsort(lattice.start, kind="stable")
    start, width, piece = lattice.start[order], (lattice.end - lattice.start)[order], lattice.piece[order]
    bounds = np.searchsorted(start, np.arange(int(lattice.last[-1]) + 2))
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    first = np.cumsum(lengths + 1) - lengths - 1
    starts, ends, inner, strings = [], [], [], []
    for offset in range(LONGEST_PIECE):
        string = np.flatnonzero(lengths > offset)
        low, high = bounds[nodes[string] + offset], bounds[nodes[string] + offset + 1]
        string = np.repeat(string, high - low)
        edge = np.arange(len(string)) + np.repeat(low - (np.cumsum(high - low) - (high - low)), high - low)
        fits = (width[edge] + offset <= lengths[string]) & ((width[edge] < lengths[string]) | (lengths[string] == 1))
        edge, string = edge[fits], string[fits]
        starts.append(first[string] + offset)
        ends.append(first[string] + offset + width[edge])
        inner.append(piece[edge])
        strings.append(string)
    return _Lattice(first, first + lengths, *map(np.concatenate, (starts, ends, inner, strings)))


def _expected(lattice: _Lattice, scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each piece is expected in the words: the E step."""
    forward = lattice.forward(scores, np.logaddexp)
    backward = lattice.backward(scores, np.logaddexp)
    share = forward[lattice.start] + scores[lattice.piece] + backward[lattice.end]
    share = np.exp(share - forward[lattice.last][lattice.string])
    return np.bincount(lattice.piece, weights=share * counts[lattice.string], minlength=len(scores))
