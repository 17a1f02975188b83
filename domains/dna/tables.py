"""Labelled tables of the DNA sample; ``sample/SOURCE.md`` says what the stretches are.

Genes are open reading frames of at least 100 codons, from the first ATG to the stop; none was annotated.

==============  ===========================================================================================
classification  whether 8 codons are the beginning of a gene, its end, or from inside
regression      the share of G and C
tagging         how many bases may stand at each place of a gene without another amino acid: 0, 2 or 4
                (the degeneracy of sites after Li, Wu & Luo 1985)
span            where a stretch between strong pairs would open first: its run of A and T
choice          which of four stretches is the beginning of the gene that follows the bases given
==============  ===========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, product

from domains.tables import Table, by_task, choice, evenly, example, sample_documents
from seqbert.domain import Document, Domain, Example

_GENE = re.compile(r"(?=(ATG(?:(?!TAA|TAG|TGA)[ACGT]{3}){99,}(?:TAA|TAG|TGA)))")
_CODE = dict(
    zip(
        map("".join, product("TCAG", repeat=3)),
        "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
        strict=True,
    )
)  # the genetic code, as NCBI's table 11 orders it
_OPENING = re.compile(r"[GC]{5,12}([AT]{3,})[GC]{5,12}")

_END = 24
_STRETCH = 40
_PART = 36
_MOST = 900
_UPSTREAM, _BEGINNING = 15, 21


def sample_tables(domain: Domain) -> dict[str, Table]:
    """The tables by the name of the task that each is for."""
    return by_task(domain, classification, regression, tagging, span, choices)


def degeneracy(codon: str) -> list[str]:
    """For each base of a codon, whether none (0), some (2) or all (4) of the bases there give its amino acid.

    The third base of isoleucine's codons, of which three give it, counts as 2, as in Li, Wu & Luo (1985).

    >>> degeneracy("GGA"), degeneracy("TTA"), degeneracy("ATG")
    (['0', '0', '4'], ['2', '0', '2'], ['0', '0', '0'])
    """
    same = [
        sum(_CODE[codon[:place] + base + codon[place + 1 :]] == _CODE[codon] for base in "ACGT") for place in range(3)
    ]
    return [{1: "0", 4: "4"}.get(bases, "2") for bases in same]


def classification(domain: Domain) -> Iterator[Example]:
    """The first eight codons of a gene, eight from its middle, and the last eight with the stop."""
    number = count()
    for document, gene in _genes(domain):
        middle = len(gene) // 6 * 3
        parts = {"beginning": gene[:_END], "inside": gene[middle : middle + _END], "end": gene[-_END:]}
        for label, stretch in parts.items():
            yield example(next(number), document, (stretch,), label)


def regression(domain: Domain) -> Iterator[Example]:
    """Stretches of 40 bases from anywhere in the sample."""
    stretches = [
        (document, text) for document in sample_documents(domain) for text in _cut(document.segments[0], _STRETCH)
    ]
    for number, (document, text) in enumerate(evenly(stretches, _MOST)):
        share = (text.count("G") + text.count("C")) / len(text)
        yield example(number, document, (text,), share)


def tagging(domain: Domain) -> Iterator[Example]:
    """Stretches of 12 codons in their frame, a label a base."""
    stretches = [(document, stretch) for document, gene in _genes(domain) for stretch in _cut(gene, _PART)]
    for number, (document, stretch) in enumerate(evenly(stretches, _MOST)):
        codons = (stretch[place : place + 3] for place in range(0, _PART, 3))
        labels = [label for codon in codons for label in degeneracy(codon)]
        yield example(number, document, (stretch,), labels)


def span(domain: Domain) -> Iterator[Example]:
    """Contexts of one run of A and T between runs of G and C. The question is W: A or T, in IUPAC's code."""
    number = count()
    for document in sample_documents(domain):
        for match in _OPENING.finditer(document.segments[0]):
            first = match.start()
            yield example(next(number), document, ("W", match[0]), [(match.start(1) - first, match.end(1) - first)])


def choices(domain: Domain) -> Iterator[Example]:
    """Four stretches of 7 codons, one of which begins the gene that the context of 15 bases leads up to."""
    number = count()
    for document, gene in _genes(domain):
        start = document.segments[0].index(gene)
        upstream = document.segments[0][max(start - _UPSTREAM, 0) : start]
        inner = [stretch for stretch in _cut(gene, _BEGINNING)[1:] if not stretch.startswith("ATG")]
        if len(upstream) == _UPSTREAM:
            yield choice(next(number), document, upstream, gene[:_BEGINNING], evenly(inner, 3))


def _genes(domain: Domain) -> Iterator[tuple[Document, str]]:
    """The open reading frames of each stretch, each from its first ATG."""
    for document in sample_documents(domain):
        stops = set()
        for match in _GENE.finditer(document.segments[0]):
            if match.end(1) not in stops:
                stops.add(match.end(1))
                yield document, match[1]


def _cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text) - size + 1, size)]
