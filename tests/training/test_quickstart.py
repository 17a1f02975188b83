from pathlib import Path

import pytest

import seqbert


@pytest.mark.slow
def test_the_quick_start_learns_in_every_domain(tmp_path: Path) -> None:
    result = seqbert.pretrain("quickstart", ["--output", str(tmp_path / "run"), "--run.device", "cpu"])
    below = {
        name: 1 - domain.after["bits_per_symbol"] / domain.after["unigram_bits_per_symbol"]  # type: ignore[operator]
        for name, domain in result.domains.items()
    }
    least = {"text": 0.20, "multilingual": 0.20, "music": 0.20, "protein": 0.03, "dna": 0.02}
    assert all(below[name] >= share for name, share in least.items()), below
