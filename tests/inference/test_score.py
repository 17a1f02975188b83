import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from model_runs import write_run

from seqbert.cli import main
from seqbert.errors import CheckpointError, ConfigError, DataError
from seqbert.inference.score import score
from seqbert.inference.trained import Trained

SEQUENCE = "ACGTTGCAACGTAGCTAGGT"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked LM on DNA, a token a base, trained on sequences of 24 tokens."""
    return write_run(tmp_path_factory.mktemp("score") / "run", "dna")


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal LM on DNA."""
    return write_run(tmp_path_factory.mktemp("causal") / "run", "dna", causal=True)


@pytest.fixture(scope="module")
def kmers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked LM on overlapping 3-mers."""
    return write_run(tmp_path_factory.mktemp("kmers") / "run", "dna", {"tokens": "kmer", "k": 3})


@pytest.fixture(scope="module")
def codons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked LM on bases whose masking unit is the codon."""
    return write_run(tmp_path_factory.mktemp("codons") / "run", "dna", {"unit": "codon"})


def log_probabilities(trained: Trained, ids: np.ndarray, hidden: list[int], asked: int) -> torch.Tensor:
    """What a model says of one place, one sequence at a time: ``[vocabulary]``."""
    shown = ids.copy()
    shown[hidden] = trained.token_ids("[MASK]")
    states = trained.hidden(trained.sequence(shown))
    with torch.no_grad():
        return trained.heads["masked_lm"](states[asked + 1][None]).log_softmax(-1)[0]  # type: ignore[no-any-return]


def encoded(trained: Trained, text: str) -> np.ndarray:
    return trained.domain.encode([text]).ids.astype(np.int64)


def test_a_score_is_the_sum_over_each_token_masked_in_turn(run: Path) -> None:
    trained = Trained.of_run(run)
    ids = encoded(trained, SEQUENCE)
    expected = [float(log_probabilities(trained, ids, [place], place)[ids[place]]) for place in range(len(ids))]
    row = score(run, sequence=SEQUENCE, positions=True).rows[0]
    assert row["score"] == pytest.approx(sum(expected), abs=1e-4)
    assert [place["log_probability"] for place in row["positions"]] == pytest.approx(expected, abs=1e-5)
    assert [(place["start"], place["token"]) for place in row["positions"]] == list(enumerate(SEQUENCE))
    assert row["bits_per_symbol"] == pytest.approx(-row["score"] / math.log(2) / 20)
    assert row["perplexity"] == pytest.approx(math.exp(-row["score"] / 20))


def test_scores_do_not_depend_on_what_is_scored_together(run: Path, tmp_path: Path) -> None:
    texts = [SEQUENCE[:n] for n in (20, 3, 12, 1, 20)] + [SEQUENCE * 3]
    path = tmp_path / "some.fasta"
    path.write_text("".join(f">r{n}\n{text}\n" for n, text in enumerate(texts)))
    trained = Trained.of_run(run)
    single = dataclasses.replace(trained, device=dataclasses.replace(trained.device, micro_tokens=1))
    together, apart = ([row["score"] for row in score(model, path).rows] for model in (trained, single))
    alone = [score(trained, sequence=text).rows[0]["score"] for text in texts]
    assert together == pytest.approx(apart, abs=1e-4) and together == pytest.approx(alone, abs=1e-4)


def test_a_token_of_a_long_sequence_is_seen_in_the_middle_of_a_window(run: Path) -> None:
    trained = Trained.of_run(run)
    text = SEQUENCE * 3
    ids = encoded(trained, text)
    places = score(run, sequence=text, positions=True).rows[0]["positions"]
    assert len(places) == 60  # each token once
    for place, start in ((0, 0), (30, 19), (59, 38)):  # windows of 22 bases
        window = ids[start : start + 22]
        expected = log_probabilities(trained, window, [place - start], place - start)[ids[place]]
        assert places[place]["log_probability"] == pytest.approx(float(expected), abs=1e-5)


def test_of_overlapping_tokens_all_that_show_a_base_are_masked(kmers: Path) -> None:
    trained = Trained.of_run(kmers)
    ids = encoded(trained, SEQUENCE)  # 18 tokens
    row = score(kmers, sequence=SEQUENCE, positions=True).rows[0]
    expected = [
        float(log_probabilities(trained, ids, list(range(max(0, place - 2), place + 1)), place)[ids[place]])
        for place in range(17)  # behind the last token there is none that shows its other bases
    ]
    assert [place["log_probability"] for place in row["positions"]] == pytest.approx(expected, abs=1e-5)
    assert (row["tokens"], row["scored"], row["symbols"]) == (18, 17, 17)


def test_a_causal_score_is_the_log_likelihood(causal: Path) -> None:
    trained = Trained.of_run(causal)
    ids = encoded(trained, SEQUENCE)
    with torch.no_grad():
        rows = trained.heads["masked_lm"](trained.hidden(trained.sequence(ids))).log_softmax(-1)
    expected = float(rows[torch.arange(20), torch.from_numpy(ids)].sum())
    result = score(causal, sequence=SEQUENCE)
    assert result.rows[0]["score"] == pytest.approx(expected, abs=1e-4)
    assert result.summary["kind"] == "log-likelihood"


def test_the_causal_probabilities_of_all_continuations_sum_to_one(causal: Path) -> None:
    trained = Trained.of_run(causal)
    vocabulary = trained.domain.vocabulary.get_vocab()
    letters = [token for token in vocabulary if len(token) == 1]
    beginning = score(trained, sequence="ACG").rows[0]["score"]
    following = [score(trained, sequence="ACG" + letter).rows[0]["score"] - beginning for letter in letters]
    ids = encoded(trained, "ACG")
    with torch.no_grad():
        row = trained.heads["masked_lm"](trained.hidden(trained.sequence(ids))[3][None]).softmax(-1)[0]
    special = float(row[[index for token, index in vocabulary.items() if len(token) > 1]].sum())
    assert sum(map(math.exp, following)) + special == pytest.approx(1.0, abs=1e-4)


def test_a_long_causal_sequence_is_read_in_windows_each_token_once(causal: Path) -> None:
    row = score(causal, sequence=SEQUENCE * 3, positions=True).rows[0]
    assert [place["start"] for place in row["positions"]] == list(range(60))
    short = score(causal, sequence=(SEQUENCE * 3)[:22], positions=True).rows[0]["positions"]
    assert [p["log_probability"] for p in row["positions"][:22]] == pytest.approx(
        [p["log_probability"] for p in short], abs=1e-5
    )


def test_tokens_of_a_unit_are_masked_together_where_that_is_asked_for(codons: Path) -> None:
    trained = Trained.of_run(codons)
    ids = encoded(trained, SEQUENCE)
    places = score(codons, sequence=SEQUENCE, positions=True, unit="codon").rows[0]["positions"]
    expected = log_probabilities(trained, ids, [3, 4, 5], 4)[ids[4]]
    assert places[4]["log_probability"] == pytest.approx(float(expected), abs=1e-5)


def test_the_symbols_of_unknown_tokens_are_not_scored(run: Path, tmp_path: Path) -> None:
    text = write_run(tmp_path / "text", "text", segments=("a small cat sees a small dog",) * 4)
    row = score(text, sequence="a small \N{SNOWMAN} cat").rows[0]
    assert row["tokens"] == row["scored"] + 1 and row["score"] < 0
    nothing = score(text, sequence="\N{SNOWMAN}")
    assert nothing.rows[0]["score"] is None and nothing.summary["not_scored"] == 1


def test_pairs_are_right_where_the_first_has_the_higher_score_and_ties_count_half(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    one, two = sorted((SEQUENCE, SEQUENCE[::-1]), key=lambda text: score(run, sequence=text).rows[0]["score"])
    path.write_text(f"good,bad\n{two},{one}\n{one},{two}\n{one},{one}\n{two},{one}\n")
    result = score(run, path, pairs=True, options=["--columns.sequence", "good", "--columns.pair", "bad"])
    assert [row["correct"] for row in result.rows] == [1.0, 0.0, 0.5, 1.0]
    assert result.summary["accuracy"] == pytest.approx(2.5 / 4)


def test_a_mutation_is_scored_by_its_masked_marginal(run: Path) -> None:
    trained = Trained.of_run(run)
    ids = encoded(trained, SEQUENCE)
    (guanine, adenine, thymine) = trained.token_ids("G", "A", "T")
    alone = log_probabilities(trained, ids, [2], 2)
    result = score(run, sequence=SEQUENCE, mutations="G3A,g3t:A1T")
    assert result.rows[0]["score"] == pytest.approx(float(alone[adenine] - alone[guanine]), abs=1e-5)
    third, first = (log_probabilities(trained, ids, [0, 2], place) for place in (2, 0))
    both = third[thymine] - third[guanine] + first[thymine] - first[adenine]
    assert result.rows[1]["mutations"] == "G3T:A1T"
    assert result.rows[1]["score"] == pytest.approx(float(both), abs=1e-5)


def test_every_mutation_is_scored_as_it_is_by_name(run: Path) -> None:
    rows = score(run, sequence=SEQUENCE, mutations="all:ACGT").rows
    assert len(rows) == 3 * len(SEQUENCE)
    by_name = score(run, sequence=SEQUENCE, mutations="A1C,T20G").rows
    found = {row["mutations"]: row["score"] for row in rows}
    assert [found[row["mutations"]] for row in by_name] == pytest.approx([row["score"] for row in by_name], abs=1e-5)


def test_mutations_stand_in_a_file_or_beside_their_sequences(run: Path, tmp_path: Path) -> None:
    named = tmp_path / "mutations.txt"
    named.write_text("# of the first record\nA1C\n\nC2G:G3A\n")
    record, table = tmp_path / "one.fasta", tmp_path / "table.csv"
    record.write_text(f">one\n{SEQUENCE}\n")
    table.write_text(f"sequence,mutant\n{SEQUENCE},A1C\n{SEQUENCE},C2G:G3A\n")
    from_file = score(run, record, mutations=str(named)).rows
    from_table = score(run, table, mutations="column:mutant").rows
    assert [row["mutations"] for row in from_file] == [row["mutations"] for row in from_table] == ["A1C", "C2G:G3A"]
    assert [row["score"] for row in from_file] == pytest.approx([row["score"] for row in from_table], abs=1e-5)


@pytest.mark.parametrize(
    ("mutations", "named"),
    [
        ("C1G", '"C" stands at position 1, and there stands "A"'),
        ("A21G", "the sequence has 20"),
        ("A0G", "the sequence has 20"),
        ("A1Z", '"Z"'),
        ("42", "is no substitution"),
        ("A1G:A1C", "two substitutions at one position"),
        ("all:AZ", '"Z"'),
    ],
)
def test_a_mutation_that_does_not_fit_is_named(run: Path, mutations: str, named: str) -> None:
    with pytest.raises(DataError, match=named):
        score(run, sequence=SEQUENCE, mutations=mutations)


def test_mutations_of_one_sequence_are_not_scored_in_another(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.fasta"
    path.write_text(f">one\n{SEQUENCE}\n>two\n{SEQUENCE}\n")
    with pytest.raises(DataError, match=r"two\.fasta:2: .* second record"):
        score(run, path, mutations="A1C")


def test_mutations_need_a_token_for_each_symbol(kmers: Path, causal: Path, tmp_path: Path) -> None:
    blocks = write_run(tmp_path / "blocks", "dna", {"tokens": "block", "k": 3})
    for folder in (kmers, blocks):
        with pytest.raises((ConfigError, DataError), match="single symbols"):
            score(folder, sequence=SEQUENCE, mutations="A1C")
    with pytest.raises(CheckpointError, match="causal"):
        score(causal, sequence=SEQUENCE, mutations="A1C")


def test_a_model_without_a_language_model_head_is_refused(tmp_path: Path) -> None:
    bare = write_run(tmp_path / "bare", "dna", heads=())
    with pytest.raises(CheckpointError, match="no language-model head"):
        score(bare, sequence=SEQUENCE)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_scores_are_written_in_the_form_that_the_ending_says(run: Path, tmp_path: Path, ending: str) -> None:
    record, output = tmp_path / "one.fasta", tmp_path / f"scores{ending}"
    record.write_text(f">one\n{SEQUENCE}\n>two\nACG\n")
    rows = score(run, record, output, positions=ending != ".csv").rows
    if ending == ".jsonl":
        assert [json.loads(line) for line in output.read_text().splitlines()] == rows
    elif ending == ".parquet":
        assert pq.read_table(output).to_pylist() == rows
    else:
        assert output.read_text().splitlines()[1].startswith(f"one,{record}:1,{rows[0]['score']}")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"sequence": SEQUENCE, "data": "x.fasta"},
        {"sequence": SEQUENCE, "pairs": True},
        {"sequence": SEQUENCE, "mutations": "A1C", "positions": True},
        {"sequence": SEQUENCE, "mutations": "A1C", "unit": "span"},
        {"sequence": SEQUENCE, "unit": "word"},
        {"sequence": SEQUENCE, "output": "scores.txt"},
        {"sequence": SEQUENCE, "output": "scores.csv", "positions": True},
    ],
    ids=str,
)
def test_arguments_that_do_not_go_together_are_refused(run: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        score(run, **arguments)


def test_the_command_prints_scores_and_a_summary(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.fasta"
    path.write_text("".join(f">r{number}\n{SEQUENCE}\n" for number in range(25)))
    assert main(["score", str(run), "--input", str(path)]) == 0
    out = capsys.readouterr().out
    assert "r19" in out and "r20" not in out and "5 more rows" in out and "records 25" in out
    assert main(["score", str(run), "--sequence", SEQUENCE, "--mutations", "A1C", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["mutations"] == "A1C"
    assert main(["score", str(run), "--sequence", SEQUENCE, "--mutations", "C1A"]) == 2
    assert "position 1" in capsys.readouterr().err
