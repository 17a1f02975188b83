"""What the tests of the benchmarks share: a benchmark is a file, and no part of a package."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def load_benchmark(checkout: Path) -> Callable[[str], ModuleType]:
    """A function that gives a benchmark by name, as a module of its own for each call."""
    folder = checkout / "benchmarks"

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        sys.path.insert(0, str(folder))  # one may import another that lies beside it
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(folder))
        return module

    return load
