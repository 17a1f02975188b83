"""Learning-rate schedules: a factor for each step, with no state."""

from __future__ import annotations

import dataclasses
from typing import Literal

from seqbert.errors import ConfigError


@dataclasses.dataclass
class LinearConfig:
    """Linear warm-up, then linear decay to 0 (Devlin et al. 2019, appendix A.2)."""

    name: Literal["linear"] = "linear"
    """The schedule."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises; a value of 1 or more is a number of steps."""

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ConfigError(f"warmup is {self.warmup}, and it cannot be below 0.")

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by in ``step``, counted from 0, of ``steps``.

        >>> schedule = LinearConfig(warmup=0.5)
        >>> [schedule.factor(step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        warmup = self.warmup * steps if self.warmup < 1 else self.warmup
        rising = (step + 1) / warmup if warmup else 1.0
        falling = (steps - step) / max(1.0, steps - warmup)
        return max(0.0, min(1.0, rising, falling))
