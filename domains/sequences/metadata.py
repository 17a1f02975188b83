"""What the formats say about a record, in the same words whatever the format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

METADATA: Mapping[str, str] = {
    "accession": "the first accession, where the format tells one apart from the name",
    "entry": "UniProt's name of the entry, such as TPA_HUMAN",
    "organism": "its scientific name, without the common one",
    "taxon": "its number in NCBI's taxonomy",
    "superkingdom": "the first rank of its lineage",
    "genus": "the last rank of its lineage, where the organism is named by it",
    "gene": "the gene's name",
    "family": "UniProt's protein family, or the family of a Stockholm alignment",
    "family_name": "the identifier of a Stockholm alignment",
    "keywords": "the first 500 characters of its keywords",
    "molecule": "the type of molecule, such as mRNA",
    "division": "the division of GenBank or EMBL",
    "declared_length": "how many letters it says to have, where it has another number",
}
"""What may be known of a record besides name and description; which of it is, depends on the format."""

_EVIDENCE = re.compile(r"\s*\{(?:ECO|PubMed|UniProtKB)[^{}]*\}")
_FAMILY = re.compile(r"Belongs to the (.+?)\.+(?:\s|$)")
_STRAIN = re.compile(r"(?:strain|isolate|serotype|serovar|subtype|biovar|pathovar|type)\b")
_MOST_KEYWORDS = 500


def family_of(similarity: str) -> str:
    """The family of a protein out of what UniProt says about its likeness to others; "" where it says none.

    >>> family_of("Belongs to the peptidase S1 family. Kallikrein subfamily.")
    'peptidase S1 family'
    """
    found = _FAMILY.search(without_evidence(similarity))
    return found[1] if found else ""


def lineage_metadata(lineage: list[str], organism: str) -> dict[str, str]:
    """What of a lineage is good to group records by: its first rank, and its last where it is the genus."""
    found = {}
    if lineage:
        found["superkingdom"] = lineage[0]
        if organism.startswith(lineage[-1].split()[0]):
            found["genus"] = lineage[-1].split()[0]
    return found


def without_common_name(organism: str) -> str:
    """An organism as UniProt's FASTA headers write it.

    >>> without_common_name("Oryza sativa subsp. japonica (Rice).")
    'Oryza sativa subsp. japonica'
    >>> without_common_name("Pseudomonas sp. (strain C18).")
    'Pseudomonas sp. (strain C18)'
    """
    organism = organism.strip().removesuffix(".").strip()
    while organism.endswith(")") and " (" in organism:
        before, _, within = organism.rpartition(" (")
        if _STRAIN.match(within):
            break
        organism = before.strip()
    return organism


def kept(**metadata: str) -> dict[str, str]:
    """The metadata that says something."""
    return {key: value for key, value in metadata.items() if value and value != "."}


def without_evidence(text: str) -> str:
    """A value of UniProt's without the codes of what it rests on.

    >>> without_evidence("doxA {ECO:0000303|PubMed:8226631}")
    'doxA'
    """
    return _EVIDENCE.sub("", text).strip()


def joined(keywords: Iterable[str]) -> str:
    """Keywords as one value, which is cut where there are very many."""
    return "; ".join(filter(None, keywords))[:_MOST_KEYWORDS]
