import math

import pytest

from seqbert.errors import ConfigError
from seqbert.training.schedules import ConstantConfig, CosineConfig, LinearConfig, ScheduleConfig, WSDConfig

DECAYING = [LinearConfig(), CosineConfig(), WSDConfig(), WSDConfig(shape="linear")]


def factors(schedule: ScheduleConfig, steps: int = 1000) -> list[float]:
    return [schedule.factor(step, steps) for step in range(steps)]


def test_the_linear_schedule_rises_over_the_warm_up_and_ends_near_0() -> None:
    found = factors(LinearConfig(warmup=0.1))
    assert found[0] == 0.01 and found[99] == 1.0
    assert max(found) == 1.0 and 0 < found[-1] < 0.002
    assert LinearConfig(warmup=5).factor(4, 1000) == 1.0


def test_the_cosine_is_half_way_down_in_the_middle_of_the_decay() -> None:
    """Half of 1 + cos(pi times how much of the decay is over), Loshchilov and Hutter 2017, equation 5."""
    found = factors(CosineConfig(warmup=200))
    assert found[200] == 1.0 and found[600] == pytest.approx(0.5)
    for step in (250, 500, 999):
        assert found[step] == pytest.approx((1 + math.cos(math.pi * (step - 200) / 800)) / 2)


def test_wsd_is_flat_until_the_decay_and_falls_by_the_root_of_what_is_over_of_it() -> None:
    """1 - sqrt((n - N + N_decay) / N_decay), Hägele et al. 2024, section 3."""
    found = factors(WSDConfig(warmup=0.1, decay=0.2))
    assert set(found[99:801]) == {1.0}
    for step in (801, 850, 900, 999):
        assert found[step] == pytest.approx(1 - math.sqrt((step - 800) / 200))


def test_the_trapezoid_is_wsd_with_straight_sides() -> None:
    found = factors(WSDConfig(warmup=100, decay=200, shape="linear"))
    assert set(found[99:801]) == {1.0}
    assert found[49] == 0.5 and found[900] == 0.5 and found[999] == pytest.approx(1 / 200)


def test_the_constant_schedule_stays_where_its_warm_up_ends() -> None:
    assert set(factors(ConstantConfig(warmup=0.1))[99:]) == {1.0}


@pytest.mark.parametrize("schedule", DECAYING, ids=lambda schedule: f"{schedule.name} {getattr(schedule, 'shape', '')}")
@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_a_rate_is_never_0_nor_above_the_highest_and_falls_after_its_peak(schedule, steps: int) -> None:
    found = factors(schedule, steps)
    peak = found.index(max(found))
    assert all(0 < factor <= 1 for factor in found)
    assert found[: peak + 1] == sorted(found[: peak + 1])
    assert found[peak:] == sorted(found[peak:], reverse=True)


@pytest.mark.parametrize("kind", [LinearConfig, CosineConfig, WSDConfig])
def test_the_rate_falls_to_the_final_share_of_the_highest(kind) -> None:
    found = factors(kind(final=0.1))
    assert found[-1] == pytest.approx(0.1, abs=0.003) and min(found[100:]) >= 0.1 and max(found) == 1.0


def test_a_decay_that_is_longer_than_what_the_warm_up_leaves_begins_after_it() -> None:
    found = factors(WSDConfig(warmup=50, decay=500, shape="linear"), steps=100)
    assert found[49] == 1.0 and found[50:] == sorted(found[50:], reverse=True)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (LinearConfig, {"warmup": -0.1}, r"warmup is -0\.1"),
        (ConstantConfig, {"warmup": -1}, "warmup is -1"),
        (CosineConfig, {"final": 1.5}, r"final is 1\.5"),
        (WSDConfig, {"decay": -1}, "decay is -1"),
        (WSDConfig, {"warmup": 0.5, "decay": 0.6}, "shares of one run"),
    ],
)
def test_numbers_that_no_schedule_can_follow_are_refused(kind, fields, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**fields)
