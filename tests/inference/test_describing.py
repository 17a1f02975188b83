import seqbert


def test_length_and_vocabulary_are_heeded_for_a_fine_tuning_config_too():
    (short,) = seqbert.describe("dna/splice", length=8).values()
    (large,) = seqbert.describe("dna/splice", vocab_size=1000, length=64).values()
    assert (short.length, large.length) == (8, 64)
    assert large.parameters["word embeddings"] == 1000 * 128  # bert-tiny's width
    assert large.forward_flops["attention scores and sums"] == 8 * short.forward_flops["attention scores and sums"]
