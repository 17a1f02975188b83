"""What plugin authors rely on: domains are found by entry point, and a broken one breaks nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqbert import registry
from seqbert.domain import Domain
from seqbert.errors import DomainError

MODULE = '''
from dataclasses import dataclass
from typing import Literal
from seqbert.domain import Domain, Sample

@dataclass
class Options:
    unit: Literal["atom", "bond"] = "atom"
    """What is hidden together."""

class Smiles(Domain):
    name = "smiles"
    Options = Options
    formats = {".smi": "SMILES"}
    symbol = "atom"
    unit = property(lambda self: self.options.unit)

    def read(self, path, report):
        yield from ()

    def tokenizer(self, segments, vocab_size):
        raise NotImplementedError

    def sample(self):
        return Sample("nothing")
'''

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Lays a package and its metadata on ``sys.path``, as pip does."""

    def install_package(package: str, value: str, source: str, *, domain: str = "smiles", place: str = "site") -> Path:
        site = tmp_path / place
        info = site / f"{package.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[seqbert.domains]\n{domain} = {value}\n")
        module = value.partition(":")[0]
        (site / f"{module}.py").write_text(source)
        monkeypatch.delitem(sys.modules, module, raising=False)
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(site)
        return site

    return install_package


def row(name: str) -> dict[str, object]:
    return next(row for row in registry.listing() if row["name"] == name)


def test_a_package_of_its_own_is_found_with_its_version_and_options(install: Install) -> None:
    install("seqbert-smiles", "smiles_one:Smiles", MODULE)
    found = row("smiles")
    assert found == {
        "name": "smiles",
        "package": "seqbert-smiles",
        "version": "1.2",
        "formats": {".smi": "SMILES"},
        "symbol": "atom",
        "unit": "atom",
        "options": [
            {
                "name": "unit",
                "type": "atom|bond",
                "required": False,
                "default": "atom",
                "help": "What is hidden together.",
            }
        ],
    }
    assert json.loads(json.dumps(found)) == found
    assert issubclass(registry.load("smiles"), Domain)


def test_the_domains_that_come_with_seqbert_are_announced_like_any_other() -> None:
    ours = {name: plugin.package for name, plugin in registry.plugins().items() if plugin.package == "seqbert"}
    assert list(ours) == ["dna", "multilingual", "music", "protein", "text"]


def test_the_domains_that_come_with_seqbert_load() -> None:
    errors = {row["name"]: row.get("error") for row in registry.listing() if row["package"] == "seqbert"}
    assert errors == dict.fromkeys(["dna", "multilingual", "music", "protein", "text"])


def test_listing_the_names_imports_no_plugin(install: Install) -> None:
    install("seqbert-smiles", "smiles_lazy:Smiles", MODULE)
    assert registry.plugins()["smiles"].value == "smiles_lazy:Smiles"
    assert "smiles_lazy" not in sys.modules


def test_an_unknown_domain_is_refused_with_the_nearest_and_how_to_install_one() -> None:
    with pytest.raises(DomainError, match=r'Did you mean "protein"\?.*Installed: .*dna.*pip install'):
        registry.load("protien")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import a_library_that_is_not_there",
            "ModuleNotFoundError: No module named 'a_library_that_is_not_there'",
        ),
        ("raise RuntimeError('no\\n\\nlicence')", "RuntimeError: no licence"),
        ("def broken(:", "SyntaxError"),
        ("", "AttributeError"),
        ("Smiles = int", "is not a subclass"),
        (MODULE.replace('name = "smiles"', 'name = "smile"'), "calls itself 'smile'"),
        (MODULE.replace("def sample", "def simple"), "lacks the methods sample"),
        (MODULE.replace("Options = Options", "Options = int"), "not a dataclass"),
    ],
)
def test_a_broken_plugin_says_what_is_wrong_and_breaks_no_other(install: Install, source: str, message: str) -> None:
    install("seqbert-smiles", "smiles_broken:Smiles", source)
    with pytest.raises(DomainError) as caught:
        registry.load("smiles")
    assert "seqbert-smiles 1.2" in str(caught.value)
    assert message in str(caught.value)
    assert row("smiles")["error"] == str(caught.value)
    assert {"dna", "text"} <= {str(row["name"]) for row in registry.listing()}


def test_a_plugin_that_fails_on_its_own_defaults_is_listed_with_the_error(install: Install) -> None:
    install("seqbert-smiles", "smiles_failing:Smiles", MODULE.replace("self.options.unit)", "1 / 0)"))
    assert row("smiles")["error"] == "ZeroDivisionError: division by zero"


def test_a_name_that_two_packages_claim_is_an_error_that_names_both(install: Install) -> None:
    install("seqbert-smiles", "smiles_first:Smiles", MODULE)
    install("chem-bert", "smiles_second:Smiles", MODULE)
    with pytest.raises(DomainError, match="claimed by the packages") as caught:
        registry.load("smiles")
    assert "seqbert-smiles" in str(caught.value)
    assert "chem-bert" in str(caught.value)
    assert row("smiles")["error"] == str(caught.value)
    assert registry.plugins()["dna"].rivals == ()


def test_one_package_seen_twice_on_the_path_is_no_clash(install: Install) -> None:
    install("seqbert-smiles", "smiles_twice:Smiles", MODULE, place="checkout")
    install("Seqbert_Smiles", "smiles_twice:Smiles", MODULE, place="site")
    assert registry.plugins()["smiles"].rivals == ()
    assert registry.load("smiles").name == "smiles"


def test_finding_domains_loads_no_heavy_library() -> None:
    code = "import sys; from seqbert import registry; registry.plugins(); print({'torch', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
