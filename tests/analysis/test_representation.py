"""Similarity, alignment, shifts and attention figures, against what is known of them."""

import numpy as np
import pytest

from seqbert.analysis.attention_maps import head_figures
from seqbert.analysis.language_shift import mean_vectors, shift, word_list
from seqbert.analysis.representation import anisotropy, cosines, linear_cka, retrieval, self_similarity

DRAW = np.random.default_rng(0)


def test_cosines_are_those_of_scikit_learn() -> None:
    from sklearn.metrics.pairwise import cosine_similarity

    first, second = DRAW.normal(size=(5, 7)), DRAW.normal(size=(3, 7))
    np.testing.assert_allclose(cosines(first, second), cosine_similarity(first, second), atol=1e-12)


def test_a_token_with_one_vector_everywhere_has_self_similarity_1_and_random_directions_none() -> None:
    assert self_similarity(np.tile(DRAW.normal(size=5), (4, 1))) == pytest.approx(1.0)
    assert anisotropy(DRAW.normal(size=(400, 300))) == pytest.approx(0.0, abs=0.01)
    with pytest.raises(ValueError, match="two contexts"):
        self_similarity(np.ones((1, 3)))


def test_cka_is_hsic_of_linear_kernels_normed() -> None:
    """Kornblith et al. 2019, equation 3: tr(K H L H), over the root of the same for each with itself."""
    first, second = DRAW.normal(size=(20, 6)), DRAW.normal(size=(20, 4))
    centre = np.eye(20) - 1 / 20

    def hsic(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.trace(one @ one.T @ centre @ other @ other.T @ centre))

    expected = hsic(first, second) / np.sqrt(hsic(first, first) * hsic(second, second))
    assert linear_cka(first, second) == pytest.approx(expected)


def test_cka_does_not_change_when_a_representation_is_turned_scaled_and_moved() -> None:
    first = DRAW.normal(size=(30, 5))
    turned, _ = np.linalg.qr(DRAW.normal(size=(5, 5)))
    other = first + 0.5 * DRAW.normal(size=first.shape)
    assert linear_cka(3 * first @ turned + 2, other) == pytest.approx(linear_cka(first, other))
    stretched = other * np.array([1, 1, 1, 1, 9.0])  # but it does under any other linear map (section 2.1)
    assert linear_cka(first, stretched) != pytest.approx(linear_cka(first, other), abs=0.01)


def test_taking_the_means_out_lets_sentences_of_two_languages_find_each_other() -> None:
    meaning = DRAW.normal(size=(50, 16))
    languages = [meaning + 0.1 * DRAW.normal(size=meaning.shape) + 8 * DRAW.normal(size=16) for _ in range(2)]
    assert retrieval(*languages, centred=True).mean == 1.0
    assert retrieval(*languages).mean < 0.9


def test_the_shift_moves_the_mean_of_one_group_onto_that_of_the_other() -> None:
    vectors, groups = DRAW.normal(size=(30, 4)), ["en"] * 10 + ["de"] * 20
    means = mean_vectors(vectors, groups)
    moved = vectors[:10] + shift(means, "en", "de")
    np.testing.assert_allclose(moved.mean(axis=0), vectors[10:].mean(axis=0), atol=1e-12)
    with pytest.raises(ValueError, match='no mean vector of "fr"'):
        shift(means, "en", "fr")


def test_words_of_parallel_texts_are_paired_where_each_is_the_others_best() -> None:
    texts = [(["red", "house"], ["rotes", "haus"]), (["red", "car"], ["rotes", "auto"]), (["house"], ["haus"])]
    assert word_list(texts, least=2) == {"red": "rotes", "house": "haus"}


def test_figures_of_heads_that_look_at_one_neighbour_at_all_alike_and_at_a_marked_token() -> None:
    length = 5
    before = np.eye(length, k=-1)
    before[0, 0] = 1.0  # the first has none before it
    alike = np.full((length, length), 1 / length)
    first = np.zeros((length, length))
    first[:, 0] = 1.0
    marks = np.arange(length) == 0
    found = head_figures([np.stack([before, alike, first])], [marks])
    np.testing.assert_allclose(found.entropy, [0, np.log(length), 0], atol=1e-12)
    np.testing.assert_allclose(found.previous, [0.8, 4 / 25, 0.2])
    np.testing.assert_allclose(found.distance, [0.8, 40 / 25, 2.0])  # 40: the sum of |i - j| over 5 by 5
    np.testing.assert_allclose(found.marked, [0.4, 0.2, 1.0])
    np.testing.assert_allclose(found.itself, [0.2, 0.2, 0.2])
