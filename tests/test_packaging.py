import ast
import json
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(requirements: list[str]) -> set[str]:
    return {normalised(re.match(r"[\w.-]+", requirement).group()) for requirement in requirements}


def imported_packages(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split(".")[0]


def test_the_dependencies_are_what_the_packages_import():
    ours = {"seqbert", "domains", *sys.stdlib_module_names}
    imported = {name for package in ("seqbert", "domains") for name in imported_packages(CHECKOUT / package)}
    distributions = packages_distributions()
    needed = {normalised(distributions.get(name, [name])[0]) for name in imported - ours}
    # torch.utils.tensorboard is torch's, but imports a package that torch does not depend on.
    needed.add("tensorboard")
    assert needed == required(PROJECT["dependencies"])


def test_every_dependency_has_a_tested_version():
    constraints = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = required([line for line in constraints if line and not line.startswith("#")])
    extras = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    assert required([*PROJECT["dependencies"], *extras]) <= pinned


@pytest.mark.slow
def test_the_wheel_holds_both_packages_the_configs_and_the_samples(build_wheel):
    with zipfile.ZipFile(build_wheel(CHECKOUT)) as wheel:
        inside = set(wheel.namelist())
    for folder, prefix in (("seqbert", ""), ("domains", ""), ("configs", "seqbert/")):
        expected = {
            prefix + path.relative_to(CHECKOUT).as_posix()
            for path in (CHECKOUT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
        }
        assert expected
        assert expected <= inside
    assert not [name for name in inside if name.startswith(("tests/", "examples/", "docs/"))]


@pytest.mark.slow
def test_the_source_distribution_is_enough_to_build_from(tmp_path, build_wheel, build_sdist):
    with tarfile.open(build_sdist(CHECKOUT)) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("seqbert-*")
    for name in (
        "README.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
        "tests/conftest.py",
        "docs/faults.toml",
    ):
        assert (unpacked / name).is_file(), name
    with zipfile.ZipFile(build_wheel(CHECKOUT)) as here, zipfile.ZipFile(build_wheel(unpacked)) as there:
        assert sorted(here.namelist()) == sorted(there.namelist())


@pytest.mark.slow
def test_an_installed_wheel_lists_its_domains_and_finds_its_configs_and_samples(environment, build_wheel):
    environment.install(build_wheel(CHECKOUT))
    listed = {domain["name"]: domain for domain in json.loads(environment.run("seqbert", "domains", "--json"))}
    assert set(PROJECT["entry-points"]["seqbert.domains"]) <= listed.keys()
    assert not [domain for domain in listed.values() if domain.get("error")]

    script = (
        "import json, seqbert.config, seqbert.registry as registry\n"
        "samples = {name: registry.load(name)().sample().files for name in registry.plugins()}\n"
        "found = {'config': seqbert.config.find('quickstart'), 'samples': samples}\n"
        "print(json.dumps(found, default=str))"
    )
    found = json.loads(environment.run("python", "-c", script))
    assert Path(found["config"]).resolve().is_relative_to(environment.packages.resolve())
    for name in PROJECT["entry-points"]["seqbert.domains"]:
        for file in map(Path, found["samples"][name]):
            assert file.is_file()
            assert not file.resolve().is_relative_to(CHECKOUT / "domains")


OPTIONAL = ("flash_attn", "triton", "xformers", "apex", "deepspeed", "transformers", "sentence_transformers")


@pytest.mark.slow
def test_row102_pretraining_needs_no_optional_package(environment, build_wheel):
    environment.install(build_wheel(CHECKOUT))
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in OPTIONAL)
    (environment.packages / "sitecustomize.py").write_text(f"import sys\n{blocked}", encoding="utf-8")
    run = environment.folder / "run"
    environment.run(
        *("seqbert", "pretrain", "quickstart", "--output", run, "--model.preset", "bert-tiny"),
        *("--training.steps", 2, "--training.evaluate_every", 2, "--training.tokens_per_step", 2048),
        *("--run.device", "cpu", "--run.workers", 0),
    )
    assert list((run / "model").rglob("model.safetensors"))
