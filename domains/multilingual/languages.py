"""Language codes: from what files and people write to the shortest code of ISO 639, as BCP 47 wants it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from seqbert.data.compressed import without_compression

UNKNOWN = "und"
"""The code for a language that is not known (ISO 639-2, BCP 47)."""

# The macrolanguage that usually stands for an ISO 639-3 language, after CLDR's language aliases, and what
# replaces codes that ISO 639-1 has withdrawn.
_PREFERRED = {
    "aju": "jrb",
    "als": "sq",
    "arb": "ar",
    "ayr": "ay",
    "azj": "az",
    "bcc": "bal",
    "bcl": "bik",
    "bxk": "luy",
    "bxr": "bua",
    "cld": "syr",
    "cmn": "zh",
    "cwd": "cr",
    "dgo": "doi",
    "dhd": "mwr",
    "dik": "din",
    "ekk": "et",
    "emk": "man",
    "esk": "ik",
    "fat": "ak",
    "fuc": "ff",
    "gno": "gon",
    "gug": "gn",
    "hdn": "hai",
    "hea": "hmn",
    "ike": "iu",
    "in": "id",
    "iw": "he",
    "ji": "yi",
    "khk": "mn",
    "kmr": "ku",
    "knc": "kr",
    "knn": "kok",
    "kpv": "kv",
    "lvs": "lv",
    "mhr": "chm",
    "npi": "ne",
    "ojg": "oj",
    "ory": "or",
    "pbu": "ps",
    "pes": "fa",
    "plt": "mg",
    "pnb": "lah",
    "prs": "fa",
    "quz": "qu",
    "rmy": "rom",
    "spy": "kln",
    "swh": "sw",
    "tw": "ak",
    "twi": "ak",
    "uzn": "uz",
    "ydd": "yi",
    "zsm": "ms",
}
_PRIMARY_SUBTAG = re.compile(r"([a-z]{2,3})(?:[-_.@]|$)")


@lru_cache(maxsize=8192)
def language_code(written: str) -> str | None:
    """The language that a code, a tag or an English name stands for, as its shortest ISO 639 code.

    Region, script and variant are left out: Brazilian and European Portuguese are one language to sample
    from.

    >>> [language_code(written) for written in ("deu_1996", "pt-BR", "cmn_hans", "ger", "Swahili", "fil")]
    ['de', 'pt', 'zh', 'de', 'sw', 'fil']
    >>> language_code("und") is None and language_code("notes") is None
    True
    """
    return _code_of_tag(written) or _code_of_name(written)


@lru_cache(maxsize=8192)
def language_of_path(path: Path) -> str | None:
    """The language that a file's name or its folder's begins with or is, by ISO 639 code.

    ``eng.html``, ``deu_1996.html.gz``, ``news.de.txt`` and ``de/news.txt`` say it. Two-letter languages
    are looked for first, in the name and then in the folder, since every third English word of three
    letters is the code of some language ("the", "new"): such a code counts where neither says anything
    better.
    """
    parts = without_compression(path).name.split(".")
    stem = parts[:-1] if len(parts) > 1 else parts
    codes = [code for name in (*reversed(stem), path.parent.name) if (code := _code_of_tag(name))]
    return next((code for code in codes if len(code) == 2), codes[0] if codes else None)


def _code_of_tag(written: str) -> str | None:
    import pycountry

    subtag = _PRIMARY_SUBTAG.match(written.strip().lower())
    if not subtag:
        return None
    code = _PREFERRED.get(subtag[1], subtag[1])
    if len(code) == 2:
        return _shortest(pycountry.languages.get(alpha_2=code))
    return _shortest(pycountry.languages.get(alpha_3=code) or pycountry.languages.get(bibliographic=code))


def _code_of_name(written: str) -> str | None:
    return _codes_by_name().get(written.strip().lower())


@lru_cache(maxsize=1)
def _codes_by_name() -> dict[str, str]:
    """Codes by English name; where two share one, as "Swahili" does, the language with the shorter code has it."""
    import pycountry

    codes: dict[str, str] = {}
    for language in pycountry.languages:
        code = _shortest(language)
        names = [getattr(language, key, language.name) for key in ("name", "common_name", "inverted_name")]
        if code and len(code) == 2:
            names += [re.split(r"[,(]", name)[0].strip() for name in names]  # "Greek, Modern (1453-)"
            codes.update((name.lower(), code) for name in names)
        elif code:
            for name in names:
                codes.setdefault(name.lower(), code)
    return codes


def _shortest(language: Any) -> str | None:
    if language is None or getattr(language, "scope", "") == "S":  # special codes: und, mul, zxx, mis
        return None
    return _PREFERRED.get(language.alpha_3) or getattr(language, "alpha_2", "") or str(language.alpha_3)
