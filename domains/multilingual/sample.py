"""The multilingual sample: names that ISO standards list, in the translations that pycountry carries."""

from __future__ import annotations

import gettext
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from itertools import groupby

from domains.multilingual.languages import language_code
from seqbert.domain import Document, Sample

# Languages of many families and scripts into which the lists below are translated nearly whole.
_LOCALES = (
    "ar",
    "bn",
    "de",
    "el",
    "fr",
    "ga",
    "he",
    "hi",
    "hu",
    "id",
    "it",
    "ja",
    "ka",
    "ko",
    "nl",
    "pl",
    "ru",
    "sv",
    "ta",
    "th",
    "tr",
    "uk",
    "vi",
    "zh_CN",
)
_FEWEST_NAMES = 24


def multilingual_sample(canonical: Callable[[str], str]) -> Sample:
    """Lists of names as documents: one list in one language, cut where the codes' first letter changes.

    The names stand in the order of their codes, each a segment; parts of one list have the same alignment
    id in every language. The metadata "tag" is the locale, such as "zh_CN". Names that a catalogue does not
    translate are left out.
    """

    def documents() -> Iterator[Document]:
        import pycountry

        for catalogue, names in _lists():
            for locale in _LOCALES:
                try:
                    translation = gettext.translation(catalogue, pycountry.LOCALES_DIR, [locale])
                except FileNotFoundError:
                    continue
                language = language_code(locale) or locale
                translation.add_fallback(_Untranslated())
                for part, members in names:
                    segments = [canonical(text) for name in members if (text := translation.gettext(name))]
                    if segments:
                        yield Document(
                            f"{language}-{part}",
                            segments,
                            f"pycountry:{locale}/{catalogue}",
                            {"tag": locale, "alignment": part},
                        )

    return Sample(
        about=f"Names of countries, languages, currencies and scripts in {len(_LOCALES)} languages: "
        "Debian's iso-codes, from the installed pycountry (LGPL 2.1).",
        documents=documents,
        version=f"pycountry-{metadata.version('pycountry')}",
    )


def _lists() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    import pycountry

    countries = [(country.alpha_2, country.name) for country in pycountry.countries]
    languages = [(item.alpha_2, item.name) for item in pycountry.languages if hasattr(item, "alpha_2")]
    currencies = [(currency.alpha_3, currency.name) for currency in pycountry.currencies]
    scripts = [(script.alpha_4, script.name) for script in pycountry.scripts]
    yield "iso3166-1", _parts("countries", countries)
    yield "iso639-3", _parts("languages", languages)
    yield "iso4217", _parts("currencies", currencies)
    yield "iso15924", _parts("scripts", scripts)


def _parts(title: str, coded: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Names by first letters of their codes; neighbouring letters share a part until it has enough names."""
    parts: list[tuple[str, list[str]]] = []
    letters, names = "", []
    for letter, group in groupby(sorted(coded), key=lambda item: item[0][0].upper()):
        letters += letter
        names += [name for _, name in group]
        if len(names) >= _FEWEST_NAMES:
            parts.append((f"{title}-{letters}", names))
            letters, names = "", []
    if names:
        parts.append((f"{title}-{letters}", names))
    return parts


class _Untranslated(gettext.NullTranslations):
    """Gives nothing where gettext would give the English name back."""

    def gettext(self, message: str) -> str:
        return ""
