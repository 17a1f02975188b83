"""Words that a file lists one by one, put together as a sentence."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from domains.multilingual.scripts import has_spaces, script_of

_CLOSING = frozenset(".,;:!?%)]}»”’…。、，．！？；：）」』】》〉।॥،؛؟")
_OPENING = frozenset("([{«“‘¿¡（「『【《〈„")
_STRAIGHT = ('"', "''", "``")


def join_words(words: Sequence[str]) -> str:
    """Words and marks as a sentence.

    No space stands before a closing mark, after an opening one, and between two letters of scripts that are
    written without spaces (Han, kana, Thai and their like; but Hangul has spaces). Straight quotation marks
    open and close by turns. Spaces that the words do not tell of, such as those of Thai phrases, stay lost.

    >>> join_words(["Er", "sagte", ":", '"', "Ja", '"', "."]), join_words(["東京", "は", "NHK", "。"])
    ('Er sagte: "Ja".', '東京は NHK。')
    """
    if not words:
        return ""
    parts, open_quotes = [words[0]], {mark: words[0] == mark for mark in _STRAIGHT}
    for before, word in pairwise(words):
        joined = word in _CLOSING or before in _OPENING or _is_wide_mark(before) or _is_wide_mark(word)
        joined = joined or (_spaceless(before[-1:]) and _spaceless(word[:1]))
        if word in _STRAIGHT:
            joined = joined or open_quotes[word]
            open_quotes[word] = not open_quotes[word]
        if before in _STRAIGHT and open_quotes[before] and word != before:
            joined = True
        parts += [word] if joined else [" ", word]
    return "".join(parts)


def _spaceless(character: str) -> bool:
    """Whether a character belongs to a script without spaces, or is a wide digit or symbol beside such."""
    script = script_of(character) if character else ""
    return not has_spaces(script) if script else _is_wide(character)


def _is_wide_mark(word: str) -> bool:
    return len(word) == 1 and _is_wide(word) and unicodedata.category(word).startswith("P")


def _is_wide(character: str) -> bool:
    return character != "" and unicodedata.east_asian_width(character) in "WF"
