"""Proteins drawn at random, and copies of them that have diverged."""

import numpy as np

# Swiss-Prot, all entries, in percent (UniProt release statistics), in the order of the letters below.
RESIDUES = "ARNDCQEGHILKMFPSTWYV"
SHARES = np.array([8.3, 5.5, 4.1, 5.5, 1.4, 3.9, 6.7, 7.1, 2.3, 5.9, 9.7, 5.8, 2.4, 3.9, 4.7, 6.6, 5.4, 1.1, 2.9, 6.9])


def protein(rng: np.random.Generator, length: int = 300) -> str:
    return "".join(rng.choice(list(RESIDUES), length, p=SHARES / SHARES.sum()))


def homolog(rng: np.random.Generator, text: str, identity: float, indels: float = 0.01) -> str:
    """A copy in which each residue is kept with that probability, else another; gaps of one or two open at a rate."""
    out: list[str] = []
    for letter in text:
        if rng.random() < indels:
            if rng.random() < 0.5:
                continue
            out += map(str, rng.choice(list(RESIDUES), rng.integers(1, 3)))
        others = [other for other in RESIDUES if other != letter]
        out.append(letter if rng.random() < identity else str(rng.choice(others)))
    return "".join(out)
