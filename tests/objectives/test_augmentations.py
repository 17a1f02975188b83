import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from letters import Letters, OverlappingLetters, build, write_documents

from seqbert.data.corpus import TRAIN, Corpus
from seqbert.data.packing import Share
from seqbert.data.plan import Plan, Source
from seqbert.domain import Augmentation
from seqbert.objectives import Objective, ObjectiveConfig
from seqbert.objectives.sequences import build_sequences, draw_single


def backwards(ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.arange(len(ids))
    return (ids, source) if variant == 0 else (ids[::-1], source[::-1])


BACKWARDS = Augmentation(2, backwards)


def source_of(corpus: Corpus, objective: Objective, augmentations: dict[str, Augmentation]) -> Source:
    plan = Plan.of(corpus, corpus.split(TRAIN), objective.window_size(32), 3)
    source = Source(corpus, corpus.split(TRAIN), plan, 3, 32, 512, augmentations=augmentations)
    objective.calibrate(source)
    return source


def rows(batch) -> list[list[int]]:  # type: ignore[no-untyped-def]
    ids, edges = batch.ids.numpy().copy(), batch.cu_seqlens.numpy()
    target = batch.targets["masked_lm"]
    ids[target.index.numpy()] = target.labels.numpy()
    return [ids[low:high].tolist() for low, high in pairwise(edges)]


def test_half_of_the_sequences_are_another_variant_and_the_rest_as_they_were(corpus: Corpus) -> None:
    objective = Objective(ObjectiveConfig(), corpus)
    plain, changed = (source_of(corpus, objective, chosen) for chosen in ({}, {"backwards": BACKWARDS}))
    same = other = 0
    for step in range(8):
        for before, after in zip(
            rows(objective.examples(plain, step)), rows(objective.examples(changed, step)), strict=True
        ):
            assert after in (before, [before[0], *before[-2:0:-1], before[-1]])
            same, other = same + (before == after), other + (before != after)
    assert 0.4 < other / (same + other) < 0.6


def test_a_variant_is_a_function_of_seed_and_step_and_of_no_share_or_worker(corpus: Corpus) -> None:
    objective = Objective(ObjectiveConfig(), corpus)
    source = source_of(corpus, objective, {"backwards": BACKWARDS})
    again = pickle.loads(pickle.dumps(source))
    whole = rows(objective.examples(source, 5))
    assert whole == rows(objective.examples(again, 5))
    shares = [rows(objective.examples(source, 5, Share(rank, 2))) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == sorted(whole)


def doubled(ids: np.ndarray, units: np.ndarray | None, variant: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.repeat(np.arange(len(ids)), 1 + variant)
    return ids[source], source


def test_a_variant_with_more_tokens_is_cut_only_at_the_longest_sequence(corpus: Corpus) -> None:
    objective = Objective(ObjectiveConfig(), corpus)
    plain, changed = (source_of(corpus, objective, chosen) for chosen in ({}, {"doubled": Augmentation(2, doubled)}))
    whole = cut = 0
    for step in range(8):
        for before, after in zip(
            rows(objective.examples(plain, step)), rows(objective.examples(changed, step)), strict=True
        ):
            twice = [token for token in before[1:-1] for _ in range(2)]
            assert after in (before, [before[0], *twice[: 32 - 2], before[-1]])
            whole += len(after) > len(before) and len(after) == 2 * len(before) - 2
            cut += len(after) == 32
    assert whole > 5 and cut > 5


def test_both_parts_of_a_pair_are_given_the_same_variant(corpus: Corpus) -> None:
    objective = Objective(ObjectiveConfig(pair="sentence_order"), corpus)
    plain, changed = (source_of(corpus, objective, chosen) for chosen in ({}, {"backwards": BACKWARDS}))
    for before, after in zip(rows(objective.examples(plain, 1)), rows(objective.examples(changed, 1)), strict=True):
        first = before.index(3)
        parts = before[1:first], before[first + 1 : -1]
        turned = [2, *parts[0][::-1], 3, *parts[1][::-1], 3]
        assert after in (before, turned)


def turned_starts(starts: np.ndarray) -> np.ndarray:
    """Where units begin once a part is turned round: where they ended."""
    return np.append(starts[1:], 1)[::-1]


@pytest.mark.parametrize(("domain", "kind"), [(Letters, "unit_start"), (OverlappingLetters, "segment_start")])
def test_units_and_segments_go_with_their_tokens(tmp_path: Path, domain: type[Letters], kind: str) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    write_documents(folder / "a.letters", documents=60)
    corpus = build(folder, domain())
    objective = Objective(ObjectiveConfig(), corpus)
    plain, changed = (source_of(corpus, objective, chosen) for chosen in ({}, {"backwards": BACKWARDS}))
    drawn = draw_single(plain, plain.step(0), plain.max_length)
    before, after = (build_sequences(source, drawn, units=True) for source in (plain, changed))
    stops = np.cumsum(before.lengths)
    turned = 0
    for low, high in zip(stops - before.lengths + 1, stops - 1, strict=True):
        starts, found = (getattr(sequences, kind)[low:high].astype(int) for sequences in (before, after))
        if (before.ids[low:high] == after.ids[low:high]).all():
            assert found.tolist() == starts.tolist()
        else:
            turned += 1
            assert found.tolist() == turned_starts(starts).tolist()
    assert turned > 3
