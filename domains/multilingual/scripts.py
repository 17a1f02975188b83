"""Scripts of Unicode, by their ISO 15924 codes: what a text is written in, and which scripts leave out spaces."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

_LETTER = re.compile("[A-Za-z]")
_NO_SCRIPT = frozenset({"Zyyy", "Zinh", "Zzzz"})  # common to many, inherited from the letter before, unassigned

_MEMBERS = {
    "Hans": frozenset({"Hani"}),
    "Hant": frozenset({"Hani"}),
    "Jpan": frozenset({"Hani", "Hira", "Kana"}),
    "Kore": frozenset({"Hang", "Hani"}),
    "Aran": frozenset({"Arab"}),
    "Latf": frozenset({"Latn"}),
    "Latg": frozenset({"Latn"}),
}
"""What Unicode calls the letters of the scripts that language tags name more finely, or that are written mixed."""

SPACELESS = frozenset({"Ahom", "Khmr", "Lana", "Laoo", "Mymr", "Tale", "Talu", "Tavt", "Thai"})
"""Scripts whose words only a dictionary finds: those of class SA in Unicode Standard Annex 14, section 5.1."""

PHRASES = SPACELESS | {"Hira"}
"""Scripts in which a run of letters is no word but several: those, and hiragana, which writes particles and endings.
Katakana writes loanwords one by one, and Han characters are words of their own."""

_WITHOUT_SPACES = SPACELESS | {"Hans", "Hant", "Jpan", "Hani", "Hira", "Kana", "Tibt"}


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str:
    """The script of a character, "" for what belongs to none: digits, punctuation, symbols, combining accents.

    >>> [script_of(character) for character in "aжक漢か1"]
    ['Latn', 'Cyrl', 'Deva', 'Hani', 'Hira', '']
    """
    from fontTools import unicodedata

    code = str(unicodedata.script(character))
    return "" if code in _NO_SCRIPT else code


def script_name(code: str) -> str:
    """The English name of a script: "Latin" for "Latn"; the code itself where Unicode has no name."""
    from fontTools import unicodedata

    return str(unicodedata.script_name(code, default=code))


def main_script(text: str) -> str:
    """The script of most letters of a text, "" where it has none; of scripts with as many, the first by code.

    >>> main_script("ガギグ and ここ"), main_script("1789")
    ('Kana', '')
    """
    if text.isascii():  # most texts are, and this is much faster
        return "Latn" if _LETTER.search(text) else ""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        counts[script_of(character)] += count
    del counts[""]
    return min(counts, key=lambda code: (-counts[code], code), default="")


def is_written_in(script: str, letters: str) -> bool:
    """Whether letters of the script ``letters`` are what a tag means that says ``script``.

    >>> is_written_in("Jpan", "Hira"), is_written_in("Hant", "Hani"), is_written_in("Cyrl", "Latn")
    (True, True, False)
    """
    return letters == script or letters in _MEMBERS.get(script, ())


def has_spaces(script: str) -> bool:
    """Whether white space separates the words of what is written in a script.

    >>> has_spaces("Kore"), has_spaces("Jpan"), has_spaces("Thai")
    (True, False, False)
    """
    return script not in _WITHOUT_SPACES
