"""Proteins: one document a protein, tokens by residue or by byte-pair encoding, from every usual file of proteins."""

from domains.protein.options import ProteinOptions
from domains.protein.plugin import RARE, STANDARD, Protein

__all__ = ["RARE", "STANDARD", "Protein", "ProteinOptions"]
