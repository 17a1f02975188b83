"""Labelled tables of the protein sample; ``sample/SOURCE.md`` says what the proteins are.

==============  ===========================================================================================
classification  the family of a stretch from the beginning of a protein: one of nine
regression      the mean hydropathy of a stretch (GRAVY; Kyte & Doolittle 1982)
tagging         for each residue whether it and its two neighbours are, in the mean, hydrophobic or hydrophilic
span            two cysteines stand in the context: the loop that a disulfide bridge between them would close
choice          which of four stretches begins the protein whose following residues are given
==============  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from domains.tables import Table, by_task, choice, evenly, example, sample_documents
from seqbert.domain import Document, Domain, Example

# Kyte & Doolittle (1982), A simple method for displaying the hydropathic character of a protein, table 2.
HYDROPATHY: Mapping[str, float] = {
    **{"I": 4.5, "V": 4.2, "L": 3.8, "F": 2.8, "C": 2.5, "M": 1.9, "A": 1.8, "G": -0.4, "T": -0.7, "S": -0.8},
    **{"W": -0.9, "Y": -1.3, "P": -1.6, "H": -3.2, "E": -3.5, "Q": -3.5, "D": -3.5, "N": -3.5, "K": -3.9, "R": -4.5},
}
"""How much each residue avoids water."""

_STRETCH = 30
_MOST = 1200
_AROUND = 1  # residues on each side that count for the hydropathy of a place
_LOOP_CONTEXT = 40
_SHORTEST_LOOP, _LONGEST_LOOP = 4, 30
_BEGINNING, _SHIFTS = 24, 6
_CHOICE = 20


def sample_tables(domain: Domain) -> dict[str, Table]:
    """The tables by the name of the task that each is for."""
    return by_task(domain, classification, regression, tagging, span, choices)


def hydropathy(stretch: str) -> float:
    """The mean hydropathy of residues, the GRAVY of Kyte & Doolittle (1982).

    >>> hydropathy("MA"), hydropathy("KR")
    (1.85, -4.2)
    """
    return sum(HYDROPATHY[residue] for residue in stretch) / len(stretch)


def classification(domain: Domain) -> Iterator[Example]:
    """Six stretches of 24 residues of each protein, from its first six residues on, with its recommended name.

    They overlap, so that a random split has parts of one stretch on both sides; group by "group" to avoid it.
    """
    number = count()
    for document in sample_documents(domain):
        family = document.metadata["description"].removesuffix(" (Fragment)")
        for start in range(_SHIFTS):
            yield example(next(number), document, (document.segments[0][start : start + _BEGINNING],), family)


def regression(domain: Domain) -> Iterator[Example]:
    """Stretches of 30 residues, with their mean hydropathy."""
    for number, (document, stretch) in enumerate(evenly(_stretches(domain), _MOST)):
        yield example(number, document, (stretch,), hydropathy(stretch))


def tagging(domain: Domain) -> Iterator[Example]:
    """The same stretches, with a label a residue; at the ends two residues count."""
    for number, (document, stretch) in enumerate(evenly(_stretches(domain), _MOST)):
        around = [stretch[max(place - _AROUND, 0) : place + _AROUND + 1] for place in range(len(stretch))]
        labels = ["hydrophobic" if hydropathy(residues) > 0 else "hydrophilic" for residues in around]
        yield example(number, document, (stretch,), labels)


def span(domain: Domain) -> Iterator[Example]:
    """Contexts of 40 residues, two for each loop between two cysteines, which belong to it. The question is CXC."""
    number = count()
    for document in sample_documents(domain):
        (protein,) = document.segments
        cysteines = [-1, *(place for place, residue in enumerate(protein) if residue == "C"), len(protein)]
        for before, first, second, after in zip(cysteines, cysteines[1:], cysteines[2:], cysteines[3:], strict=False):
            if not _SHORTEST_LOOP <= second + 1 - first <= _LONGEST_LOOP:
                continue
            earliest = max(before + 1, second + 1 - _LOOP_CONTEXT)
            latest = min(first, after - _LOOP_CONTEXT)
            if latest < earliest:
                continue
            for part in range(2):
                index = next(number)
                start = earliest + (index // 2 * 7 + part * 5) % (latest + 1 - earliest)  # no usual place
                yield example(
                    index,
                    document,
                    ("CXC", protein[start : start + _LOOP_CONTEXT]),
                    [(first - start, second + 1 - start)],
                )


def choices(domain: Domain) -> Iterator[Example]:
    """Four stretches of 20 residues, one of which begins the protein; three questions a protein."""
    number = count()
    for document in sample_documents(domain):
        (protein,) = document.segments
        if not protein.startswith("M"):  # a fragment
            continue
        inner = [protein[place : place + _CHOICE] for place in range(2 * _CHOICE, len(protein) - _CHOICE + 1, _CHOICE)]
        inner = evenly([stretch for stretch in inner if stretch[0] != "M"], 9)
        for wrong in (inner[:3], inner[3:6], inner[6:9]):
            if len(wrong) == 3:
                yield choice(next(number), document, protein[_CHOICE : 2 * _CHOICE], protein[:_CHOICE], wrong)


def _stretches(domain: Domain) -> list[tuple[Document, str]]:
    """Each protein cut into stretches of 30 residues; what is left at its end is not used."""
    return [
        (document, document.segments[0][start : start + _STRETCH])
        for document in sample_documents(domain)
        for start in range(0, len(document.segments[0]) - _STRETCH + 1, _STRETCH)
    ]
