"""The labelled tables that come with every domain."""

from collections import Counter
from functools import cache

import pytest

from domains.tables import evenly
from seqbert import registry

DOMAINS = ("text", "protein", "dna", "music", "multilingual")
TASKS = ("classification", "regression", "tagging", "span", "choice")


@cache
def domain_of(name):
    return registry.load(name)()


@cache
def table(name, task):
    return list(domain_of(name).sample().tables[task]())


@pytest.fixture(params=DOMAINS)
def name(request):
    return request.param


@pytest.mark.parametrize("task", TASKS)
def test_every_domain_has_a_small_table_for_every_task(name, task):
    examples = table(name, task)
    assert 300 <= len(examples) <= 1500
    assert len({example.id for example in examples}) == len(examples)
    assert all(example.source and example.metadata["group"] for example in examples)


@pytest.mark.parametrize("task", TASKS)
def test_a_table_is_the_same_each_time(name, task):
    again = list(domain_of(name).sample().tables[task]())
    assert [(e.id, e.sequences, e.label) for e in again] == [(e.id, e.sequences, e.label) for e in table(name, task)]


@pytest.mark.parametrize("task", TASKS)
def test_sequences_are_canonical_but_contexts_of_questions_may_be_raw(name, task):
    domain = domain_of(name)
    for example in table(name, task)[::7]:
        canonical = example.sequences[:1] if task == "span" else example.sequences
        assert [domain.canonical(text) for text in canonical] == list(canonical)


def test_no_class_is_most_of_a_classification(name):
    classes = Counter(example.label for example in table(name, "classification"))
    assert all(isinstance(label, str) for label in classes)
    assert max(classes.values()) <= 0.5 * classes.total()
    assert min(classes.values()) >= 10


def test_the_labels_of_a_regression_vary(name):
    labels = [example.label for example in table(name, "regression")]
    assert all(isinstance(label, float) for label in labels)
    assert len(set(labels)) > 20


def test_tagging_has_a_label_for_each_of_the_domains_words(name):
    domain = domain_of(name)
    labels = Counter()
    for example in table(name, "tagging"):
        assert len(domain.words(example.sequences[0])) == len(example.label)
        labels.update(example.label)
    assert max(labels.values()) <= 0.8 * labels.total()


def test_answers_stand_in_their_contexts_and_differ(name):
    answers = Counter()
    for example in table(name, "span"):
        question, context = example.sequences
        ((start, end),) = example.label
        assert question and 0 <= start < end <= len(context)
        answers[context[start:end]] += 1
    assert max(answers.values()) <= 0.35 * answers.total()


def test_right_choices_stand_at_every_place_as_often(name):
    examples = table(name, "choice")
    assert all(len(example.sequences) == 5 for example in examples)
    places = Counter(example.label for example in examples)
    assert set(places) == {0, 1, 2, 3}
    assert max(places.values()) - min(places.values()) <= 1


@pytest.mark.parametrize("task", TASKS)
def test_records_are_short_enough_for_64_tokens(name, task):
    domain = registry.load(name)()
    examples = table(name, task)
    texts = [text for example in examples for text in example.sequences]
    domain.use(domain.tokenizer(map(domain.canonical, texts), 2048 if name in ("text", "multilingual") else None))
    joined = [
        (example.sequences[0], other) if len(example.sequences) > 1 else example.sequences
        for example in examples
        for other in example.sequences[1:] or ("",)
    ]
    lengths = [sum(domain.encode([domain.canonical(text) for text in pair]).lengths) + 1 + len(pair) for pair in joined]
    assert sum(length > 64 for length in lengths) <= 0.01 * len(lengths)


def test_fewer_items_than_asked_for_are_all_taken():
    assert evenly([1, 2, 3], 5) == [1, 2, 3]
    assert evenly(range(100), 4) == [0, 25, 50, 75]
