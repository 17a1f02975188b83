import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

# The areas that the framework answers for: each of their rows must be ruled out.
SPINE = {"mlm", "nsp", "packing", "hf", "config", "install", "special"}
FINE_TUNING = {"labels", "tagging", "qa", "metrics", "long", "data/csv", "data/cols", "train/opt"}


@pytest.fixture(scope="module")
def faults() -> ModuleType:
    """The script docs/faults.py, as a module."""
    spec = importlib.util.spec_from_file_location("docs_faults", CHECKOUT / "docs" / "faults.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def test_no_row_is_listed_twice(faults):
    rows = [fault.row for fault in faults.read_faults()]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("areas", [SPINE, FINE_TUNING], ids=["spine", "fine-tuning"])
def test_every_fault_of_an_area_has_a_test_or_a_reason_why_it_cannot_arise(faults, areas):
    tests = faults.tests_by_row()
    rows = [fault for fault in faults.read_faults() if fault.area in areas]
    assert {fault.area for fault in rows} == areas
    assert not [fault.row for fault in rows if fault.row not in tests and not fault.why]


def test_every_test_named_after_a_row_has_an_entry(faults):
    assert faults.tests_by_row().keys() <= {fault.row for fault in faults.read_faults()}


def test_the_page_lists_the_rows_and_tests_that_there_are(faults):
    """What the results were is the page's to say; make faults brings it up to date."""
    tests = faults.tests_by_row()
    expected = {
        fault.row: set(tests.get(fault.row, [])) for fault in faults.read_faults() if fault.row in tests or fault.why
    }
    text = faults.PAGE.read_text(encoding="utf-8")
    listed = {
        int(row): set(re.findall(r"`(tests/[^`]+)`", line))
        for line in text.splitlines()
        if (row := line.removeprefix("| ").partition(" |")[0]).isdigit()
    }
    assert listed == expected
