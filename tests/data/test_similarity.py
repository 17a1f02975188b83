"""Records that are alike: homologs planted into proteins, the other strand, near copies of texts, and chance."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from homologs import homolog, protein

from seqbert import registry
from seqbert.data import similarity
from seqbert.data.similarity import Alike, Clusters, Sequences, connected
from seqbert.domain import Domain

USUAL = Alike(identity=0.3, coverage=0.3)


def plugin(name: str, texts: Sequence[str] = (), **options: object) -> Domain:
    kind = registry.load(name)
    domain = kind(kind.Options(**options))
    domain.use(domain.tokenizer(texts, None))
    return domain


def clusters_of(domain: Domain, texts: Sequence[str], alike: Alike = USUAL) -> Clusters:
    with Sequences(domain) as sequences:
        for record, text in enumerate(texts):
            encoded = domain.encode([text], offsets=False)
            sequences.add(record, encoded.ids, encoded.units)
        return sequences.clusters(len(texts), alike)


@pytest.mark.parametrize(("identity", "least"), [(0.9, 0.98), (0.7, 0.95), (0.5, 0.7)])
def test_homologs_are_found_by_their_identity(identity: float, least: float) -> None:
    rng = np.random.default_rng(0)
    parents = [protein(rng) for _ in range(60)]
    labels = clusters_of(plugin("protein"), parents + [homolog(rng, text, identity) for text in parents]).labels
    assert np.mean(labels[:60] == labels[60:]) >= least
    assert len(set(labels[:60].tolist())) == 60, "no two of the parents are alike"


def test_nothing_is_alike_in_unrelated_proteins() -> None:
    rng = np.random.default_rng(1)
    found = clusters_of(plugin("protein"), [protein(rng) for _ in range(1500)])
    assert found.compared > 0 and not len(found.alike)
    assert found.labels.tolist() == list(range(1500))


def test_a_stretch_of_low_complexity_makes_no_two_proteins_alike() -> None:
    rng = np.random.default_rng(2)
    texts = [protein(rng, 80) + "Q" * 60 + "SG" * 30 + protein(rng, 80) for _ in range(20)]
    assert not len(clusters_of(plugin("protein"), texts, Alike(0.3, 0.0)).alike)


def test_a_domain_that_two_proteins_share_counts_by_the_coverage_asked_for() -> None:
    rng = np.random.default_rng(3)
    shared = protein(rng, 60)
    texts = [protein(rng, 200) + shared + protein(rng, 200) for _ in range(2)]
    assert len(clusters_of(plugin("protein"), texts, Alike(0.3, 0.0)).alike) == 1
    assert len(clusters_of(plugin("protein"), texts, Alike(0.3, 0.3)).alike) == 0


def test_likeness_is_passed_on() -> None:
    rng = np.random.default_rng(4)
    chain = [protein(rng)]
    for _ in range(6):
        chain.append(homolog(rng, chain[-1], 0.75, indels=0.0))
    assert set(clusters_of(plugin("protein"), chain).labels.tolist()) == {0}


@pytest.mark.parametrize(("seeds", "sampled"), [(2**24, 1.0), (2**12, 1.0), (2**10, 0.34)])
def test_close_homologs_are_found_in_rounds_and_in_a_sample_of_the_seeds_too(
    seeds: int, sampled: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    parents = [protein(rng) for _ in range(40)]
    texts = parents + [homolog(rng, text, 0.8) for text in parents]
    monkeypatch.setattr(similarity, "MOST_SEEDS", seeds)
    found = clusters_of(plugin("protein"), texts)
    assert found.sampled == pytest.approx(sampled, abs=0.01)
    assert np.mean(found.labels[:40] == found.labels[40:]) >= 0.95
    assert len(set(found.labels[:40].tolist())) == 40


def test_long_records_are_hashed_in_pieces_as_they_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    parents = [protein(rng) for _ in range(20)]
    texts = parents + [homolog(rng, text, 0.6) for text in parents]
    whole = clusters_of(plugin("protein"), texts)
    monkeypatch.setattr(similarity, "_CHUNK", 97)
    pieces = clusters_of(plugin("protein"), texts)
    assert pieces.labels.tolist() == whole.labels.tolist() and pieces.alike.tolist() == whole.alike.tolist()


@pytest.mark.parametrize("options", [{}, {"tokens": "kmer", "k": 6}], ids=["default", "kmer"])
def test_the_other_strand_of_a_sequence_is_alike(options: dict[str, object]) -> None:
    rng = np.random.default_rng(7)
    texts = ["".join(rng.choice(list("ACGT"), 400)) for _ in range(10)]
    complement = str.maketrans("ACGT", "TGCA")
    strands = [text.translate(complement)[::-1] for text in texts]
    labels = clusters_of(plugin("dna", **options), texts + strands).labels
    assert labels.tolist() == [*range(10), *range(10)]


def test_texts_that_are_copies_but_for_some_words_are_alike_and_others_are_not() -> None:
    words = [f"{a}{b}{c}" for a in ("ba", "de", "ki", "lo") for b in ("ra", "nu", "mi", "so") for c in ("t", "n", "s")]
    rng = np.random.default_rng(8)
    texts = [" ".join(rng.choice(words, 120)) for _ in range(30)]
    copies = []
    for text in texts:
        changed = text.split()
        for place in rng.choice(len(changed), 12, replace=False):
            changed[place] = str(rng.choice(words))
        copies.append(" ".join(changed))
    labels = clusters_of(plugin("text", texts), texts + copies).labels
    assert labels.tolist() == [*range(30), *range(30)]


def test_what_is_too_short_stands_alone() -> None:
    domain = plugin("protein")
    assert clusters_of(domain, ["", "A", "MK", "", "A"]).labels.tolist() == [0, 1, 2, 3, 4]
    assert clusters_of(domain, []).labels.tolist() == []
    assert clusters_of(domain, ["A" * 100, "A" * 100]).labels.tolist() == [0, 1]
    assert clusters_of(domain, ["X" * 100, "X" * 100]).labels.tolist() == [0, 1]


def test_the_clusters_do_not_depend_on_the_order_of_the_records() -> None:
    rng = np.random.default_rng(9)
    texts = [homolog(rng, parent, 0.8) for parent in [protein(rng) for _ in range(15)] for _ in range(4)]
    order = rng.permutation(len(texts))
    one = clusters_of(plugin("protein"), texts).labels[order]
    other = clusters_of(plugin("protein"), [texts[n] for n in order]).labels
    assert np.array_equal(one[:, None] == one, other[:, None] == other)


def test_components_are_named_by_their_first_member() -> None:
    pairs = np.array([[5, 2], [9, 5], [4, 3], [2, 9], [7, 4]])
    assert connected(10, pairs).tolist() == [0, 1, 2, 3, 3, 2, 6, 3, 8, 2]


@pytest.mark.slow
def test_no_sampled_pair_of_uniprot_across_the_split_is_half_equal(shared_data: Path) -> None:
    """By Smith-Waterman with BLOSUM62, gaps 11 and 1, over half of the shorter: 2 of 60 at most, where 25 were."""
    import gzip

    from Bio import SeqIO
    from Bio.Align import PairwiseAligner, substitution_matrices

    from seqbert.data.holdout import hold_out
    from seqbert.domain import Example

    with gzip.open(shared_data / "protein" / "uniprot_mmseqs2" / "DB.fasta.gz", "rt") as file:
        texts = [str(record.seq) for record in SeqIO.parse(file, "fasta") if 60 <= len(record.seq) <= 500][:3000]
    examples = [Example(str(number), (text,)) for number, text in enumerate(texts)]
    aligner = PairwiseAligner(
        mode="local",
        substitution_matrix=substitution_matrices.load("BLOSUM62"),
        open_gap_score=-11,
        extend_gap_score=-1,
    )
    pieces = [{text[n : n + 4] for n in range(len(text) - 3)} for text in texts]

    def close(kept: list[Example], held: list[Example]) -> int:
        rows = [int(example.id) for example in kept]
        count = 0
        for example in held[:60]:
            own = pieces[int(example.id)]
            nearest = max(rows, key=lambda row: len(own & pieces[row]) / (len(texts[row]) + 300))
            counts = aligner.align(example.sequences[0], texts[nearest])[0].counts()
            aligned = counts.identities + counts.mismatches
            shorter = min(len(example.sequences[0]), len(texts[nearest]))
            count += counts.identities >= 0.5 * (aligned + counts.gaps) and aligned >= 0.5 * shorter
        return count

    labels = clusters_of(plugin("protein"), texts).labels
    at_random, by_likeness = (close(*hold_out(examples, 0.1, ties=ties)) for ties in (None, labels.tolist()))
    assert at_random >= 25 and by_likeness <= 2


def test_a_tokenizer_of_pieces_does_not_hide_likeness() -> None:
    rng = np.random.default_rng(10)
    parents = [protein(rng) for _ in range(20)]
    texts = parents + [homolog(rng, text, 0.8) for text in parents]
    domain = plugin("protein", texts, tokens="bpe")
    labels = clusters_of(domain, texts).labels
    assert labels.tolist() == [*range(20), *range(20)]
