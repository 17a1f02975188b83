import numpy as np
import pytest
import yaml
from letters import build, objective_and_source

from domains.dna import DNA, DNAOptions
from seqbert import config
from seqbert.objectives import ObjectiveConfig
from seqbert.objectives.masked_lm import MaskedLMConfig


@pytest.fixture
def corpus(tmp_path):
    generator = np.random.default_rng(0)
    (tmp_path / "files").mkdir()
    lines = [f">{n}\n{''.join(generator.choice(list('ACGT'), 300))}\n" for n in range(60)]
    (tmp_path / "files" / "a.fa").write_text("".join(lines))
    return build(tmp_path / "files", DNA(DNAOptions(tokens="kmer", k=4)))


@pytest.mark.parametrize("unit", ["unit", "span"])
def test_no_base_of_a_masked_span_of_k_mers_can_be_read_off_a_neighbour(corpus, unit):
    """Of k masked k-mers in a row one base, of m more that many more, are in no k-mer that is left to see."""
    dna, k = DNA(DNAOptions(tokens="kmer", k=4)), 4
    dna.use(dna.tokenizer([], None))
    masked_lm = MaskedLMConfig(mask=1.0, random=0.0, unit=unit)
    objective, source = objective_and_source(corpus, ObjectiveConfig(masked_lm), max_length=66)
    runs = hidden = 0
    for step in range(10):
        batch = objective.examples(source, step)
        target = batch.targets["masked_lm"]
        truth = batch.ids.numpy().copy()
        truth[target.index] = target.labels
        for start, stop in zip(batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist(), strict=True):
            seen, true = (dna.decode(ids[start:stop]) for ids in (batch.ids.numpy(), truth))
            assert all(letter in ("N", base) for letter, base in zip(seen, true, strict=True))
            masked = batch.ids.numpy()[start + 1 : stop - 1] == corpus.special_ids["[MASK]"]
            edges = np.flatnonzero(np.diff(np.concatenate([[0], masked, [0]]))).reshape(-1, 2)
            for first, last in edges.tolist():
                at_an_edge = (first == 0) + (last == len(masked))
                least = last - first - (k - 1) + (k - 1) * at_an_edge
                assert seen[first : last + k - 1].count("N") == max(least, 0)
                runs += 1
                hidden += least > 0
    assert runs > 100
    assert hidden > 0.9 * runs  # spans that a window's edge cuts may be shorter than k


def test_the_config_of_dnabert_masks_spans_of_its_k_mers():
    tree = yaml.safe_load(config.find("dna/dnabert").read_text(encoding="utf-8"))
    assert tree["objective"]["masked_lm"]["unit"] == "span"
    options = DNAOptions(**tree["domains"]["dna"]["options"])
    assert (options.tokens, options.k, options.masking_unit) == ("kmer", 6, "span")
