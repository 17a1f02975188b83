"""Learning-rate schedules: a factor for each step, with no state."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from seqbert.errors import ConfigError


@dataclasses.dataclass
class LinearConfig:
    """Linear warm-up, then linear decay to 0 (Devlin et al. 2019, appendix A.2)."""

    name: Literal["linear"] = "linear"
    """The schedule."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises; a value of 1 or more is a number of steps."""
    final: float = 0.0
    """What the rate falls to, relative to the highest."""

    def __post_init__(self) -> None:
        _check(self.warmup, self.final)

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by in ``step``, counted from 0, of ``steps``.

        >>> schedule = LinearConfig(warmup=0.5)
        >>> [schedule.factor(step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        warmup = _steps_of(self.warmup, steps)
        left = _left(step, steps, steps - warmup)
        return min(_rising(step, warmup), self.final + (1 - self.final) * left)


@dataclasses.dataclass
class CosineConfig:
    """Linear warm-up, then half a cosine down (Loshchilov and Hutter 2017, *SGDR*, equation 5, without restarts)."""

    name: Literal["cosine"] = "cosine"
    """The schedule."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises; a value of 1 or more is a number of steps."""
    final: float = 0.0
    """What the rate falls to, relative to the highest."""

    def __post_init__(self) -> None:
        _check(self.warmup, self.final)

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by in ``step``, counted from 0, of ``steps``.

        >>> schedule = CosineConfig(warmup=0)
        >>> [round(schedule.factor(step, 4), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        """
        warmup = _steps_of(self.warmup, steps)
        left = _left(step, steps, steps - warmup)
        return min(_rising(step, warmup), self.final + (1 - self.final) * math.sin(math.pi / 2 * left) ** 2)


@dataclasses.dataclass
class WSDConfig:
    """Warm-up, stable, decay: linear warm-up, a long constant stretch, a short decay (Hu et al. 2024, section 4.2).

    With the linear shape it is the trapezoid (Zhai et al. 2022, *Scaling Vision Transformers*, section 3.4).
    """

    name: Literal["wsd"] = "wsd"
    """The schedule."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises; a value of 1 or more is a number of steps."""
    decay: float = 0.2
    """Share of the steps over which the rate falls at the end; a value of 1 or more is a number of steps."""
    shape: Literal["1-sqrt", "linear"] = "1-sqrt"
    """How it falls: by the root of how much of the decay is over (Hägele et al. 2024, section 3), or in a straight
    line, which makes a trapezoid."""
    final: float = 0.0
    """What the rate falls to, relative to the highest."""

    def __post_init__(self) -> None:
        _check(self.warmup, self.final)
        if self.decay < 0:
            raise ConfigError(f"decay is {self.decay}, and it cannot be below 0.")
        if self.warmup < 1 and self.decay < 1 and self.warmup + self.decay > 1:
            raise ConfigError(
                f"decay ({self.decay}) and warmup ({self.warmup}) are shares of one run: at most 1 in all."
            )

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by in ``step``, counted from 0, of ``steps``.

        >>> schedule = WSDConfig(warmup=0, decay=0.5, shape="linear")
        >>> [schedule.factor(step, 8) for step in range(8)]
        [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        warmup = _steps_of(self.warmup, steps)
        left = _left(step, steps, min(_steps_of(self.decay, steps), steps - warmup))
        if self.shape == "1-sqrt":
            left = 1 - math.sqrt(1 - left)
        return min(_rising(step, warmup), self.final + (1 - self.final) * left)


@dataclasses.dataclass
class ConstantConfig:
    """Linear warm-up, then the highest rate to the end."""

    name: Literal["constant"] = "constant"
    """The schedule."""
    warmup: float = 0.05
    """Share of the steps over which the rate rises; a value of 1 or more is a number of steps."""

    def __post_init__(self) -> None:
        _check(self.warmup, 1.0)

    def factor(self, step: int, steps: int) -> float:
        """What the learning rate is multiplied by in ``step``, counted from 0, of ``steps``.

        >>> schedule = ConstantConfig(warmup=2)
        >>> [schedule.factor(step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 1.0]
        """
        return min(1.0, _rising(step, _steps_of(self.warmup, steps)))


ScheduleConfig = LinearConfig | CosineConfig | WSDConfig | ConstantConfig
"""Any of the schedules."""


def _steps_of(length: float, steps: int) -> float:
    """A share of the steps, or a number of them, in steps."""
    return length * steps if length < 1 else length


def _rising(step: int, warmup: float) -> float:
    return (step + 1) / warmup if warmup else 1.0


def _left(step: int, steps: int, decay: float) -> float:
    """How much of a decay over the last ``decay`` steps lies ahead, from 1 to 0; all of it before the decay."""
    return max(0.0, min(1.0, (steps - step) / max(1.0, decay)))


def _check(warmup: float, final: float) -> None:
    if warmup < 0:
        raise ConfigError(f"warmup is {warmup}, and it cannot be below 0.")
    if not 0 <= final <= 1:
        raise ConfigError(f"final is {final}; it is at least 0 and at most 1.")
