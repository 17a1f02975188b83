"""How long a run is: so many steps, or as many as a number of minutes allows."""

from __future__ import annotations

import math
from array import array
from time import monotonic

SETTLED = 4
"""Steps after which the pace is known: the first ones of a sitting are slow."""

FIRST_GUESS = 10_000
"""Steps that a run of so many minutes is taken to have before it until then; its warm-up has hardly begun."""


class Budget:
    """How many steps a run has, planned anew before each of them where it has minutes.

    What is left of the minutes, less the validations and checkpoints that lie in it, is divided by the time of a step
    in the later half of the steps so far. So the plan follows a machine that becomes slower or faster, and batches that
    grow; and the schedule, a function of the step and of the planned number, has decayed when the time is over.

    Args:
        steps: Most steps; None: any number, where there are minutes.
        minutes: How long the run trains, validations and checkpoints included; None: as long as its steps take.
        evaluate_every: Steps between two validations; there is one at the end too.
        checkpoint_every: Steps between two checkpoints.
        step: Steps that are done.
        spent: Seconds that they took.
        planned: How many there were to be when the run was left; None: not known, or it has other minutes now.
        costs: Seconds of a step, a validation and a checkpoint when it was left; None: not known.
    """

    def __init__(
        self,
        steps: int | None,
        minutes: float | None,
        evaluate_every: int,
        checkpoint_every: int,
        step: int = 0,
        spent: float = 0.0,
        planned: int | None = None,
        costs: list[float] | None = None,
    ) -> None:
        assert steps is not None or minutes is not None
        self._most, self._minutes = steps, minutes
        self._evaluate_every, self._checkpoint_every = evaluate_every, checkpoint_every
        pace, self._evaluation, self._saving = costs or (0.0, 0.0, 0.0)
        self._earlier = pace or (spent / step if step and spent else None)
        self._busy = array("d", [0.0])  # seconds that the steps of this sitting took, summed up
        self._spent_before, self._begun = spent, monotonic()
        self._lap = self._begun
        self.planned = self.plan(step) if planned is None or minutes is None else planned

    @property
    def spent(self) -> float:
        """Seconds that the run has trained, validations and checkpoints included."""
        return self._spent_before + monotonic() - self._begun

    @property
    def costs(self) -> list[float]:
        """Seconds of a step, 0 where that is not known, of a validation and of a checkpoint."""
        return [self._pace() or 0.0, self._evaluation, self._saving]

    def left(self, step: int) -> float:
        """Seconds that it is going to train after so many steps."""
        if self._minutes is not None:
            return max(0.0, 60 * self._minutes - self.spent)
        done = len(self._busy) - 1
        return (monotonic() - self._begun) / max(1, done) * (self.planned - step)

    def evaluated(self) -> None:
        """What was done since the last note was a validation, with a checkpoint where it was the best."""
        self._evaluation = self._since_last_note()

    def saved(self) -> None:
        """It was a checkpoint."""
        self._saving = self._since_last_note()

    def stepped(self) -> None:
        """It was a step, with the wait for its batch."""
        self._busy.append(self._busy[-1] + self._since_last_note())

    def plan(self, step: int) -> int:
        """How many steps the run has, of which so many are done; at least one more."""
        if self._minutes is None:
            assert self._most is not None
            return self._most
        pace, left = self._pace(), 60 * self._minutes - self.spent
        if pace is None and left > 0:
            return self._most or step + FIRST_GUESS
        if pace is None:
            return step + 1
        low, high = step + 1, step + 1 + max(0, int(left / pace))
        if self._most is not None:
            high = max(low, min(high, self._most))
        while low < high:  # the most steps that fit
            middle = (low + high + 1) // 2
            if self._cost(step, middle, pace) <= left:
                low = middle
            else:
                high = middle - 1
        return low

    def _pace(self) -> float | None:
        """Seconds of a step, in the later half of this sitting's; None where it is not known yet."""
        done = len(self._busy) - 1
        if done < SETTLED:
            return self._earlier
        return max(1e-9, (self._busy[done] - self._busy[done // 2]) / (done - done // 2))

    def _cost(self, step: int, steps: int, pace: float) -> float:
        """Seconds from a step to the end of the run, if it has so many steps."""

        def between(every: int) -> int:
            return (steps - 1) // every - step // every

        evaluations = between(self._evaluate_every) + 1
        # With a validation a checkpoint is part of what that takes.
        checkpoints = between(self._checkpoint_every) - between(math.lcm(self._checkpoint_every, self._evaluate_every))
        return (steps - step) * pace + evaluations * self._evaluation + checkpoints * self._saving

    def _since_last_note(self) -> float:
        last, self._lap = self._lap, monotonic()
        return self._lap - last
