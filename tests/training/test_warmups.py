import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from letters import build, source_of, write_documents
from runs import settings, write_fasta

import seqbert
from seqbert.data.packing import Share
from seqbert.data.plan import Source, Stretches
from seqbert.data.stages import Stages
from seqbert.errors import ConfigError
from seqbert.objectives import Objective, ObjectiveConfig
from seqbert.training.warmups import BatchWarmupConfig, LengthWarmupConfig, plan_stages

WARMUPS = {"batch_warmup": {"start": 128, "steps": 6}, "length_warmup": {"start": 8, "steps": 4}}


def warm_source(folder: Path, pair: str = "none") -> tuple[Objective, Source]:
    """An objective over documents of 40 tokens, and a source whose first 12 steps are a warm-up."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    write_documents(files / "a.letters", documents=400)
    corpus = build(files, validation=0.0)
    config = ObjectiveConfig(pair=pair)  # type: ignore[arg-type]
    objective, source = Objective(config, corpus), source_of(corpus, config, "train", 32, 1024)
    source.stages = Stages(plan_stages(1024, 32, 1.0, 1, BatchWarmupConfig(128, 12), LengthWarmupConfig(8, 6)))
    objective.calibrate(source)
    return objective, source


def windows(stretches: Stretches) -> list[tuple[int, ...]]:
    return list(zip(stretches.document.tolist(), stretches.start.tolist(), stretches.stop.tolist(), strict=True))


def weights(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "model").rglob("model.safetensors")))


def losses(folder: Path) -> list[tuple[int, float, int]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"], row["tokens"]) for row in rows if "loss" in row]


def test_steps_double_at_equal_distances_up_to_their_full_size() -> None:
    stages = plan_stages(8192, 128, 1.0, 1, BatchWarmupConfig(1024, 300), LengthWarmupConfig(32, 300))
    found = [(stage.first, stage.max_length, stage.tokens) for stage in stages]
    assert found == [(0, 32, 1024), (100, 32, 2048), (150, 64, 2048), (200, 64, 4096), (300, 128, 8192)]
    assert len(plan_stages(8192, 128, 1.0, 1, None, None)) == 1
    assert len(plan_stages(512, 16, 1.0, 1, BatchWarmupConfig(), LengthWarmupConfig())) == 1  # full from the start


def test_a_small_step_has_room_for_a_sequence_of_each_domain() -> None:
    stages = plan_stages(4096, 128, 0.25, 2, BatchWarmupConfig(64, 10), None)
    assert all(stage.tokens >= stage.max_length for stage in stages)


@pytest.mark.parametrize("pair", ["none", "sentence_order"])
def test_steps_of_a_warm_up_are_short_and_fill_their_budget(tmp_path: Path, pair: str) -> None:
    objective, source = warm_source(tmp_path, pair)
    for step in range(16):
        stage, batch = source.stages[step], objective.examples(source, step)
        assert max(batch.lengths) <= stage.max_length
        assert stage.tokens - stage.max_length <= batch.tokens <= stage.tokens
    assert source.stages[15].tokens == 1024 and source.stages[15].max_length == 32


def test_each_window_is_visited_once_an_epoch_whatever_the_sizes_of_steps(tmp_path: Path) -> None:
    _, source = warm_source(tmp_path)
    visits: Counter[tuple[int, ...]] = Counter()
    total = source.plan.total
    last = next(step for step in range(1000) if source.visited(step + 1) > total)
    for step in range(last):
        walk = range(source.visited(step), source.visited(step + 1))
        assert len(walk) == source.stages[step].sequences
        visits.update(windows(source.plan.step(step, walk, range(0))))
    whole = Counter(windows(source.plan.step(0, range(total), range(0))))
    assert set(whole.values()) == {1} and visits <= whole
    assert visits.total() > 0.9 * total


def test_what_is_taken_of_a_long_window_is_drawn_and_lies_within_it(tmp_path: Path) -> None:
    _, source = warm_source(tmp_path)
    stage = source.stages[0]
    whole = source.plan.step(0, range(300), range(0))
    taken = source.cropped(whole, stage)
    assert (taken.start >= whole.start).all() and (taken.stop <= whole.stop).all()
    widths = taken.stop - taken.start
    assert (widths == np.minimum(whole.stop - whole.start, stage.max_length - 2)).all()
    assert len(np.unique(taken.start - whole.start)) > 10
    assert (source.cropped(whole, stage).start == taken.start).all()


@pytest.mark.parametrize("pair", ["none", "sentence_order"])
def test_ranks_share_the_steps_of_a_warm_up(tmp_path: Path, pair: str) -> None:
    objective, source = warm_source(tmp_path, pair)
    for step in (0, 4, 9):
        whole = objective.examples(source, step)
        parts = [objective.examples(source, step, Share(rank, 3)) for rank in range(3)]
        assert sum(part.tokens for part in parts) == whole.tokens
        lines = [
            part.ids[a:b].tolist() for part in parts for a, b in zip(part.cu_seqlens, part.cu_seqlens[1:], strict=False)
        ]
        alone = [whole.ids[a:b].tolist() for a, b in zip(whole.cu_seqlens, whole.cu_seqlens[1:], strict=False)]
        assert sorted(lines) == sorted(alone)


def warm_run(folder: Path, **changes: Any) -> dict[str, Any]:
    bases = {"data": [str(write_fasta(folder / "dna"))], "validation": 0.1}
    return settings(folder, domains={"dna": bases}, training={"tokens_per_step": 1024, **WARMUPS}, **changes)


def test_row61_a_run_resumed_within_its_warm_ups_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = seqbert.pretrain(warm_run(tmp_path, run={"workers": 2, "checkpoint_every": 1})).folder
    found = [tokens for _, _, tokens in losses(whole)]
    sizes = np.diff([0, *found])
    assert sizes[0] < 140 and sizes[-1] > 900
    for step in (1, 5):
        broken = tmp_path / f"broken-{step}"
        shutil.copytree(whole, broken)
        for path in (broken / "checkpoints").iterdir():
            if int(path.name.removeprefix("step-")) > step:
                shutil.rmtree(path)
        seqbert.pretrain(warm_run(tmp_path, output=str(broken), run={"checkpoint_every": 1}), resume="auto")
        assert weights(broken) == weights(whole) and losses(broken) == losses(whole)


def test_a_run_that_goes_on_with_other_warm_ups_takes_the_walk_up_where_it_stood(tmp_path: Path) -> None:
    _, source = warm_source(tmp_path)
    step = 5
    visited = source.visited(step)
    source.stages = Stages(plan_stages(1024, 32, 1.0, 1, BatchWarmupConfig(512, 8), None))
    source.go_on(step, visited)
    assert source.visited(step) == visited
    assert source.visited(step + 1) == visited + source.stages[step].sequences


@pytest.mark.parametrize(
    "wrong", [{"batch_warmup": {"start": 0}}, {"length_warmup": {"start": 4}}, {"length_warmup": {"steps": 0}}]
)
def test_a_warm_up_that_cannot_be_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"training\.(batch|length)_warmup.*at least"):
        seqbert.pretrain(settings(tmp_path, training=wrong))
