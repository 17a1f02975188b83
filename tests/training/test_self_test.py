from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seqbert.training.self_test import one_step, warning_about


class Wrong(TorchDispatchMode):
    """A device whose kernel of one operator gives something else."""

    def __init__(self, operator: str, factor: float) -> None:
        super().__init__()
        self.operator, self.factor = operator, factor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ != self.operator:
            return given
        return (given[0] * self.factor, *given[1:]) if isinstance(given, tuple) else given * self.factor


def on_a_device(operator: str, factor: float) -> Any:
    def step(device: torch.device) -> Any:
        if device.type == "cpu":
            return one_step(device)
        with Wrong(operator, factor):
            return one_step(torch.device("cpu"))

    return step


@pytest.mark.parametrize(
    ("operator", "factor"),
    [("addmm", 1.05), ("native_layer_norm", 1.03), ("gelu_backward", 0.9), ("gelu", float("nan"))],
)
def test_row76_a_device_that_computes_wrongly_is_named_before_a_run_trusts_it(operator: str, factor: float) -> None:
    told = warning_about(torch.device("mps"), on_a_device(operator, factor))
    assert told is not None and "The device mps does not compute what the CPU does" in told


def test_row76_a_device_that_only_rounds_otherwise_is_not() -> None:
    assert warning_about(torch.device("mps"), on_a_device("addmm", 1 + 1e-4)) is None
    assert warning_about(torch.device("cpu")) is None


def test_row76_a_run_tells_what_the_test_of_its_device_found(tmp_path, monkeypatch) -> None:
    from runs import settings

    import seqbert
    from seqbert.training import pretrain

    monkeypatch.setattr(pretrain, "warning_about", lambda device: f"The device {device} is off.")
    result = seqbert.pretrain(settings(tmp_path, training={"steps": 1}))
    assert "The device cpu is off." in result.notes


@pytest.mark.gpu
def test_row76_a_gpu_computes_what_the_cpu_does() -> None:
    assert warning_about(torch.device("cuda")) is None
