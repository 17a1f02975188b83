"""Nothing that a user could be sent is ever run: no pickle in any file, and no name in a config.

Python itself says what happens: its audit hook tells of each class that a pickle names, of each connection, process
and import. The payloads make a folder when they are unpickled, so that what escapes the hook is seen too.
"""

import ast
import base64
import contextlib
import gzip
import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import labelled
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import runs
import torch

import seqbert
from seqbert import registry
from seqbert.cli import main

BESIDE = ("rng_state.pth", "optimizer.pt", "scheduler.pt", "pytorch_model.bin", "training_args.bin", "model.pkl")
"""What other tools write beside their weights, and unpickle."""

_heard: list[tuple[str, str]] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _heard is not None and event in ("pickle.find_class", "socket.connect", "socket.getaddrinfo", "os.system"):
        _heard.append((event, str(arguments)))
    elif _heard is not None and event in ("subprocess.Popen", "os.exec", "import"):
        _heard.append((event, str(arguments[0])))


@pytest.fixture(scope="module", autouse=True)
def audit() -> None:
    """Python's audit hooks stay for good; this one listens within :func:`heard` alone."""
    sys.addaudithook(_hear)


@contextlib.contextmanager
def heard(*events: str) -> Iterator[list[str]]:
    """Gathers what happens of these events."""
    global _heard
    found: list[str] = []
    _heard = []
    try:
        yield found
    finally:
        found += [f"{event} {what}" for event, what in _heard if event in events]
        _heard = None


RUNS_CODE = ("pickle.find_class", "socket.connect", "socket.getaddrinfo", "os.system", "os.exec", "subprocess.Popen")


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def _pickled(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker))


def _textual(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker), protocol=0)  # ASCII, so that it passes for text


def _torch(marker: Path) -> bytes:
    out = io.BytesIO()
    torch.save({"state": Payload(marker)}, out)
    return out.getvalue()


def _numpy(marker: Path) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Payload(marker)], object), allow_pickle=True)
    return out.getvalue()


def _numpy_archive(marker: Path) -> bytes:
    out = io.BytesIO()
    np.savez(out, weights=np.array([Payload(marker)], object))
    return out.getvalue()


def _compressed(marker: Path) -> bytes:
    return gzip.compress(_pickled(marker))  # as joblib writes it


DISGUISES: dict[str, Callable[[Path], bytes]] = {
    "pickle": _pickled,
    "textual": _textual,
    "torch": _torch,
    "npy": _numpy,
    "npz": _numpy_archive,
    "gzip": _compressed,
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_payload_runs_where_it_is_unpickled(tmp_path: Path, disguise: str) -> None:
    """The other tests would see nothing if the payloads were blunt."""
    marker, data = tmp_path / "marker", io.BytesIO(DISGUISES[disguise](tmp_path / "marker"))
    with heard("pickle.find_class") as found:
        if disguise == "torch":
            torch.load(data, weights_only=False)
        elif disguise in ("npy", "npz"):
            loaded = np.load(data, allow_pickle=True)
            _ = loaded["weights"] if disguise == "npz" else loaded
        else:
            content = data.getvalue()
            pickle.loads(gzip.decompress(content) if disguise == "gzip" else content)
    assert marker.is_dir() and found


def command(marker: Path, *arguments: object, codes: tuple[int, ...] = (0, 2)) -> str:
    """Runs a command in this process, sees that nothing else ran, and gives what it said."""
    out, said = io.StringIO(), io.StringIO()
    with heard(*RUNS_CODE) as found, contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main([str(argument) for argument in arguments])
    told = [line for line in said.getvalue().split("\n") if line.startswith("seqbert: ")]
    assert not found and not marker.exists(), (arguments, found)
    assert code in codes, (arguments, code, said.getvalue()[-500:])
    assert len(told) == (code != 0) and "Traceback" not in said.getvalue(), (arguments, said.getvalue())
    return (told[0] if told else "") + out.getvalue()


class Place:
    """Runs to be spoilt, each time a fresh copy, and the commands that read them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = folder / "marker"
        self.texts = folder / "texts.txt"
        self.texts.write_text("the cat sees a dog\nthe old bird sleeps\n")
        seqbert.pretrain(
            runs.settings(folder, training={"steps": 2, "evaluate_every": 2}, run={"checkpoint_every": 2, "keep": 1})
        )
        seqbert.finetune(labelled.settings(folder / "tuned", training={"epochs": 1}))

    def copy(self, kind: str) -> Path:
        run = self.folder / "work" / "run"
        shutil.rmtree(run.parent, ignore_errors=True)
        shutil.copytree(self.original(kind), run)
        return run

    def original(self, kind: str) -> Path:
        return self.folder / ("run" if kind == "pretrained" else "tuned/run")

    def arguments(self, verb: str, kind: str, run: Path) -> list[object]:
        config, out = self.original(kind) / "config.yaml", run.parent
        trains = "pretrain" if kind == "pretrained" else "finetune"
        return {
            "fill": ["fill", run, "the [MASK] sees"],
            "describe": ["describe", run],
            "export": ["export", run, out / "exported"],
            "embed": ["embed", run, "--input", self.texts, "--output", out / "vectors.parquet"],
            "predict": ["predict", run, "--input", self.texts, "--output", out / "predictions.jsonl"],
            "evaluate": ["evaluate", run, "--data", self.folder / "tuned" / "reviews.csv"],
            "resume": [trains, config, "--output", run, "--resume", "auto"],
            "again": [trains, run / "config.yaml", "--output", out / "again"],
            "init": ["pretrain", self.original("pretrained") / "config.yaml", "--output", out / "next", "--init", run],
        }[verb]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("security"))


READ_BY = {
    "pretrained": {
        ".lock": ("resume",),
        "config.yaml": ("fill", "describe", "export", "resume", "again", "init"),
        "data.json": ("resume",),
        "metrics.jsonl": ("resume",),
        "result.json": ("resume",),
        "tokenizers/text/tokenizer.json": ("resume",),
        "model/config.json": ("fill", "describe", "export", "init"),
        "model/model.safetensors": ("fill", "describe", "export", "init"),
        "model/tokenizer.json": ("fill", "describe", "export", "init"),
        "model/tokenizer_config.json": ("embed", "export", "init"),
        "checkpoints/step-00000002/manifest.json": ("resume",),
        "checkpoints/step-00000002/model.safetensors": ("resume",),
        "checkpoints/step-00000002/optimizer.safetensors": ("resume",),
        "checkpoints/step-00000002/state.json": ("resume",),
        "model/training.json": ("resume",),
        "tensorboard/*": ("resume",),
    },
    "tuned": {
        "config.yaml": ("predict", "evaluate", "embed", "resume"),
        "task.json": ("predict", "evaluate", "embed"),
        "model/config.json": ("predict",),
        "model/model.safetensors": ("predict",),
        "model/tokenizer.json": ("predict",),
        "model/tokenizer_config.json": ("embed",),
        "metrics.jsonl": ("resume",),
        "evaluation/validation/metrics.json": ("evaluate",),
    },
}
"""Files of a run, and commands that read them."""


@pytest.mark.parametrize(("kind", "file"), [(kind, file) for kind, files in READ_BY.items() for file in files])
def test_row99_no_file_of_a_run_is_unpickled(place: Place, kind: str, file: str) -> None:
    verbs = READ_BY[kind][file]
    for disguise in ("pickle", "textual", "torch"):
        for verb in verbs if disguise == "pickle" else verbs[:1]:
            run = place.copy(kind)
            (spoilt,) = run.glob(file)
            spoilt.write_bytes(DISGUISES[disguise](place.marker))
            command(place.marker, *place.arguments(verb, kind, run))


def test_every_file_of_a_run_is_among_those_that_were_spoilt(place: Place) -> None:
    run = place.original("pretrained")
    spoilt = {path for file in READ_BY["pretrained"] for path in run.glob(file)}
    assert {path for path in run.rglob("*") if path.is_file()} == spoilt


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("disguise", ["pickle", "textual", "torch"])
def test_row99_a_checkpoint_whose_checksums_were_forged_is_not_unpickled(
    place: Place, file: str, disguise: str
) -> None:
    import hashlib

    run = place.copy("pretrained")
    folder = run / "checkpoints" / "step-00000002"
    (folder / file).write_bytes(DISGUISES[disguise](place.marker))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    command(place.marker, *place.arguments("resume", "pretrained", run), codes=(2,))


@pytest.mark.parametrize("verb", ["fill", "embed", "describe", "export", "resume", "init"])
def test_row99_what_other_tools_unpickle_beside_the_weights_is_passed_over_and_not_handed_on(
    place: Place, verb: str
) -> None:
    run = place.copy("pretrained")
    for folder in (run, run / "model", run / "checkpoints" / "step-00000002"):
        for name in BESIDE:
            (folder / name).write_bytes(_torch(place.marker))
    command(place.marker, *place.arguments(verb, "pretrained", run), codes=(0,))
    written = [path.name for name in ("exported", "next") for path in (run.parent / name).rglob("*")]
    assert not set(BESIDE) & set(written)


@pytest.mark.parametrize(
    "line",
    [
        "seed: !!python/object/apply:os.mkdir [MARKER]",
        "seed: !!python/name:os.mkdir",
        "seed: !!python/object/new:os.mkdir {args: [MARKER]}",
        "domains: !!python/object/apply:os.mkdir [MARKER]",
        "? !!python/object/apply:os.mkdir [MARKER]\n: 1",
        "x_note: !!python/object/apply:os.mkdir [MARKER]",
    ],
)
@pytest.mark.parametrize("kind", ["pretrained", "tuned"])
def test_yaml_tags_that_name_python_are_refused(place: Place, kind: str, line: str) -> None:
    run = place.copy(kind)
    text = (run / "config.yaml").read_text().replace("seed: 0", "")
    (run / "config.yaml").write_text(text + "\n" + line.replace("MARKER", str(place.marker)) + "\n")
    for verb in ("embed", "describe", "again"):
        command(place.marker, *place.arguments(verb, kind, run), codes=(2,))


def test_aliases_that_multiply_are_refused_before_they_fill_the_memory(place: Place) -> None:
    lines = ["x_0: &0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"x_{n}: &{n} [{', '.join([f'*{n - 1}'] * 9)}]" for n in range(1, 9)]  # 9 ** 9 values in all
    planted = place.folder / "planted.yaml"
    planted.write_text("\n".join(lines))
    for verb in ("pretrain", "finetune", "describe"):
        assert "200,000 values" in command(place.marker, verb, planted, codes=(2,))


def test_no_file_of_a_corpus_is_unpickled(place: Place) -> None:
    config = place.original("pretrained") / "config.yaml"
    whole, cache, output = (place.folder / "work" / name for name in ("whole", "cache", "next"))
    for folder in (whole, cache, output):
        shutil.rmtree(folder, ignore_errors=True)
    command(place.marker, "prepare", config, "--output", output, "--run.corpus_dir", whole, codes=(0,))
    (corpus,) = (path for path in whole.iterdir() if (path / "manifest.json").is_file())
    for file in sorted(path.relative_to(whole) for path in corpus.iterdir()):
        for disguise in ("pickle", "torch"):
            shutil.rmtree(cache, ignore_errors=True)
            shutil.copytree(whole, cache)
            (cache / file).write_bytes(DISGUISES[disguise](place.marker))
            for verb in ("prepare", "pretrain"):
                shutil.rmtree(output, ignore_errors=True)
                command(place.marker, verb, config, "--output", output, "--run.corpus_dir", cache)


# Hugging Face folders


@pytest.fixture
def foreign(place: Place) -> Path:
    """A checkpoint as ``save_pretrained`` of another program leaves it."""
    folder = place.folder / "work" / "foreign"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place.original("pretrained") / "model", folder)
    shutil.rmtree(folder.parent / "run", ignore_errors=True)
    return folder


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def takers(place: Place, folder: Path) -> Iterator[list[object]]:
    """The commands that take a Hugging Face folder."""
    out = folder.parent
    for name in ("imported", "next"):
        shutil.rmtree(out / name, ignore_errors=True)
    yield ["import", folder, out / "imported", "--domain", "text"]
    config = place.original("pretrained") / "config.yaml"
    yield ["pretrain", config, "--output", out / "next", "--init", folder]


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "tf_model.h5"])
def test_row99_pickled_weights_are_refused_with_the_way_to_convert_them(place: Place, foreign: Path, name: str) -> None:
    (foreign / "model.safetensors").unlink()
    (foreign / name).write_bytes(_torch(place.marker))
    for arguments in takers(place, foreign):
        assert "save_pretrained" in command(place.marker, *arguments, codes=(2,))


@pytest.mark.parametrize("disguise", ["pickle", "textual", "torch"])
@pytest.mark.parametrize(
    "file", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "features.json"]
)
def test_row99_no_file_of_a_foreign_checkpoint_is_unpickled(
    place: Place, foreign: Path, file: str, disguise: str
) -> None:
    (foreign / file).write_bytes(DISGUISES[disguise](place.marker))
    for arguments in takers(place, foreign):
        command(place.marker, *arguments)


@pytest.mark.parametrize("disguise", DISGUISES)
def test_row99_a_list_of_tokens_is_not_unpickled(place: Place, foreign: Path, disguise: str) -> None:
    (foreign / "tokenizer.json").unlink()
    (foreign / "vocab.txt").write_bytes(DISGUISES[disguise](place.marker))
    for arguments in takers(place, foreign):
        command(place.marker, *arguments, codes=(2,))


def test_row99_an_index_of_weights_does_not_lead_to_a_pickle_or_out_of_its_folder(place: Place, foreign: Path) -> None:
    (foreign / "model.safetensors").unlink()
    (foreign / "pytorch_model.bin").write_bytes(_torch(place.marker))
    (foreign.parent / "outside.safetensors").write_bytes(_pickled(place.marker))
    for named in ("pytorch_model.bin", "../outside.safetensors", str(foreign.parent / "outside.safetensors")):
        index = {"weight_map": {"bert.embeddings.word_embeddings.weight": named}}
        (foreign / "model.safetensors.index.json").write_text(json.dumps(index))
        for arguments in takers(place, foreign):
            command(place.marker, *arguments, codes=(2,))


HOSTILE_FIELDS: dict[str, Any] = {
    "auto_map": {"AutoModel": "planted.Model", "AutoConfig": "evil/repo--planted.Config"},
    "trust_remote_code": True,
    "custom_pipelines": {"fill-mask": {"impl": "planted.Pipeline"}},
    "_attn_implementation": "kernels-community/planted",
    "attn_implementation": "planted.attention",
    "_attn_implementation_internal": "evil/kernel:planted",
    "kernel_config": {"repo": "evil/kernel", "layers": ["planted.Layer"]},
    "hub_kernel": "evil/kernel",
    "architectures": ["planted.Model"],
    "_name_or_path": "https://evil.example/model",
    "base_model_name_or_path": "evil/model",
    "torch_dtype": "planted.dtype",
    "dtype": "__import__('planted')",
    "tokenizer_class": "planted.Tokenizer",
    "problem_type": "__import__('planted')",
    "id2label": {"0": "__import__('planted')"},
    "finetuning_task": {"__reduce__": "planted"},
}


def test_row101_names_in_a_config_are_neither_imported_nor_fetched(
    place: Place, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (foreign / "planted.py").write_text(f"import os\nos.mkdir({str(place.marker)!r})\n")
    for name in ("sitecustomize.py", "__init__.py", "modeling_planted.py"):
        shutil.copy(foreign / "planted.py", foreign / name)
    monkeypatch.chdir(foreign)
    monkeypatch.syspath_prepend(str(foreign))
    edit(foreign / "config.json", **HOSTILE_FIELDS)
    edit(
        foreign / "tokenizer_config.json",
        tokenizer_class="planted.Tokenizer",
        auto_map={"AutoTokenizer": ["planted.Tokenizer", None]},
        chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}",
        tokenizer_file="https://evil.example/tokenizer.json",
        name_or_path="evil/model",
    )
    (foreign / "tokenizer_planted.py").write_text("raise SystemExit")
    for arguments in takers(place, foreign):
        with contextlib.redirect_stdout(io.StringIO()):
            told = command(place.marker, *arguments, codes=(0,))
        if arguments[0] == "import":
            for field in ("auto_map", "trust_remote_code", "kernel_config", "hub_kernel", "custom_pipelines"):
                assert field in told  # each is named as ignored
    assert not [name for name in sys.modules if "planted" in name]
    imported = foreign.parent / "imported"
    assert "planted" not in (imported / "model" / "config.json").read_text()
    assert not list(imported.rglob("*.py"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "planted.Model"),
        ("model_type", ["bert"]),
        ("model_type", {"bert": 1}),
        ("hidden_act", "planted.activation"),
        ("hidden_act", "torch.hub.load"),
        ("position_embedding_type", "planted.positions"),
        ("quantization_config", {"quant_method": "planted"}),
        ("hidden_size", "__import__('planted')"),
        ("vocab_size", 10**18),
        ("num_hidden_layers", 10**9),
        ("max_position_embeddings", 10**15),
    ],
)
def test_row101_a_value_that_would_need_code_or_cannot_be_is_refused(
    place: Place, foreign: Path, field: str, value: Any
) -> None:
    edit(foreign / "config.json", **{field: value})
    for arguments in takers(place, foreign):
        command(place.marker, *arguments, codes=(2,))


def test_row101_a_name_is_no_address(place: Place, foreign: Path) -> None:
    config = place.original("pretrained") / "config.yaml"
    for name in ("bert-base-uncased", "https://evil.example/model", "evil/model", "hf://evil/model", "file:///etc"):
        command(place.marker, "import", name, foreign.parent / "imported", codes=(2,))
        command(place.marker, "pretrain", config, "--output", foreign.parent / "next", "--init", name, codes=(2,))
        command(place.marker, "fill", name, "a [MASK]", codes=(2,))
        if "://" not in name:  # data may lie at an address that a user names
            data = ("--domains.text.data", json.dumps([name]))
            command(place.marker, "prepare", config, "--output", foreign.parent / "n", *data, codes=(2,))


# Data


TABLES = ("csv", "tsv", "json", "jsonl", "parquet", "conllu", "conll", "txt", "csv.gz", "xlsx")


@pytest.mark.parametrize("ending", [*TABLES, "arrow", "pkl", "npy"])
def test_no_table_is_unpickled(place: Place, ending: str) -> None:
    run, tuned = place.copy("tuned"), place.original("tuned")
    for disguise, make in DISGUISES.items():
        table = run.parent / f"table.{ending}"
        table.write_bytes(make(place.marker))
        output = run.parent / "predictions.jsonl"
        # A textual pickle is a line of a text like any other where texts are read.
        command(place.marker, "predict", run, "--input", table, "--output", output)
        if disguise == "pickle":
            command(place.marker, "evaluate", run, "--data", table, codes=(2,))
            command(place.marker, "embed", run, "--input", table, "--output", run.parent / "vectors.parquet")
            train = json.dumps([str(table)])
            again = ("finetune", tuned / "config.yaml", "--output", run.parent / "again", "--data.train", train)
            command(place.marker, *again, codes=(2,))


@pytest.mark.parametrize("kept_as", ["field", "schema"])
def test_a_parquet_file_whose_types_are_pickles_is_read_as_what_it_holds(place: Place, kept_as: str) -> None:
    """Old releases of Arrow unpickled the type that such metadata names (CVE-2023-47248)."""
    texts, labels = pa.array(["good cat", "bad dog"] * 8), pa.array(["yes", "no"] * 8)
    extension = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": _pickled(place.marker),
    }
    pandas = {b"pandas": json.dumps({"columns": [{"metadata": base64.b64encode(_pickled(place.marker)).decode()}]})}
    field = pa.field("text", pa.string(), metadata=extension if kept_as == "field" else None)
    schema = pa.schema([field, pa.field("label", pa.string())], metadata=extension | pandas)
    table = place.folder / "types.parquet"
    pyarrow.parquet.write_table(pa.Table.from_arrays([texts, labels], schema=schema), table)
    run = place.copy("tuned")
    command(place.marker, "evaluate", run, "--data", table, codes=(0,))
    command(place.marker, "predict", run, "--input", table, "--output", run.parent / "p.parquet", codes=(0,))


def _formats() -> list[tuple[str, str]]:
    return [(row["name"], ending) for row in registry.listing() for ending in row.get("formats", {})]


@pytest.mark.parametrize(("domain", "ending"), _formats())
def test_no_file_of_a_domain_is_unpickled(place: Place, domain: str, ending: str) -> None:
    config = place.original("pretrained") / "config.yaml"
    for disguise, make in DISGUISES.items():
        data, output = place.folder / "work" / f"planted{ending}", place.folder / "work" / "next"
        shutil.rmtree(output, ignore_errors=True)
        data.parent.mkdir(exist_ok=True)
        data.write_bytes(make(place.marker))
        tree = {"output": str(output), "domains": {domain: {"data": [str(data)], "validation": 0}}}
        tree["run"] = {"workers": 0, "corpus_dir": str(place.folder / "work" / "corpora")}
        config = place.folder / "work" / "config.json"
        config.write_text(json.dumps(tree))
        command(place.marker, "prepare", config, codes=(0, 2) if disguise == "textual" else (2,))


def test_a_score_in_an_archive_is_not_unpickled(place: Place) -> None:
    data, config = place.folder / "work" / "planted.mxl", place.folder / "work" / "config.json"
    data.parent.mkdir(exist_ok=True)
    for make in DISGUISES.values():
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("META-INF/container.xml", "<container><rootfile full-path='data.pkl'/></container>")
            archive.writestr("data.pkl", make(place.marker))
        tree = {
            "output": str(place.folder / "work" / "next"),
            "domains": {"music": {"data": [str(data)]}},
            "run": {"workers": 0, "corpus_dir": str(place.folder / "work" / "corpora")},
        }
        config.write_text(json.dumps(tree))
        command(place.marker, "prepare", config, codes=(2,))


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_config_or_a_tokenizer_that_a_user_names_is_not_unpickled(place: Place, disguise: str) -> None:
    planted = place.folder / "planted.yaml"
    planted.write_bytes(DISGUISES[disguise](place.marker))
    config, output = place.original("pretrained") / "config.yaml", place.folder / "work" / "next"
    for verb in ("pretrain", "prepare", "finetune", "describe"):
        command(place.marker, verb, planted, codes=(2,))
    command(place.marker, "pretrain", config, "--output", output, "--domains.text.tokenizer", planted, codes=(2,))
    checkpoint = place.copy("pretrained") / "checkpoints" / "step-00000002"
    (checkpoint.parent / "planted").write_bytes(DISGUISES[disguise](place.marker))
    resumed = ("--output", checkpoint.parent.parent, "--resume", checkpoint.parent / "planted")
    command(place.marker, "pretrain", config, *resumed, codes=(2,))


# The code


UNPICKLERS = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "runpy", "code"}
RUNNERS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen"),
    *("torch.load", "torch.jit.load", "torch.hub.load", "pandas.read_pickle", "pd.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
}


def _faults(path: Path) -> Iterator[str]:
    """What in a module could run what a file holds."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (f"{where} imports {name}" for name in names if name.split(".")[0] in UNPICKLERS)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            literal = all(isinstance(argument, ast.Constant | ast.JoinedStr) for argument in node.args)
            if called in RUNNERS:
                yield f"{where} calls {called}"
            elif called in ("importlib.import_module", "import_module") and not _is_inside_a_package(node, literal):
                yield f"{where} imports a module by a name that is not in the code"
            for keyword in node.keywords:
                value = getattr(keyword.value, "value", None)
                if keyword.arg in ("allow_pickle", "trust_remote_code", "shell") and value is not False:
                    yield f"{where} sets {keyword.arg}"
                if keyword.arg == "weights_only" and value is not True:
                    yield f"{where} sets weights_only"
                if keyword.arg == "Loader":
                    yield f"{where} gives YAML a loader"
        elif isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            yield from (f"{where} derives from {base}" for base in bases & {"yaml.Loader", "yaml.UnsafeLoader"})


def _is_inside_a_package(node: ast.Call, literal: bool) -> bool:
    """Whether the name begins with a package that is written in the code: ``f"music21.{module}"``."""
    (name,) = node.args
    if isinstance(name, ast.JoinedStr):
        first = name.values[0]
        return isinstance(first, ast.Constant) and str(first.value).endswith(".")
    return literal


def test_no_module_can_run_what_a_file_holds(checkout: Path) -> None:
    modules = [path for package in ("seqbert", "domains") for path in (checkout / package).rglob("*.py")]
    assert len(modules) > 50
    assert [fault for path in sorted(modules) for fault in _faults(path)] == []


def test_the_check_of_the_code_finds_what_it_looks_for(tmp_path: Path) -> None:
    lines = (
        "import pickle",
        "from joblib import load",
        "import yaml, torch, importlib, numpy as np",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "importlib.import_module(settings['class'])",
        "importlib.import_module(f'{name}.model')",
        "eval(text)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    )
    (tmp_path / "bad.py").write_text("\n".join(lines))
    found = {fault.split()[0] for fault in _faults(tmp_path / "bad.py")}
    assert found == {f"bad.py:{number}" for number in range(1, len(lines) + 1) if number != 3}
