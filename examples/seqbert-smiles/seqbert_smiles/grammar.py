"""The symbols of a SMILES string, and what makes a string one.

The symbols are those of Schwaller et al. 2019, "Molecular Transformer" (doi 10.1021/acscentsci.9b00576): an
atom with all that its brackets hold is one symbol, and so is each bond, branch, ring closure and dot.
Brackets are read more narrowly than there, by the OpenSMILES grammar (http://opensmiles.org, section 3.1):
``[NH4+]`` is an atom, ``[MASK]`` is none.
"""

from __future__ import annotations

import re

BRACKET_ATOM = (
    r"\[[0-9]*(?:[A-Z][a-z]?|[a-z][a-z]?|\*)(?:@[A-Z0-9@]*)?(?:H[0-9]?)?(?:\++[0-9]*|-+[0-9]*)?(?::[0-9]+)?\]"
)
SYMBOL = rf"{BRACKET_ATOM}|Br|Cl|[BCNOPSFIbcnops*]|%[0-9]{{2}}|[0-9]|[-=#$:~/\\().>@?+]"
"""A regular expression for one symbol; Rust's and Python's engines read it alike."""

_SYMBOL = re.compile(SYMBOL)
_RING_CLOSURE = re.compile(r"%[0-9]{2}|[0-9]")


def symbols(text: str) -> list[str]:
    """The symbols in ``text``, from left to right; what is none of them is passed over.

    >>> symbols("C[C@H](N)C(=O)[O-]")
    ['C', '[C@H]', '(', 'N', ')', 'C', '(', '=', 'O', ')', '[O-]']
    >>> symbols("BrCCl")
    ['Br', 'C', 'Cl']
    """
    return _SYMBOL.findall(text)


def fault(text: str) -> str | None:
    """Why ``text`` is no SMILES string, or None where nothing speaks against it.

    Symbols, branches and ring closures are checked; whether the molecule could exist is not.

    >>> fault("c1ccccc1")
    >>> fault("c1ccccc")
    'a ring that is not closed'
    >>> fault("C(C")
    'a branch that is not closed'
    >>> fault("ethanol")
    'not SMILES'
    """
    found = symbols(text)
    if not found or sum(map(len, found)) != len(text):
        return "not SMILES"
    depth = 0
    open_rings: set[str] = set()
    for symbol in found:
        if symbol == "(":
            depth += 1
        elif symbol == ")":
            depth -= 1
            if depth < 0:
                return "a branch that is not opened"
        elif _RING_CLOSURE.fullmatch(symbol):
            open_rings ^= {symbol}
    if depth:
        return "a branch that is not closed"
    return "a ring that is not closed" if open_rings else None
