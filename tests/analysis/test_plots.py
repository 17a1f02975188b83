import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from seqbert.analysis import plots

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def picture(path: Path) -> np.ndarray:
    """The pixels of a PNG file, ``[height, width, 4]``."""
    from matplotlib.image import imread

    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    return imread(path)


def blue(pixels: np.ndarray) -> int:
    """How many pixels have the darkest colour of the scale, that of a share near 1."""
    return int((np.abs(pixels[..., :3] - [0.03, 0.19, 0.42]) < 0.05).all(axis=-1).sum())


@pytest.mark.parametrize("classes", [1, 2, 10, 25, 60, 1000])
def test_a_confusion_matrix_is_drawn_for_few_classes_and_for_many(classes: int, tmp_path: Path) -> None:
    matrix = np.diag(np.arange(1, classes + 1)) * 1000
    path = tmp_path / "evaluation" / "confusion.png"
    plots.confusion_matrix(matrix, [f"class {number}" for number in range(classes)], path)
    pixels = picture(path)
    height, width = pixels.shape[:2]
    assert min(height, width) > 200 and max(height, width) < 4000
    assert blue(pixels) > 0.25 * height * width / classes, "the diagonal is dark"


def test_a_confusion_matrix_shows_shares_of_rows_so_that_rare_classes_are_seen(tmp_path: Path) -> None:
    plots.confusion_matrix(np.array([[1_000_000, 0], [0, 2]]), ["frequent", "rare"], tmp_path / "rare.png")
    plots.confusion_matrix(np.array([[5, 0], [0, 5]]), ["frequent", "rare"], tmp_path / "even.png")
    rare, even = (blue(picture(tmp_path / name)) for name in ("rare.png", "even.png"))
    assert rare == pytest.approx(even, rel=0.05)


def test_names_of_any_kind_and_empty_rows_are_drawn(tmp_path: Path) -> None:
    names = ["$x_1$ and $", "東京", "", "a very long name of a class that goes on and on", "\\alpha"]
    plots.confusion_matrix(np.zeros((5, 5), int), names, tmp_path / "names.png")
    assert picture(tmp_path / "names.png").size


def test_a_matrix_that_does_not_fit_its_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 classes is square"):
        plots.confusion_matrix(np.zeros((3, 3), int), ["a", "b"], tmp_path / "x.png")


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        plots.confusion_matrix(np.eye(3, dtype=int), ["a", "b", "c"], tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


ORANGE = np.array([0xD9, 0x70, 0x2B]) / 255
BLUE = np.array([0x2F, 0x6D, 0xB3]) / 255


def coloured(pixels: np.ndarray, colour: np.ndarray) -> int:
    return int((np.abs(pixels[..., :3] - colour) < 0.02).all(axis=-1).sum())


def test_a_learning_curve_shows_the_loss_and_the_validation_metric(tmp_path: Path) -> None:
    losses = [{"step": step, "loss": 2 / step, "learning_rate": 1e-4} for step in range(1, 50)]
    plots.learning_curve(losses, tmp_path / "loss.png")
    validated = [{"step": 0, "validation": {"accuracy": 0.5}}, {"step": 40, "validation": {"accuracy": 0.9}}]
    plots.learning_curve([*losses, *validated], tmp_path / "both.png", "accuracy")
    loss, both = picture(tmp_path / "loss.png"), picture(tmp_path / "both.png")
    assert coloured(loss, BLUE) and not coloured(loss, ORANGE)
    assert coloured(both, BLUE) and coloured(both, ORANGE)


def test_a_learning_curve_reads_metrics_with_intervals_and_passes_over_what_is_no_number(tmp_path: Path) -> None:
    rows = [
        {"step": 0, "validation_x": {"pearson": {"value": None, "note": "constant"}}},
        {"step": 1, "loss": "nan"},
        {"step": 2, "loss": float("inf")},
        {"step": 3, "validation_x": {"pearson": {"value": 0.5, "low": 0.4, "high": 0.6}}},
        {"step": 6, "validation_x": {"pearson": {"value": 0.6, "low": 0.5, "high": 0.7}}},
    ]
    plots.learning_curve(rows, tmp_path / "curve.png")
    assert coloured(picture(tmp_path / "curve.png"), ORANGE)


@pytest.mark.parametrize("rows", [[], [{"step": 1, "loss": 0.0}], [{"step": 1}]])
def test_a_learning_curve_of_next_to_nothing_is_drawn(rows: list[dict[str, float]], tmp_path: Path) -> None:
    plots.learning_curve(rows, tmp_path / "curve.png")
    assert picture(tmp_path / "curve.png").size


@pytest.mark.parametrize(
    "values",
    [
        {"accuracy": [0.91, 0.92, 0.915], "mse": [120.5, 131.0, 99.0]},
        {"accuracy": [0.91]},
        {"accuracy": [0.0, 0.0]},
        {"accuracy": [float("nan")], "f1": []},
        {},
    ],
    ids=["several", "one", "zeros", "none finite", "nothing"],
)
def test_seeds_are_drawn(values: dict[str, list[float]], tmp_path: Path) -> None:
    plots.seeds(values, tmp_path / "seeds.png")
    finite = any(np.isfinite(value) for runs in values.values() for value in runs)
    assert bool(coloured(picture(tmp_path / "seeds.png"), ORANGE)) == finite


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np\nfrom pathlib import Path\nfrom seqbert.analysis import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plots.confusion_matrix(np.eye(2), ['a', 'b'], Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "x.png"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
