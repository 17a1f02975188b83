"""Writes docs/faults.md: which reported faults are ruled out here, and by which tests.

Run it as ``make faults``. It runs every test whose name begins with ``test_rowNN_`` and sets its outcome
beside row NN of ``docs/faults.toml``.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
SOURCE = CHECKOUT / "docs" / "faults.toml"
PAGE = CHECKOUT / "docs" / "faults.md"
NAME = re.compile(r"test_row(\d+)_")

INTRODUCTION = """\
# Faults that people met in tools like this one

Each was reported in public against a tool that does part of what seqbert does. A test named after its row
shows the right behaviour here; a row without one says why it cannot arise. Written by `make faults`.
"""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One reported fault.

    Attributes:
        row: Its number, which tests carry in their names.
        area: The part of the work that it concerns.
        fault: What happened, in a sentence or two.
        threads: The addresses of the reports.
        why: For a fault that the design leaves no room for: how.
    """

    row: int
    area: str
    fault: str
    threads: tuple[str, ...]
    why: str = ""


def read_faults() -> list[Fault]:
    """The faults of docs/faults.toml, by row."""
    entries = tomllib.loads(SOURCE.read_text(encoding="utf-8"))["fault"]
    faults = [Fault(**{**entry, "threads": tuple(entry["threads"])}) for entry in entries]
    return sorted(faults, key=lambda fault: fault.row)


def tests_by_row() -> dict[int, list[str]]:
    """The tests named after each row, as ``path::function``, found without importing them."""
    found = defaultdict(list)
    for path in sorted((CHECKOUT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and (match := NAME.match(node.name)):
                found[int(match[1])].append(f"{path.relative_to(CHECKOUT).as_posix()}::{node.name}")
    return dict(found)


class Outcomes:
    """A pytest plugin that keeps how each test ended; the cases of a parametrised test count together."""

    def __init__(self) -> None:
        self.by_test: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts the call, or the phase before it that kept the test from being called."""
        if report.when == "call" or report.outcome != "passed":
            self.by_test[re.sub(r"(::\w+)\[.*", r"\1", report.nodeid)][report.outcome] += 1


def run(tests: list[str]) -> dict[str, str]:
    """Runs tests and gives the outcome of each: passed, skipped or failed."""
    outcomes = Outcomes()
    pytest.main(["--quiet", "--no-header", f"--rootdir={CHECKOUT}", *tests], plugins=[outcomes])
    worst_first = ("failed", "skipped", "passed")
    return {test: next((kind for kind in worst_first if outcomes.by_test[test][kind]), "not run") for test in tests}


def page(faults: list[Fault], tests: Mapping[int, list[str]], outcomes: Mapping[str, str]) -> str:
    """The Markdown of docs/faults.md: a table of the faults that have a test or a reason."""
    lines = [INTRODUCTION, "| row | area | fault | reported | tests | result |", "|---|---|---|---|---|---|"]
    for fault in faults:
        named = tests.get(fault.row, [])
        if not named and not fault.why:
            continue
        reported = ", ".join(f"[{_thread(url)}]({url})" for url in fault.threads)
        shown = "<br>".join(f"`{test}`" for test in named) or fault.why
        results = Counter(outcomes[test] for test in named)
        result = ", ".join(f"{count} {outcome}" for outcome, count in sorted(results.items())) or "by design"
        lines.append(f"| {fault.row} | {fault.area} | {fault.fault} | {reported} | {shown} | {result} |")
    return "\n".join(lines) + "\n"


def _thread(url: str) -> str:
    _, owner, repository, _, number = url.rstrip("/").rsplit("/", 4)
    return f"{owner}/{repository}#{number}"


def main() -> int:
    """Runs the tests and writes the page; the exit status is 1 where one did not pass."""
    tests = tests_by_row()
    outcomes = run([test for named in tests.values() for test in named])
    PAGE.write_text(page(read_faults(), tests, outcomes), encoding="utf-8")
    print(f"{PAGE.relative_to(CHECKOUT)}: {Counter(outcomes.values())}")
    return int(any(outcome in ("failed", "not run") for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
