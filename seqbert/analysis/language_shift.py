"""Mean vectors of groups, such as languages, and the difference that turns one into another (Liu et al. 2020)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np


def mean_vectors(vectors: np.ndarray, groups: Sequence[str]) -> dict[str, np.ndarray]:
    """The mean vector of each group's tokens, ``[width]``.

    Args:
        vectors: ``[tokens, width]``.
        groups: The group of each token.

    Raises:
        ValueError: There are not as many groups as vectors.
    """
    if len(vectors) != len(groups):
        raise ValueError(f"{len(vectors)} vectors, and groups for {len(groups)}")
    named = np.asarray(groups)
    return {str(name): vectors[named == name].mean(axis=0) for name in dict.fromkeys(groups)}


def shift(means: Mapping[str, np.ndarray], source: str, target: str, strength: float = 1.0) -> np.ndarray:
    """What is added to hidden states of one group to move them to another: the difference of their means.

    Liu, Hsu, Chuang and Lee 2020, "A Study of Cross-Lingual Ability and Language-specific Information in Multilingual
    BERT", section 5.

    Args:
        means: From :func:`mean_vectors`.
        source: The group that the hidden states are of.
        target: The group that they are to be like.
        strength: Times the difference.

    Returns:
        ``[width]``.

    Raises:
        ValueError: A group has no mean.
    """
    for name in (source, target):
        if name not in means:
            raise ValueError(f'there is no mean vector of "{name}"; there are {", ".join(means)}')
    return np.asarray(strength * (means[target] - means[source]))


def word_list(pairs: Iterable[tuple[Sequence[str], Sequence[str]]], least: int = 3) -> dict[str, str]:
    """Translations of words, from parallel texts: pairs of words of which each is the other's best.

    Two words are as good a pair as their Dice coefficient says (Smadja, McKeown and Hatzivassiloglou 1996): twice the
    number of texts in which both stand on their sides, over the sum of the texts of each.

    Args:
        pairs: The words of each text in both languages.
        least: Texts in which a pair must stand.

    Returns:
        For each word of the first language at most one of the second.

    >>> texts = [("the house", "das haus"), ("the tree", "der baum"), ("a house", "ein haus"), ("a tree", "ein baum")]
    >>> word_list([(one.split(), other.split()) for one, other in texts], least=2)
    {'house': 'haus', 'tree': 'baum', 'a': 'ein'}
    """
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    for one, other in pairs:
        ones, others = list(dict.fromkeys(one)), list(dict.fromkeys(other))
        first.update(ones)
        second.update(others)
        both.update((word, translation) for word in ones for translation in others)
    best: dict[str, tuple[float, str]] = {}
    best_back: dict[str, tuple[float, str]] = {}
    for (word, translation), count in both.items():
        if count < least:
            continue
        dice = 2 * count / (first[word] + second[translation])
        if dice > best.get(word, (0.0, ""))[0]:
            best[word] = dice, translation
        if dice > best_back.get(translation, (0.0, ""))[0]:
            best_back[translation] = dice, word
    return {word: translation for word, (_, translation) in best.items() if best_back[translation][1] == word}
