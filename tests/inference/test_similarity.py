"""One token in several contexts."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import runs

import seqbert
from seqbert.cli import main
from seqbert.errors import ConfigError, DataError

LINES = ["the cat sees a dog", "a dog never sleeps", "dogs and a Dog"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seqbert.pretrain(runs.settings(tmp_path_factory.mktemp("run"))).folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_each_place_of_a_whole_word_is_compared_and_its_vector_is_the_mean_of_its_pieces(
    trained: Path, lines: Path, tmp_path: Path
) -> None:
    """``seqbert embed`` gives the vectors of the pieces."""
    found = seqbert.similarity(trained, lines, "dog")
    assert found.places == ["1: …he cat sees a [dog]", "2: a [dog] never sleeps", "3: dogs and a [dog]"]
    assert found.layers == [0, 1, 2] and found.cosines.shape == (3, 3, 3)
    table = tmp_path / "texts.csv"
    table.write_text("sequence\n" + "\n".join(LINES) + "\n", encoding="utf-8")
    seqbert.embed(trained, table, tmp_path / "tokens.parquet", pooling="none", layers=[2])
    vectors = []
    for row, line in zip(pq.read_table(tmp_path / "tokens.parquet").to_pylist(), LINES, strict=True):
        place = line.lower().rindex("dog")
        own = [n for n, (start, end) in enumerate(zip(row["start"], row["end"], strict=True)) if end > place]
        own = [n for n in own if row["start"][n] < place + 3]
        vectors.append(np.mean([row["vectors"][n] for n in own], axis=0))
    normed = np.array([vector / np.linalg.norm(vector) for vector in vectors])
    np.testing.assert_allclose(found.cosines[2], normed @ normed.T, atol=1e-4)


def test_places_can_be_named_in_place_of_a_token(trained: Path, lines: Path) -> None:
    found = seqbert.similarity(trained, lines, at=["1:2", "2:2"], layers=[1])
    assert [place.partition("[")[2].partition("]")[0] for place in found.places] == ["cat", "dog"]
    assert found.cosines.shape == (1, 2, 2)


def test_in_a_long_record_the_token_is_seen_in_a_window_around_it(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(f"{'cat ' * 100}river{' dog' * 100}\nthe river\n", encoding="utf-8")
    assert seqbert.similarity(trained, path, "river").cosines.shape == (3, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"token": "horse"}, DataError, "0 places of 3 records"),
        ({"token": "cat"}, DataError, "1 places"),
        ({}, ConfigError, "--token"),
        ({"token": "dog", "layers": [9]}, ConfigError, "0 .the embeddings. to 2"),
        ({"at": ["1:9", "1:1"]}, ConfigError, "has 5 words"),
        ({"at": ["7:1", "1:1"]}, ConfigError, "from 1 to 3"),
    ],
)
def test_a_mistake_is_an_error_that_says_what_there_is(
    trained: Path, lines: Path, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        seqbert.similarity(trained, lines, **arguments)


def test_the_command_draws_heat_maps_and_prints_the_cosines(
    trained: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["similarity", str(trained), str(lines), "--token", "dog", "--output", str(tmp_path / "sim.png")]
    assert main(command) == 0
    assert "2: a [dog] never sleeps" in capsys.readouterr().out
    assert (tmp_path / "sim.png").stat().st_size > 10_000 and (tmp_path / "sim.svg").is_file()
    assert main([*command, "--json"]) == 0
    assert np.array(json.loads(capsys.readouterr().out)["cosines"]).shape == (3, 3, 3)
