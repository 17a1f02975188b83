"""What every test shares: the folder of real data, one thread per process, and no network."""

import dataclasses
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# Before any test imports torch or transformers, which read these once. Subprocesses inherit them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

# The same examples in every run: a change is judged by its own faults. HYPOTHESIS_PROFILE=search looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of this checkout."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data: ``$SEQBERT_DATA``, or ``../shared/data`` beside the checkout, or a skip."""
    named = os.environ.get("SEQBERT_DATA")
    folder = Path(named) if named else CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; SEQBERT_DATA names the folder")
    return folder


@dataclasses.dataclass(frozen=True)
class Environment:
    """A fresh virtual environment that also sees the packages of this one, so that nothing is downloaded."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))

    def install(self, *wheels: Path) -> None:
        """Installs wheels as pip does, without what they depend on."""
        run_checked(sys.executable, "-m", "pip", "--python", self.python, "install", "--no-deps", *wheels)

    def run(self, script: str, *arguments: object) -> str:
        """Runs a console script away from the checkout, and gives its standard output."""
        return run_checked(self.folder / "bin" / script, *arguments, cwd=self.folder)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment to install wheels into."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    made = Environment(folder)
    # addsitedir rather than a plain path: it also reads the .pth files of editable installs there.
    (made.packages / "this_environment.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n", encoding="utf-8"
    )
    return made


@pytest.fixture
def build_wheel(tmp_path: Path) -> Callable[[Path], Path]:
    """A function that builds a project's wheel with what is installed here, and gives its path."""

    def build(project: Path) -> Path:
        output = tmp_path / "wheels" / project.name
        run_checked(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", output, project)
        (wheel,) = output.glob("*.whl")
        return wheel

    return build


@pytest.fixture
def build_sdist(tmp_path: Path) -> Callable[[Path], Path]:
    """A function that builds a project's source distribution, and gives its path."""

    def build(project: Path) -> Path:
        output = tmp_path / "sdists"
        run_checked(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", output, project)
        (archive,) = output.glob("*.tar.gz")
        return archive

    return build


def run_checked(*command: object, cwd: Path | None = None) -> str:
    """Runs a command and gives its standard output; where it fails, the test says what it printed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a GPU where there is none; torch is imported only if a test asks for one."""
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
