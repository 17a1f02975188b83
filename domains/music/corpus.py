"""The scores that music21 brings along, and labelled tables of them that are not small: no download is needed.

==============  ===========================================================================================
composer        which of six composers wrote four bars; the metadata "work" says of what, for no work should
                stand on both sides of a split
tune_type       which dance the first eight bars of a fiddle tune belong to, in Ryan's Mammoth Collection
                (1883): jig, reel, hornpipe, strathspey or clog
==============  ===========================================================================================

Notation tells composers apart as well as style does: Palestrina's bars last four minims, and Bach's chorales
are in quarters. A score on ``composer`` is no score on attribution.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from domains.music.piece import parse
from domains.tables import Table, evenly
from seqbert.domain import Domain, Example, Report
from seqbert.errors import DataError


class Works(NamedTuple):
    """The files of a composer in music21's corpus.

    Attributes:
        patterns: Globs within the corpus.
        files: At most so many of them are read, spread evenly; long quartets take seconds each.
        work: What in a file's path within the corpus, or for Humdrum in its text, names the work.
    """

    patterns: tuple[str, ...]
    files: int
    work: str


COMPOSERS = {
    "Bach": Works(("bach/bwv*.mxl",), 48, r"bach/(bwv\d+)"),
    "Beethoven": Works(("beethoven/opus18*.mxl", "beethoven/opus*/*.mxl"), 12, r"beethoven/(\w+)"),
    "Ciconia": Works(("trecento/PMFC_24*.xml",), 24, r"PMFC_24_(\d+)"),
    "Monteverdi": Works(("monteverdi/madrigal.*.mxl",), 40, r"madrigal\.(\d+\.\d+)"),
    "Mozart": Works(("mozart/*/*.mxl",), 24, r"mozart/(\w+)"),
    "Palestrina": Works(("palestrina/*.krn",), 40, r"!!!OPR:\s*(.+)"),
}
"""Composers of whom the corpus holds several works whose parts stand in one file. Haydn has but two."""

_STRETCHES = 96  # of each composer
_COMPOSER_BARS, _TUNE_BARS = 4, 8
_FEWEST_NOTES = 12
_FEWEST_TUNES = 30


def corpus_folder() -> Path:
    """The folder of music21's corpus.

    Raises:
        DataError: This installation has none.
    """
    found = importlib.util.find_spec("music21")
    folders = found.submodule_search_locations if found is not None else None
    folder = Path(folders[0], "corpus") if folders else Path()
    if not (folder / "ryansMammoth").is_dir():
        raise DataError(
            "The sample of music needs the corpus that comes with music21, which this installation lacks. "
            "Install music21 from PyPI, or give files under data."
        )
    return folder


def tune_files() -> list[Path]:
    """The tunes of Ryan's Mammoth Collection, one a file, by name."""
    return sorted((corpus_folder() / "ryansMammoth").glob("*.abc"))


def corpus_tables(domain: Domain) -> dict[str, Table]:
    """The tables by name."""
    return {"composer": partial(composer, domain), "tune_type": partial(tune_type, domain)}


def composer(domain: Domain) -> Iterator[Example]:
    """As many stretches of four bars by each composer, spread over the works; reading takes half a minute."""
    folder = corpus_folder()
    number = 0
    for name, works in COMPOSERS.items():
        stretches = []
        files = sorted(path for pattern in works.patterns for path in folder.glob(pattern))
        for path in evenly(files, works.files):
            for document in domain.read(path, Report()):
                if "dubium" in document.metadata.get("composer", ""):
                    continue
                where = path.relative_to(folder).as_posix()
                said = re.search(works.work, where) or re.search(works.work, path.read_text("latin-1"))
                assert said is not None, path
                for text in parse(" ".join(document.segments)).segments(_COMPOSER_BARS):
                    if domain.symbols(text) >= _FEWEST_NOTES:
                        stretches.append((text, f"music21:{where}", f"{name}, {said[1].strip()}"))
        for text, source, work in evenly(stretches, _STRETCHES):
            yield Example(str(number), (text,), name, source, {"work": work})
            number += 1


def tune_type(domain: Domain) -> Iterator[Example]:
    """The tunes whose R: field names a dance that at least thirty of them name."""
    tunes = [document for path in tune_files() for document in domain.read(path, Report())]
    types = [document.metadata.get("rhythm", "").lower() for document in tunes]
    counts = Counter(types)
    for number, (document, dance) in enumerate(zip(tunes, types, strict=True)):
        if dance and counts[dance] >= _FEWEST_TUNES:
            text = parse(" ".join(document.segments)).segments(_TUNE_BARS)[0]
            yield Example(str(number), (text,), dance, document.source, {"title": document.metadata.get("title", "")})
