"""What ``seqbert pretrain`` loads before it reads its first file."""

import subprocess
import sys
from pathlib import Path

HEAVY = (
    "torch._dynamo",  # the compiler: a second
    "torch._inductor",
    "sympy",
    "tensorboard",
    "transformers",
    "pandas",
    "sklearn",
    "scipy",
    "datasets",
    "matplotlib",
    "music21",
    "Bio",
    "pyarrow.parquet",
    "pyarrow.dataset",
)

PROGRAM = """
import os, sys

def at_file(event, arguments):
    if event == "open" and str(arguments[0]).endswith("first.txt"):
        print("\\n".join(sys.modules), flush=True)
        os._exit(0)

sys.addaudithook(at_file)
from seqbert.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_first_file_is_read_before_anything_heavy_but_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text("Some words. And more of them.")
    keys = {"domains.text.data": "first.txt", "output": "run", "run.corpus_dir": "corpora", "run.workers": "0"}
    overrides = [word for key, value in keys.items() for word in (f"--{key}", value)]
    command = [sys.executable, "-c", PROGRAM, "pretrain", "text/pretrain", *overrides]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "seqbert.data.building" in loaded
    assert not loaded & set(HEAVY)
