"""The command that says what an update costs."""

import json
import subprocess
import sys
from pathlib import Path


def test_updates_are_measured_side_by_side(checkout: Path) -> None:
    command = [sys.executable, str(checkout / "benchmarks" / "optimizers.py"), "--preset", "bert-L2-H128"]
    command += ["--vocabulary", "100", "--rounds", "1", "--threads", "1"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert report["milliseconds"].keys() == {"adamw", "muon", "torch_muon"}
    # Of four matrices of 128 by 128 and two of 128 by 512 in each of two blocks, five times: 128^3 products of two.
    assert report["newton_schulz_gflop"] == round(2 * 5 * 2 * 128**3 * (4 * 3 + 2 * 9) / 1e9, 3)
    assert report["muon_over_torch_muon"] > 0
