import numpy as np

from domains.music import Music
from domains.text import Text
from seqbert.inference.grammar import Grammar

TUNE = "Bar Numerator_3 Denominator_4 Part_0 Position_0 Pitch_60 Duration_24 Position_24 Pitch_62 Duration_48 Bar"


def music() -> Music:
    domain = Music()
    domain.use(domain.tokenizer([], None))
    return domain


def kinds_of(grammar: Grammar, domain: Music, row: np.ndarray) -> set[str]:
    return {(domain.vocabulary.id_to_token(int(token)) or "").partition("_")[0] for token in np.flatnonzero(row)}


def test_what_is_filled_spells_notes_between_what_stands() -> None:
    domain = music()
    grammar = Grammar.of(domain)
    assert grammar is not None
    ids = domain.encode([TUNE]).ids
    fits = grammar.fitting(ids, np.array([6]))
    assert kinds_of(grammar, domain, fits[0]) == {"Duration"}, "between a pitch and a position"
    pair = grammar.fitting(ids, np.array([5, 6]))
    assert "Pitch" in kinds_of(grammar, domain, pair[0]) and "Pitch" not in kinds_of(grammar, domain, pair[1])
    assert "Duration" not in kinds_of(grammar, domain, pair[0]), "no duration behind a position"


def test_any_choice_that_fits_can_be_completed() -> None:
    domain = music()
    grammar = Grammar.of(domain)
    assert grammar is not None
    generator = np.random.default_rng(0)
    for _ in range(20):
        ids = domain.encode([TUNE]).ids.astype(np.int64)
        still_open = list(range(3, 10))
        while still_open:
            place = int(generator.choice(still_open))
            row = grammar.fitting(ids, np.array(still_open))[still_open.index(place)]
            ids[place] = generator.choice(np.flatnonzero(row))
            still_open.remove(place)
        kinds = grammar.kind[ids]
        assert grammar.follows[kinds[:-1], kinds[1:]].all()


def test_what_makes_a_bar_a_bar_is_neither_hidden_nor_filled_in() -> None:
    domain = music()
    grammar = Grammar.of(domain)
    assert grammar is not None
    ids = domain.encode([TUNE]).ids
    assert grammar.frames(ids).tolist() == [True] * 3 + [False] * 7 + [True]
    assert "Bar" not in kinds_of(grammar, domain, grammar.fitting(ids, np.array([3]))[0])


def test_a_domain_without_a_rule_has_none() -> None:
    domain = Text()
    domain.use(domain.tokenizer(iter(["some words of text"]), 40))
    assert Grammar.of(domain) is None
