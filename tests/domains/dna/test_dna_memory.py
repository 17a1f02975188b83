import subprocess
import sys

import pytest

CHILD = """
import resource, sys
from seqbert.cli import main
code = main(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(code)
"""


@pytest.mark.slow
def test_row33_a_single_line_of_200_megabases_and_tiny_records_stay_under_a_gibibyte(tmp_path):
    """5,000 tiny records for a million, which take a minute and no memory: each is gone once it is encoded."""
    path = tmp_path / "big.fa"
    with path.open("wb") as file:
        file.write(b">chr1 one line\n" + b"N" * 10_000)
        for _ in range(200):
            file.write(b"ACGTTGCAAC" * 100_000)
        file.write(b"\n" + b"".join(b">s%d\nACGTACGTAC\n" % number for number in range(5_000)))
    command = ["prepare", "dna/pretrain", "--domains.dna.data", str(path), "--domains.dna.options.unit", "span"]
    command += ["--run.corpus_dir", str(tmp_path / "cache"), "--output", str(tmp_path / "run")]
    child = subprocess.run([sys.executable, "-c", CHILD, *command], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert "records in 5,001 = read 5,001 + repaired 0 + skipped 0" in child.stdout
    assert int(child.stdout.rpartition("peak ")[2]) < 1024
