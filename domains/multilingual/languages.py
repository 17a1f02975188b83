"""Languages: from the tags and names that files and people write to BCP 47 and the shortest code of ISO 639.

Tags are checked and brought to one form by ``langcodes``: well-formedness (RFC 5646, section 2.1), subtags that
the IANA registry lacks, codes that CLDR replaces (``iw`` by ``he``, ``cmn`` by ``zh``). English names come from
``pycountry``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seqbert.data.compressed import without_compression

if TYPE_CHECKING:
    import langcodes

UNKNOWN = "und"
"""The code for a language that is not known (ISO 639-2, BCP 47)."""

MALFORMED = "language tags that are not well-formed (BCP 47)"
UNREGISTERED = "language tags with a subtag that IANA does not register"
NO_LANGUAGE = "language tags that name no language, such as und or mul"

_NAMING_NONE = frozenset({"und", "mul", "zxx", "mis", "x"})  # x: a private tag

_WIKIPEDIAS = {
    "als": "gsw",
    "bat-smg": "sgs",
    "be-x-old": "be-tarask",
    "cbk-zam": "cbk",
    "eml": "egl",
    "fiu-vro": "vro",
    "map-bms": "jv-x-bms",
    "nrm": "nrf",
    "roa-rup": "rup",
    "roa-tara": "nap-x-tara",
    "simple": "en-x-simple",
    "zh-classical": "lzh",
    "zh-min-nan": "nan",
    "zh-yue": "yue",
}
"""Wikipedia's own codes that are no tags or mean another language, by
https://meta.wikimedia.org/wiki/Special_language_codes."""

# Of Greek, as files are named; the registered subtags are shorter.
_VARIANTS = re.compile(r"(?<=[-_])(mono|poly)tonic\b", re.IGNORECASE)
_ENCODING_AND_MODIFIER = re.compile(r"[.@].*")  # of a POSIX locale: de_DE.UTF-8@euro
_SEPARATORS = re.compile("[-_]")
_ALPHABETIC = re.compile(r"[a-z]+(?![^-_])", re.IGNORECASE)  # the first subtag (RFC 5646, section 2.1)
_PRIMARY = re.compile(r"[a-z]{2,3}(?=[-_@]|$)")
_LAST = re.compile(r"(?<=[-_])[a-z]{2}$")
_FILE_KINDS = frozenset(
    {"bio", "conll", "conllu", "csv", "htm", "html", "iob", "iob2", "json", "jsonl", "markdown", "md"}
    | {"ndjson", "parquet", "tab", "tsv", "txt", "xhtml"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Language:
    """What a tag says.

    Attributes:
        code: The shortest ISO 639 code, without region, script or variant: Brazilian and European Portuguese
            are one language to sample from. Languages that ISO 639 has as varieties of one macrolanguage keep
            codes of their own, but for the one that the macrolanguage's code usually means.
        tag: The whole tag in its BCP 47 form, such as "zh-Hant-TW".
        script: The ISO 15924 code that it says, or that its region implies; "" where it says nothing.
    """

    code: str
    tag: str
    script: str = ""


class Placed(NamedTuple):
    """The language that a path names, and what is left of the path without it.

    Attributes:
        language: The language.
        rest: The folder's and the file's name without what names the language and without the file's ending;
            equal for files that are translations of one another.
        in_folder: Whether the folder's name is what names it.
    """

    language: Language
    rest: str
    in_folder: bool


@lru_cache(maxsize=8192)
def read_tag(written: str) -> tuple[Language | None, str]:
    """The language that a tag, a code or an English name stands for, and what is wrong with it.

    Where only the end of a tag is wrong, the part before it counts, and the second value says what was wrong.

    Returns:
        The language, None where none is told; and "", :data:`MALFORMED`, :data:`UNREGISTERED` or
        :data:`NO_LANGUAGE`.

    >>> read_tag("pt-br")[0]
    Language(code='pt', tag='pt-BR', script='Latn')
    >>> read_tag("en-YY"), read_tag("12")
    ((Language(code='en', tag='en', script=''), 'language tags with a subtag that IANA does not register'), \
(None, 'language tags that are not well-formed (BCP 47)'))
    """
    plain = _VARIANTS.sub(r"\1ton", _ENCODING_AND_MODIFIER.sub("", written.strip()))
    parsed, problem = _parse(plain)
    if parsed is None and problem != NO_LANGUAGE:
        if (code := _codes_by_name().get(written.strip().lower())) is not None:
            parsed, problem = _parse(code)
        else:
            subtags = _SEPARATORS.split(plain)
            shorter = ("-".join(subtags[:length]) for length in range(len(subtags) - 1, 0, -1))
            parsed = next((found for tag in shorter if (found := _parse(tag)[0])), None)
    if parsed is None:
        return None, problem
    script = parsed.script or (parsed.maximize().script if parsed.territory else "") or ""
    return Language(parsed.language or "", parsed.to_tag(), script), problem


def language_code(written: str) -> str | None:
    """The shortest ISO 639 code of what a tag, a code or an English name stands for; None: of nothing known.

    >>> [language_code(written) for written in ("deu_1996", "pt-BR", "cmn_hans", "ger", "Swahili", "fil")]
    ['de', 'pt', 'zh', 'de', 'sw', 'fil']
    >>> language_code("und") is None and language_code("notes") is None
    True
    """
    language, _ = read_tag(written)
    return language.code if language else None


def wikipedia_tag(code: str) -> str:
    """The language tag for a Wikipedia's code: they agree but for a few old ones, such as "als" for Alemannic."""
    return _WIKIPEDIAS.get(code, code)


@lru_cache(maxsize=8192)
def usual_script(group: str) -> str:
    """The script that a language is usually written in: that of its tag, else by CLDR's likely subtags.

    >>> usual_script("zh"), usual_script("zh-Hant"), usual_script("sr"), usual_script("und")
    ('Hans', 'Hant', 'Cyrl', '')
    """
    parsed, _ = _parse(group)
    return (parsed.script or parsed.maximize().script or "") if parsed else ""


@lru_cache(maxsize=8192)
def placed(path: Path) -> Placed | None:
    """The language that a file's name or its folder's tells; None: neither does.

    ``eng.html``, ``deu_1996.html.gz``, ``news.de.txt``, ``train.de``, ``de/news.txt``, ``german/news.txt`` and
    ``wikiann_de/train`` say it. In this order: names that begin with, or are, a language that has a
    two-letter code (the file's name, from its end, then the folder's); names that end with such a code after
    ``_`` or ``-``; English names; names that begin with a code of three letters. The last comes last because
    every third English word of three letters is the code of some language ("the", "new").
    """
    parts = _parts(path)
    named = [(place, part) for place, part in reversed(list(enumerate(parts))) if part]
    named.append((-1, path.parent.name))
    for place, part, language in _told(named):
        folder, others = path.parent.name, parts
        if place < 0:
            above = path.parent.parent.name
            return Placed(language, _joined(above, _without(folder, part), others), in_folder=True)
        stem = [*parts[:place], _without(parts[place], part), *parts[place + 1 :]]
        again = next(_told([(-1, folder)]), None)
        if again is not None and again[2].code == language.code:  # it/val.it.jsonl
            return Placed(language, _joined(path.parent.parent.name, _without(folder, again[1]), stem), in_folder=True)
        return Placed(language, _joined(folder, "", stem), in_folder=False)
    return None


def unplaced(path: Path) -> str:
    """What :attr:`Placed.rest` is for a path that names no language."""
    return _joined(path.parent.name, "", _parts(path))


def file_kind(path: Path) -> str:
    """The ending of a file where it is that of a format, "" where it is none or a part of the name.

    >>> file_kind(Path("news.de.txt.gz")), file_kind(Path("train.de"))
    ('txt', '')
    """
    ending = without_compression(path).suffix.lower().removeprefix(".")
    return ending if ending in _FILE_KINDS else ""


def _parts(path: Path) -> list[str]:
    """The file's name at its dots, without what names a compression or a format."""
    parts = without_compression(path).name.split(".")
    return parts[:-1] if file_kind(path) else parts


def _told(named: list[tuple[int, str]]) -> Iterator[tuple[int, str, Language]]:
    """Places and the words there that name a language, the most telling first."""
    beginnings = []
    for place, name in named:
        if _PRIMARY.match(name.lower()):
            language, problem = read_tag(name)
            if language is not None:
                word = _PRIMARY.match(name.lower())[0] if problem else name  # type: ignore[index]
                beginnings.append((place, name[: len(word)], language))
    yield from (found for found in beginnings if len(found[2].code) == 2)
    for place, name in named:
        if (last := _LAST.search(name.lower())) and (language := read_tag(last[0])[0]):
            yield place, name[last.start() :], language
    for place, name in named:
        code = _codes_by_name().get(name.lower(), "")
        if len(code) == 2 and (language := read_tag(code)[0]):
            yield place, name, language
    yield from (found for found in beginnings if len(found[2].code) != 2)


def _without(name: str, word: str) -> str:
    before, _, after = name.rpartition(word) if name.endswith(word) else name.partition(word)
    return f"{before.strip('-_')}-{after.strip('-_')}".strip("-")


def _joined(above: str, folder: str, stem: list[str]) -> str:
    return "/".join(filter(None, [above, folder, ".".join(filter(None, stem))]))


@lru_cache(maxsize=8192)
def _parse(tag: str) -> tuple[langcodes.Language | None, str]:
    """A tag in CLDR's form, None where it is no valid one; and what is wrong with it."""
    import langcodes
    from langcodes.tag_parser import LanguageTagError

    if not _ALPHABETIC.match(tag):  # which langcodes lets pass
        return None, MALFORMED
    try:
        language = langcodes.Language.get(langcodes.standardize_tag(tag, macro=True))
    except LanguageTagError:
        return None, MALFORMED
    if (language.language or "und").partition("-")[0] in _NAMING_NONE:
        return None, NO_LANGUAGE
    if language.extlangs or not language.is_valid():
        return None, UNREGISTERED
    return language, ""


@lru_cache(maxsize=1)
def _codes_by_name() -> dict[str, str]:
    """Codes by English name; where two share one, as "Swahili" does, the language with the shorter code has it."""
    import pycountry

    codes: dict[str, str] = {}
    for language in pycountry.languages:
        if getattr(language, "scope", "") == "S":  # special codes: und, mul, zxx, mis
            continue
        parsed, _ = _parse(language.alpha_3)
        code = parsed.language if parsed else None
        names = [getattr(language, key, language.name) for key in ("name", "common_name", "inverted_name")]
        if code and len(code) == 2:
            names += [re.split(r"[,(]", name)[0].strip() for name in names]  # "Greek, Modern (1453-)"
            codes.update((name.lower(), code) for name in names)
        elif code:
            for name in names:
                codes.setdefault(name.lower(), code)
    return codes
