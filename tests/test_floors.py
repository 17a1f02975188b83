import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
FRAMEWORK = CHECKOUT / "seqbert"

# From the ground up; rooms on one floor do not import each other, nor anything above them.
FLOORS = [
    {"errors"},
    {"domain", "config"},
    {"registry"},
    {"data"},
    {"models"},
    {"objectives", "tasks", "analysis"},
    {"training"},
    {"inference"},
    {"report"},
    {"studies"},
    {"cli"},
    {"__init__", "__main__"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

HEAVY = ("torch", "pandas", "pyarrow", "music21", "Bio", "transformers", "tensorboard")

MODULES = sorted(FRAMEWORK.rglob("*.py"))
DOMAINS = tuple(
    tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
        "seqbert.domains"
    ]
)


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(CHECKOUT).as_posix()}:{line}"


def room_of(path: Path) -> str:
    return path.relative_to(FRAMEWORK).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the full dotted name of everything that a module imports, relative imports resolved."""
    package = path.relative_to(CHECKOUT).parent.parts
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            anchor = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*anchor, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def test_the_framework_never_imports_the_plugins_that_come_with_it():
    found = [
        f"{place(path, line)} imports {name}"
        for path in MODULES
        for line, name in imports(path)
        if name.split(".")[0] == "domains"
    ]
    assert not found


def test_every_module_stands_on_a_floor():
    assert {room_of(path) for path in MODULES} <= FLOOR_OF.keys()


def test_imports_run_down_the_floors_only():
    found = []
    for path in MODULES:
        room = room_of(path)
        for line, name in imports(path):
            parts = name.split(".")
            if parts[0] != "seqbert" or parts[1:] == ["__version__"]:
                continue
            imported = parts[1] if len(parts) > 1 and parts[1] in FLOOR_OF else "__init__"
            if imported != room and FLOOR_OF[imported] >= FLOOR_OF[room]:
                found.append(f"{place(path, line)}: {room} may not import {name}")
    assert not found


# "text" is also the word for what every domain reads: it names one only where it stands alone in a string.
WORDS = "|".join(name for name in DOMAINS if name != "text")
NAMED_IN_A_STRING = re.compile(rf"\b(?:{WORDS})\b|^text$|\bdomains[./]text\b|^text/", re.IGNORECASE)
NAMED_IN_PROSE = re.compile(rf"[\"'`](?:{WORDS})[\"'`]|\bdomains[./](?:text|{WORDS})\b", re.IGNORECASE)


def names_of_domains(path: Path) -> Iterator[tuple[int, str]]:
    """Where a module names a domain: in a string, as an identifier, or, quoted, in a docstring.

    Docstrings may speak of proteins, say, as an example of what a document is, and a mapping may describe
    something by the word "text".
    """
    tree = ast.parse(path.read_bytes())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    prose |= {id(value) for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            pattern = NAMED_IN_PROSE if id(node) in prose else NAMED_IN_A_STRING
            for match in pattern.finditer(node.value):
                yield node.lineno, match.group()
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and re.fullmatch(WORDS, name, re.IGNORECASE):
                yield getattr(node, "lineno", 0), name


READS_A_FIELD_OF_THAT_NAME = {"span", "squad", "table_columns", "table_examples", "table_options"}
"""Modules for formats that have a column or a key "text", whatever is in it."""


def test_no_module_of_the_framework_names_a_domain():
    assert not [
        f"{place(path, line)}: {name}"
        for path in MODULES
        for line, name in names_of_domains(path)
        if not (name == "text" and path.stem in READS_A_FIELD_OF_THAT_NAME)
    ]


def test_the_check_for_names_of_domains_sees_one():
    assert NAMED_IN_A_STRING.search("runs/dna")
    assert NAMED_IN_A_STRING.search("text")
    assert not NAMED_IN_A_STRING.search("canonical text")
    assert NAMED_IN_PROSE.search('the domain "protein"')
    assert not NAMED_IN_PROSE.search("a whole protein")


@pytest.mark.parametrize("package", ["seqbert", "domains"])
def test_no_module_is_a_drawer_for_everything(package):
    drawers = {"util", "utils", "helper", "helpers", "common", "misc"}
    paths = [path for path in (CHECKOUT / package).rglob("*") if path.stem.strip("_") in drawers]
    assert not paths


def loaded_after(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter has loaded once it has run ``code``."""
    listing = f"import sys, json\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]), file=sys.stderr)"
    script = f"{code}\n{listing}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_importing_seqbert_loads_nothing_heavy():
    assert loaded_after("import seqbert") == set()


@pytest.mark.parametrize("arguments", [["--help"], ["domains"], ["domains", "--json"]], ids=" ".join)
def test_help_and_the_list_of_domains_load_nothing_heavy(arguments):
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['seqbert', *{arguments!r}]\n"
        "try:\n    runpy.run_module('seqbert', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as exit:\n    assert not exit.code, exit.code\n"
    )
    assert loaded_after(code) == set()
