"""Molecules written as SMILES, as a domain of seqbert."""

from seqbert_smiles.domain import Smiles, SmilesOptions

__all__ = ["Smiles", "SmilesOptions"]
