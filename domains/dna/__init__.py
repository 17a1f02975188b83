"""DNA and RNA: a document a contig or region, and tokens by base, k-mer, block or learned word."""

from domains.dna.options import DNAOptions
from domains.dna.plugin import DNA
from domains.dna.strands import AMBIGUOUS, BASES, reverse_complement

__all__ = ["AMBIGUOUS", "BASES", "DNA", "DNAOptions", "reverse_complement"]
