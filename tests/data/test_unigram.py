from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from domains.dna import DNA, DNAOptions
from seqbert.data.building import BuildRequest, build_corpus


def test_of_overlapping_tokens_the_unigram_model_chooses_the_one_base_that_is_hidden(tmp_path: Path) -> None:
    bases = np.array(list("ACGT"))[np.random.default_rng(0).choice(4, 40_000, p=[0.4, 0.1, 0.1, 0.4])]
    path = tmp_path / "a.fa"
    path.write_text(">a\n" + "".join(bases) + "\n")
    corpus = build_corpus(BuildRequest(DNA(DNAOptions(tokens="kmer", k=3)), [str(path)]), tmp_path / "cache")
    vocabulary = Tokenizer.from_str(corpus.tokenizer_json)
    for shown in ("AA", "CG"):
        bits = [corpus.unigram_bits[vocabulary.token_to_id(base + shown)] for base in "ACGT"]
        assert np.isclose(np.exp2(-np.array(bits)).sum(), 1)
        assert abs(bits[0] + np.log2(0.4)) < 0.25
