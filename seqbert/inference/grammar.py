"""Which kinds of tokens may stand behind each other, where a domain says so: filled tokens keep to it."""

from __future__ import annotations

import dataclasses

import numpy as np

from seqbert.domain import Domain


@dataclasses.dataclass(frozen=True, slots=True)
class Grammar:
    """A first-order rule over kinds of tokens.

    Attributes:
        kind: Number of the kind of each token, ``[vocabulary]``.
        follows: Whether the second kind may stand behind the first, ``[kinds, kinds]``.
        begins: Whether a text may begin with each kind, ``[kinds]``.
        framing: Whether each kind makes a unit what it is, so that it is neither hidden nor filled in, ``[kinds]``.
    """

    kind: np.ndarray
    follows: np.ndarray
    begins: np.ndarray
    framing: np.ndarray

    @classmethod
    def of(cls, domain: Domain) -> Grammar | None:
        """The rule of a domain, whose tokenizer is in use; None where it has none."""
        rules, frame, first = domain.follows(), domain.frame(), domain.begins()
        if not rules and not frame and not first:
            return None
        spelled = domain.token_kinds()
        names = sorted({*spelled, *frame})
        number = {name: place for place, name in enumerate(names)}
        follows = np.ones((len(names), len(names)), bool)
        for name, behind in rules.items():
            if name in number:
                follows[number[name]] = [other in behind for other in names]
        kind = np.array([number[name] for name in spelled])
        begins, framing = (np.array([name in chosen for name in names]) for chosen in (first or {*names}, frame))
        return cls(kind, follows, begins, framing)

    def frames(self, ids: np.ndarray) -> np.ndarray:
        """Whether each token is part of what makes its unit that unit, ``[tokens]``."""
        return np.asarray(self.framing[self.kind[ids]])

    def fitting(self, ids: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Which tokens may be put in each open place so that the rest can still be filled, ``[places, vocabulary]``.

        A kind fits where the rule leads to it from the token before the open stretch, and from it to the token behind
        the stretch; at the end of the text, to that which the text begins with. Where nothing fits everything does.

        Args:
            ids: The tokens; what stands at open places is not looked at.
            places: The open places, rising.
        """
        kinds = np.ones((len(places), len(self.framing)), bool)
        breaks = np.flatnonzero(np.diff(places) != 1) + 1
        low = 0
        for part in np.split(places, breaks):
            before = self.kind[ids[part[0] - 1]] if part[0] else None
            behind = self.kind[ids[(part[-1] + 1) % len(ids)]] if 0 not in part else None
            kinds[low : low + len(part)] = self._fitting_kinds(len(part), before, behind)
            low += len(part)
        return np.asarray(kinds[:, self.kind])

    def _fitting_kinds(self, length: int, before: int | None, behind: int | None) -> np.ndarray:
        """Kinds that fit at each of so many places between two kinds, ``[length, kinds]``."""
        own = ~self.framing
        reached = np.empty((length, len(own)), bool)
        reached[0] = own if before is None else own & self.follows[before]
        for place in range(1, length):
            reached[place] = own & self.follows[reached[place - 1]].any(axis=0)
        leading = np.empty_like(reached)
        leading[-1] = own if behind is None else own & self.follows[:, behind]
        for place in reversed(range(length - 1)):
            leading[place] = own & self.follows[:, leading[place + 1]].any(axis=1)
        found = reached & leading
        return found if found.any(axis=1).all() else np.ones_like(found)
