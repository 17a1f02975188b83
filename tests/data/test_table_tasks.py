"""What a row of a labelled file becomes, task by task."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from seqbert import registry
from seqbert.data.table import Columns, TableOptions, read_examples
from seqbert.domain import Domain, Example, Report
from seqbert.errors import DataError


@pytest.fixture(scope="module")
def text() -> Domain:
    return registry.load("text")()


def read(path: Path, domain: Domain, task: str, report: Report | None = None, **keys: Any) -> list[Example]:
    how = {name: keys.pop(name) for name in ("labelled", "multilabel") if name in keys}
    return list(read_examples([path], task, TableOptions(**keys), domain, report or Report(), **how))


def table(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def test_row39_whole_numbers_are_classes_by_one_name_each(tmp_path: Path, text: Domain) -> None:
    rows = [{"text": "a", "label": label} for label in (1, 1.0, "1", " 1.0 ", "01", "+")]
    labels = [example.label for example in read(table(tmp_path / "a.jsonl", *rows), text, "classification")]
    assert labels == ["1", "1", "1", "1", "01", "+"]


@pytest.mark.parametrize("label", [0.5, "0.5", "-1.25e-3"])
def test_row39_a_fraction_is_no_class_and_the_error_names_its_row_and_regression(
    tmp_path: Path, text: Domain, label: Any
) -> None:
    path = table(tmp_path / "a.jsonl", {"text": "a", "label": 1}, {"text": "b", "label": label})
    with pytest.raises(DataError, match=rf"{path}:2: the label {label} is a fraction.*regression"):
        read(path, text, "classification")


def test_row39_whole_numbers_are_quantities_in_regression(tmp_path: Path, text: Domain) -> None:
    rows = [{"text": "a", "label": label} for label in (0, "1", 3, "2.5", "high", "nan", None)]
    report = Report()
    labels = [example.label for example in read(table(tmp_path / "a.jsonl", *rows), text, "regression", report)]
    assert labels == [0.0, 1.0, 3.0, 2.5] and all(isinstance(label, float) for label in labels)
    assert report.skips == {"a label that is no number": 2, "no label": 1}


def test_records_may_have_several_classes_in_a_list_or_between_bars(tmp_path: Path, text: Domain) -> None:
    rows = [{"text": "a", "labels": labels} for labels in (["x", "y"], "y|x", [], "", 3)]
    examples = read(table(tmp_path / "a.jsonl", *rows), text, "classification", multilabel=True)
    assert [example.label for example in examples] == [["x", "y"], ["y", "x"], [], [], ["3"]]


def test_labels_that_do_not_fit_are_none_in_prediction(tmp_path: Path, text: Domain) -> None:
    path = table(tmp_path / "a.jsonl", {"text": "a", "label": "high"}, {"text": "b", "label": None})
    assert [example.label for example in read(path, text, "regression", labelled=False)] == [None, None]
    fraction = table(tmp_path / "b.jsonl", {"text": "a", "label": 0.5}, {"text": "b", "label": [1]})
    assert [example.label for example in read(fraction, text, "classification", labelled=False)] == [None, None]


CONLLU = """# newdoc id = news
# sent_id = news-1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
2.1\tquizá\tquizá\tADV\tR\t_\t_\t_\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tS\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tD\t_\t5\tdet\t_\t_
5\tMar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_

# sent_id = news-2
1\tx\tx\tX
"""


def test_conllu_gives_its_words_and_neither_multiword_tokens_nor_empty_nodes(tmp_path: Path, text: Domain) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    report = Report()
    [example] = read(path, text, "tagging", report)
    assert example.sequences == ("vamos nos a el mar",)
    assert example.label == ["VERB", "PRON", "ADP", "DET", "NOUN"]
    assert (example.id, example.source, example.metadata) == ("news-1", f"{path}:4", {"document": "news"})
    assert example.words is not None
    assert [example.sequences[0][start:end] for start, end in example.words] == ["vamos", "nos", "a", "el", "mar"]
    assert report.skipped_records == 1 and report.examples.popitem()[1] == [f"{path}:14"]
    assert read(path, text, "tagging", columns=Columns(label="xpos"))[0].label == ["V", "P", "S", "D", "N"]
    with pytest.raises(DataError, match='no column of CoNLL-U.*Did you mean "deprel"'):
        read(path, text, "tagging", columns=Columns(label="deprle"))


def test_columns_are_words_with_labels_and_blank_lines_between_sentences(tmp_path: Path, text: Domain) -> None:
    path = tmp_path / "a.conll"
    path.write_text(
        "-DOCSTART- -X- O O\n\n# id 1\nEU NNP B-NP B-ORG\n# NN B-NP O\n\n\n"
        "-DOCSTART- -X- O O\n\nParis  NNP B-NP\tB-LOC\n\n"
        "Rome NNP B-NP B-LOC\nfell VBD\n",
        encoding="utf-8",
    )
    report = Report()
    [example] = read(path, text, "tagging", report)
    assert (example.sequences, example.label) == (("eu #",), ["B-ORG", "O"])
    assert (example.source, example.metadata) == (f"{path}:4", {"document": "1"})
    assert report.skips == {"a sentence with a line that has not 4 cells": 2}
    assert read(path, text, "tagging", columns=Columns(label=1))[0].label == ["NNP", "NN"]
    named = read(path, text, "tagging", names=["word", "pos", "chunk", "ner"], columns=Columns(label="chunk"))
    assert named[0].label == ["B-NP", "B-NP"]
    with pytest.raises(DataError, match="4 columns"):
        read(path, text, "tagging", columns=Columns(label=4))


def test_a_word_pattern_takes_what_stands_before_the_word_away(tmp_path: Path, text: Domain) -> None:
    path = tmp_path / "train"
    path.write_text("en:Paris\tB-LOC\nen::\tO\n\nen:x\tO\n", encoding="utf-8")
    examples = read(path, text, "tagging", word_pattern="^[a-z-]+:(.*)$")
    assert [example.sequences[0] for example in examples] == ["paris :", "x"]


def test_words_without_labels_are_enough_for_prediction(tmp_path: Path, text: Domain) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Paris\nfell\n", encoding="utf-8")
    [example] = read(path, text, "tagging", labelled=False)
    assert (example.sequences, example.label) == (("paris fell",), None)
    with pytest.raises(DataError, match="one column"):
        read(path, text, "tagging")


def test_tokens_and_tags_come_as_lists_of_json_and_parquet(tmp_path: Path, text: Domain) -> None:
    rows = [{"tokens": ["New York", "\u200b", "is"], "tags": [3, 0, 0]}, {"tokens": ["a", "b"], "tags": [1]}]
    pandas.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    for path in (table(tmp_path / "a.jsonl", *rows), tmp_path / "a.parquet"):
        report = Report()
        [example] = read(path, text, "tagging", report)
        assert (example.sequences, example.label) == (("new york is",), ["3", "0", "0"])
        np.testing.assert_array_equal(example.words, [[0, 8], [8, 8], [9, 11]])
        assert report.skips == {"labels that are not as many as the words": 1}


def test_a_text_of_labels_is_one_a_symbol_or_one_a_word(tmp_path: Path, text: Domain) -> None:
    rows = [
        {"text": "the sea", "labels": "DN"},
        {"text": "the sea", "labels": "DET NOUN"},
        {"text": "the blue sea", "labels": "N V"},
        {"text": "the blue sea", "labels": ["D", "A", "N"]},
    ]
    report = Report()
    examples = read(table(tmp_path / "a.jsonl", *rows), text, "tagging", report)
    assert [example.label for example in examples] == [["D", "N"], ["DET", "NOUN"], ["D", "A", "N"]]
    assert all(example.words is None for example in examples) and report.skipped_records == 1


def test_lists_of_residues_stand_side_by_side(tmp_path: Path) -> None:
    path = table(tmp_path / "a.jsonl", {"tokens": ["M", "K", "v"], "tags": ["H", "H", "C"]})
    [example] = read(path, registry.load("protein")(), "tagging")
    assert example.sequences == ("MKV",)
    np.testing.assert_array_equal(example.words, [[0, 1], [1, 2], [2, 3]])


def squad(path: Path, context: str, *answers: dict[str, Any], **question: Any) -> Path:
    asked = {"id": "q1", "question": "Which?", "answers": list(answers)} | question
    paragraphs = [{"context": context, "qas": [asked]}]
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "T", "paragraphs": paragraphs}]}))
    return path


def test_row46_the_context_keeps_its_blanks_and_the_answer_its_place(tmp_path: Path, text: Domain) -> None:
    path = squad(tmp_path / "a.json", "  Blue Nile flows", {"text": "Blue Nile", "answer_start": 2})
    report = Report()
    [example] = read(path, text, "span", report)
    assert (example.sequences, example.label) == (("which?", "  Blue Nile flows"), [(2, 11)])
    assert (example.id, example.source, example.metadata) == ("q1", f"{path}:1", {"title": "T"})
    assert report.repaired_records == 0


def test_row46_an_answer_that_is_shifted_is_repaired_and_told(tmp_path: Path, text: Domain) -> None:
    path = squad(tmp_path / "a.json", "  Blue Nile flows", {"text": "Blue Nile", "answer_start": 1})
    report = Report()
    assert read(path, text, "span", report)[0].label == [(2, 11)]
    assert report.to_dict()["records"]["repaired"] == 1


@pytest.mark.parametrize("answer", ["Nile", "Ganges"])
def test_row46_an_answer_whose_place_cannot_be_told_is_left_out_and_told(
    tmp_path: Path, text: Domain, answer: str
) -> None:
    context = "Nile and Nile"
    report = Report()
    with pytest.raises(DataError, match="does not stand in the context"):
        read(squad(tmp_path / "a.json", context, {"text": answer, "answer_start": 1}), text, "span", report)
    good = {"text": "and", "answer_start": 5}
    [example] = read(
        squad(tmp_path / "b.json", context, {"text": answer, "answer_start": 1}, good), text, "span", report
    )
    assert example.label == [(5, 8)]
    assert report.tallies["answers left out that do not stand in the context, beside others that do"] == 1


def test_questions_without_an_answer_are_unanswerable_and_those_without_the_key_have_no_label(
    tmp_path: Path, text: Domain
) -> None:
    path = squad(tmp_path / "a.json", "x")
    assert read(path, text, "span")[0].label == []
    impossible = squad(tmp_path / "b.json", "x", {"text": "x", "answer_start": 0}, is_impossible=True)
    assert read(impossible, text, "span")[0].label == []
    unknown = squad(tmp_path / "c.json", "x", answers=None)
    assert read(unknown, text, "span", labelled=False)[0].label is None


def test_row49_blank_contexts_and_questions_are_kept(tmp_path: Path, text: Domain) -> None:
    [example] = read(squad(tmp_path / "a.json", " ", question="Who?"), text, "span")
    assert example.sequences == ("who?", " ")
    [example] = read(squad(tmp_path / "b.json", "", question=" "), text, "span")
    assert example.sequences == ("", "")


def test_answers_come_in_hugging_faces_flat_shape_and_as_two_columns(tmp_path: Path, text: Domain) -> None:
    flat = [
        {"id": "1", "title": "T", "context": "a b", "question": "q", "answers": {"text": ["b"], "answer_start": [2]}},
        {"id": "2", "title": "T", "context": "a b", "question": "q", "answers": {"text": [], "answer_start": []}},
    ]
    pandas.DataFrame(flat).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(json.dumps({"data": flat}))
    (tmp_path / "a.csv").write_text("id,title,context,question,answer,start\n1,T,a b,q,b,2\n2,T,a b,q,,\n")
    for path in (table(tmp_path / "a.jsonl", *flat), tmp_path / "a.parquet", tmp_path / "a.json", tmp_path / "a.csv"):
        examples = read(path, text, "span")
        assert [example.label for example in examples] == [[(2, 3)], []], path
        assert examples[0].metadata == {"title": "T"} and [example.id for example in examples] == ["1", "2"]


def test_half_of_a_surrogate_pair_in_a_context_is_replaced_without_moving_answers(tmp_path: Path, text: Domain) -> None:
    path = squad(tmp_path / "a.json", "\ud800 b", {"text": "b", "answer_start": 2})
    report = Report()
    [example] = read(path, text, "span", report)
    assert example.sequences[1] == "\ufffd b" and example.label == [(2, 3)]
    assert report.tallies == {"halves of surrogate pairs replaced by U+FFFD": 1}


def test_choices_continue_a_beginning_as_in_swag(tmp_path: Path, text: Domain) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sent1,sent2,ending0,ending1,ending2,ending3,label\nHe ran.,He,fell.,sat.,hid.,won.,2\n")
    [example] = read(path, text, "choice")
    assert example.sequences == ("he ran.", "he fell.", "he sat.", "he hid.", "he won.") and example.label == 2


def test_the_right_choice_is_given_by_number_letter_name_or_text(tmp_path: Path, text: Domain) -> None:
    rows = [
        {"question": "q", "choice1": "10", "choice2": "Eleven", "label": label} for label in (1, "B", " Eleven", "1.0")
    ]
    assert [example.label for example in read(table(tmp_path / "a.jsonl", *rows), text, "choice")] == [1, 1, 1, 1]
    arc = {"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "1"}
    [example] = read(table(tmp_path / "b.jsonl", arc), text, "choice")
    assert (example.sequences, example.label) == (("q", "x", "y"), 0)


def test_a_label_that_is_no_choice_or_a_choice_that_is_empty_is_left_out_and_told(tmp_path: Path, text: Domain) -> None:
    rows = [
        {"question": "q", "choice1": "x", "choice2": "y", "label": 2},
        {"question": "q", "choice1": "x", "choice2": "", "label": 0},
        {"question": "q", "choice1": "x", "choice2": "y", "label": 0},
    ]
    report = Report()
    assert len(read(table(tmp_path / "a.jsonl", *rows), text, "choice", report)) == 1
    assert report.skips == {"a label that is none of the choices": 1, "an empty cell": 1}


def test_sentences_of_words_serve_where_texts_are_expected(tmp_path: Path, text: Domain) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU, encoding="utf-8")
    [example] = read(path, text, "classification", labelled=False)
    assert (example.sequences, example.label) == (("vamos nos a el mar",), None)


def test_plain_records_have_no_questions_or_choices(tmp_path: Path) -> None:
    path = tmp_path / "a.fasta"
    path.write_text(">a\nACGT\n")
    for task in ("span", "choice"):
        with pytest.raises(DataError, match="needs a table"):
            read(path, registry.load("dna")(), task, labelled=False)
