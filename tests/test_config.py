"""What users rely on when they write configs: in YAML, on the command line and in Python."""

from __future__ import annotations

import random
import string
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from seqbert import config
from seqbert.errors import ConfigError, DomainError, SeqbertError

# A schema like the one that pretraining has; its two domains stand in for plugins.


@dataclass
class KmerOptions:
    tokens: Literal["kmer", "bpe"] = "kmer"
    """What a token is."""
    k: int = 6
    """Length of a k-mer, in bases."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, and is {self.k}.")


@dataclass
class WordOptions:
    lowercase: bool = True


OPTIONS: Mapping[str, type] = {"dna": KmerOptions, "text": WordOptions}


@dataclass
class DomainConfig:
    data: list[str]
    """Files, folders and globs."""
    options: Any = None
    validation: float | str = 0.05
    vocab_size: int | None = None
    weight: float = 1.0

    @classmethod
    def field_types(cls, key: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        if key not in OPTIONS:
            raise DomainError(f'There is no domain "{key}".')
        return {"options": OPTIONS[key]}


@dataclass
class MaskedLM:
    probability: float = 0.15
    """The share of units that are hidden."""
    unit: str = "token"

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise ValueError(f"probability must lie between 0 and 1, and is {self.probability}.")


@dataclass
class ObjectiveConfig:
    masked_lm: MaskedLM | None = field(default_factory=MaskedLM)
    """Masked language modelling."""
    pair: Literal["next_sentence", "sentence_order", "none"] = "none"


@dataclass
class AdamW:
    name: Literal["adamw"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass
class Muon:
    name: Literal["muon"] = "muon"
    momentum: float = 0.95


@dataclass
class TrainingConfig:
    steps: int = 1000
    """How many steps there are."""
    learning_rate: float = 1e-3
    evaluate_every: int | Literal["epoch"] = 100
    optimizer: AdamW | Muon = field(default_factory=lambda: AdamW(betas=(0.9, 0.98)))


@dataclass
class RunConfig:
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: bool = False
    corpus_dir: Path | None = None
    log_every: int = 10


@dataclass
class PretrainConfig:
    output: Path
    domains: dict[str, DomainConfig]
    seed: int = 0
    init: str | None = None
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if not self.domains:
            raise ConfigError("domains must name at least one domain.")


YAML = """\
output: runs/dna
domains:
  dna:
    options: {tokens: kmer, k: 4}
    data: [genomes/]
    validation: 0.1
    vocab_size: 4096
objective:
  masked_lm: {probability: 0.2}
  pair: next_sentence
training:
  steps: 50
  learning_rate: 1e-4
  optimizer: {name: muon}
run: {precision: fp32, corpus_dir: /tmp/corpora}
"""

PYTHON = PretrainConfig(
    output=Path("runs/dna"),
    domains={"dna": DomainConfig(["genomes/"], KmerOptions("kmer", 4), 0.1, 4096)},
    objective=ObjectiveConfig(MaskedLM(0.2), "next_sentence"),
    training=TrainingConfig(50, 1e-4, optimizer=Muon()),
    run=RunConfig("fp32", corpus_dir=Path("/tmp/corpora")),
)

COMMAND_LINE = (
    "--output runs/dna --domains.dna.data genomes/ --domains.dna.validation 0.1 "
    "--domains.dna.options.tokens=kmer --domains.dna.options.k 4 --domains.dna.vocab_size 4096 "
    "--objective.masked_lm.probability 0.2 --objective.pair=next_sentence --training.steps 50 "
    "--training.learning_rate 1e-4 --training.optimizer.name muon --run.precision fp32 "
    "--run.corpus_dir /tmp/corpora"
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write_file(content: str | bytes) -> Path:
        path = tmp_path / "run.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def refusal(source: Any, *overrides: str, schema: type = PretrainConfig) -> str:
    """The message with which a config is refused; always one paragraph."""
    with pytest.raises(SeqbertError) as caught:
        config.load(schema, source, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def overridden(*overrides: str) -> PretrainConfig:
    return config.load(PretrainConfig, PYTHON, overrides)


# One tree, three ways to write it


def test_yaml_command_line_and_python_give_the_same_config(write: Callable[[str], Path]) -> None:
    assert config.load(PretrainConfig, write(YAML)) == PYTHON
    assert config.load(PretrainConfig, None, COMMAND_LINE.split()) == PYTHON
    assert config.load(PretrainConfig, yaml.safe_load(YAML.replace("1e-4", "0.0001"))) == PYTHON
    assert config.load(PretrainConfig, PYTHON) == PYTHON


def test_what_is_left_out_has_the_default_of_the_constructor() -> None:
    loaded = config.load(PretrainConfig, {"output": "o", "domains": {"text": {"data": ["a.txt"]}}})
    assert loaded == PretrainConfig(Path("o"), {"text": DomainConfig(["a.txt"], WordOptions())})


def test_a_section_given_in_part_keeps_the_other_defaults_of_its_parent() -> None:
    loaded = config.load(TrainingConfig, {"optimizer": {"name": "adamw"}})
    assert loaded.optimizer == AdamW(betas=(0.9, 0.98))


def test_options_are_typed_by_the_domain_they_belong_to() -> None:
    def load(**options: Any) -> PretrainConfig:
        both = {"dna": {"data": ["a.fa"]}, "text": {"data": ["b.txt"], "options": options}}
        return config.load(PretrainConfig, {"output": "o", "domains": both})

    loaded = load(lowercase=False)
    assert loaded.domains["dna"].options == KmerOptions()
    assert loaded.domains["text"].options == WordOptions(lowercase=False)
    with pytest.raises(ConfigError, match=r'"k" belongs under domains\.dna\.options\.'):
        load(k=3)


@dataclass
class ChosenDomain:
    name: str
    options: Any = None

    @classmethod
    def field_types(cls, key: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"options": OPTIONS[data["name"]] | None}


def test_options_can_be_typed_by_the_name_beside_them_and_stay_null_where_that_has_a_meaning() -> None:
    assert config.load(ChosenDomain, {"name": "dna"}).options is None
    assert config.load(ChosenDomain, {"name": "dna", "options": {"k": 3}}).options == KmerOptions(k=3)
    chosen = ChosenDomain("dna", KmerOptions("bpe", 5))
    assert config.load(ChosenDomain, None, ["--options.k", "7"], base=chosen).options == KmerOptions("bpe", 7)


def test_a_resolved_config_reads_back_as_itself_and_its_bytes_are_stable(
    write: Callable[[str], Path],
) -> None:
    text = config.dump(PYTHON)
    loaded = config.load(PretrainConfig, write(text))
    assert loaded == PYTHON
    assert config.dump(loaded) == text
    assert list(yaml.safe_load(text)) == ["output", "domains", "seed", "init", "objective", "training", "run"]
    assert "init: null" in text.splitlines()


@dataclass
class Leaves:
    text: str
    path: Path
    number: float
    whole: int
    either: float | str
    texts: list[str]
    mapping: dict[str, str]
    some: str | None = None
    many: list[float] | str = "none"


def test_any_text_and_number_survives_writing_and_reading(write: Callable[[str], Path]) -> None:
    draw = random.Random(0)
    awkward = [
        "no",
        "Yes",
        "1e-3",
        "0.05",
        "010",
        "1_000",
        "null",
        "~",
        "",
        " a ",
        "a: b",
        "a #b",
        "[a",
        "{",
        "*a",
    ]
    awkward += [
        "é",
        "\n",
        "a\nb\n",
        "\t",
        "2001-01-01",
        "0x10",
        "<<",
        "=",
        "\u2028",
        "\x85",
        "'",
        '"',
        "12:30:45",
    ]
    awkward += [
        "🎵",
        "- a",
        "? a",
        "!tag",
        "&a",
        "%a",
        "@a",
        "`a",
        "\ufeff",
        "\x07",
        "\udc80",
        ".inf",
        ".nan",
        "x" * 300,
    ]

    def text() -> str:
        return draw.choice([*awkward, "".join(draw.choices(string.printable, k=draw.randrange(40)))])

    def number() -> float:
        return draw.choice([draw.uniform(-1, 1), 10.0 ** draw.randrange(-300, 300), 0.0, float("inf"), 1e16])

    for _ in range(300):
        leaves = Leaves(
            text=text(),
            path=Path(text().replace("\0", "")),
            number=number(),
            whole=draw.randrange(-(10**20), 10**20),
            either=text() if draw.random() < 0.5 else number(),
            texts=[text() for _ in range(draw.randrange(3))],
            mapping={text(): text() for _ in range(draw.randrange(3))},
            some=draw.choice([None, text()]),
            many=[number()] * draw.randrange(3) if draw.random() < 0.5 else text(),
        )
        assert config.load(Leaves, write(config.dump(leaves))) == leaves


# Values


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (["--training.learning_rate", "1e-3"], 0.001),
        (["--training.learning_rate", "1"], 1.0),
        (["--training.learning_rate=.5"], 0.5),
        (["--training.steps", "1e6"], 1_000_000),
        (["--training.steps", "-1"], -1),
        (["--training.evaluate_every", "epoch"], "epoch"),
        (["--training.optimizer", "{name: adamw, betas: [0.5, 1]}"], AdamW(betas=(0.5, 1.0))),
        (["--init", "0"], "0"),
        (["--init", "1e-3"], "1e-3"),
        (["--init", "no"], "no"),
        (["--init", "[CLS]"], "[CLS]"),
        (["--init", "runs/a #2"], "runs/a #2"),
        (["--init", "null"], None),
        (["--run.compile", "true"], True),
        (["--run.corpus_dir", "12"], Path("12")),
        (["--domains.dna.data", "a.fa"], ["a.fa"]),
        (["--domains.dna.data", "*.fa"], ["*.fa"]),
        (["--domains.dna.data", "[a-z]*.fa"], ["[a-z]*.fa"]),
        (["--domains.dna.data", "[a.fa, 7]"], ["a.fa", "7"]),
        (["--domains.dna.data", "a.fa", "b.fa"], ["a.fa", "b.fa"]),
        (["--domains.dna.validation", "0.25"], 0.25),
        (["--domains.dna.validation", "held-out.fa"], "held-out.fa"),
        (["--domains.dna.validation", "'0.25'"], "0.25"),
    ],
)
def test_a_value_is_read_as_its_key_asks_for(override: list[str], expected: Any) -> None:
    value: Any = overridden(*override)
    for part in override[0].lstrip("-").partition("=")[0].split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (["--training.steps", "5.5"], "training.steps: expected whole number, found 5.5."),
        (["--training.steps", "true"], "training.steps: expected whole number, found true."),
        (["--training.steps", "5", "6"], "training.steps: expected whole number, found a list."),
        (["--training.learning_rate", "fast"], "training.learning_rate: expected number, found fast."),
        (["--training.learning_rate", ".nan"], "training.learning_rate: expected number, found .nan."),
        (["--run.compile", "yes"], "run.compile: expected true or false, found yes."),
        (
            ["--run.precision", "pf32"],
            'run.precision: expected auto|fp32|bf16, found pf32. Did you mean "fp32"?',
        ),
        (["--seed", "null"], "seed: expected whole number, found null."),
        (["--training", "5"], "training: expected section, found 5."),
        (["--objective.masked_lm", "5"], "objective.masked_lm: expected section or null, found 5."),
        (["--domains", "dna"], "domains: expected mapping of names to section, found dna."),
        (["--domains.dna.data", "{a: [}"], "--domains.dna.data: the YAML {a: [} cannot be read: "),
        (
            ["--training.optimizer.betas", "[1]"],
            'there is no key "training.optimizer.betas". "betas" belongs under',
        ),
        (["--training.optimizer.name", "moun"], "expected adamw|muon, found moun. Did you mean"),
        (["--seed"], "--seed needs a value."),
        (["--seed", "1", "--seed", "2"], "--seed is given twice."),
        (["seed", "1"], '"seed" belongs to no key'),
    ],
)
def test_a_value_that_does_not_fit_is_refused(override: list[str], message: str) -> None:
    refused = refusal(PYTHON, *override)
    assert refused.startswith("command line: ")
    assert message in refused


def test_a_fixed_number_of_values_is_held() -> None:
    message = refusal({"optimizer": {"betas": [0.9]}}, schema=TrainingConfig)
    assert message == "optimizer.betas: expected list of 2: number, number, found 1 values."


def test_null_switches_an_optional_section_off_and_a_key_inside_switches_it_on() -> None:
    off = overridden("--objective.masked_lm", "null")
    assert off.objective.masked_lm is None
    assert "masked_lm: null" in config.dump(off)
    on = config.load(PretrainConfig, off, ["--objective.masked_lm.probability", "0.3"])
    assert on.objective.masked_lm == MaskedLM(0.3)


def test_a_section_of_several_kinds_is_told_apart_by_its_name() -> None:
    assert overridden("--training.optimizer", "{name: adamw}").training.optimizer == AdamW(betas=(0.9, 0.98))
    assert overridden("--training.optimizer.momentum", "0.5").training.optimizer == Muon(momentum=0.5)


def test_a_domain_that_the_config_lacks_is_added_if_it_is_installed_and_refused_if_not() -> None:
    assert overridden("--domains.text.data", "a.txt").domains["text"].data == ["a.txt"]
    message = refusal(PYTHON, "--domains.dan.data", "a.txt")
    assert message == 'command line: domains.dan: There is no domain "dan". This config has: dna.'
    assert "domains.text.data" in refusal(PYTHON, "--domains.text.weight", "2")


def test_what_is_given_nowhere_comes_from_the_base() -> None:
    loaded = config.load(PretrainConfig, {"training": {"steps": 7}}, ["--seed", "1"], base=PYTHON)
    assert config.difference(PYTHON, loaded) == ["seed: 0 -> 1", "training.steps: 50 -> 7"]
    assert PYTHON.training.steps == 50


# Keys


def test_row97_a_misspelt_or_misplaced_key_is_refused_with_its_place_and_the_right_one(
    write: Callable[[str], Path],
) -> None:
    path = write(YAML.replace("learning_rate: 1e-4", "lerning_rate: 1e-5"))
    assert refusal(path) == (f'{path}:13:3: there is no key "training.lerning_rate". Did you mean "learning_rate"?')
    path = write(YAML.replace("run: {", "run: {learning_rate: 1e-5, "))
    assert refusal(path) == (
        f'{path}:15:7: there is no key "run.learning_rate". "learning_rate" belongs under training.'
    )
    path = write(YAML + "lerning_rate: 1e-5\n")
    assert refusal(path).endswith('no key "lerning_rate". Did you mean "training.learning_rate"?')
    path = write(YAML.replace("k: 4", "kk: 4"))
    assert f'{path}:4:29: there is no key "domains.dna.options.kk".' in refusal(path)


def test_row97_a_misspelt_or_misplaced_override_is_refused() -> None:
    assert refusal(PYTHON, "--training.lerning_rate", "1") == (
        'command line: there is no key "training.lerning_rate". Did you mean "learning_rate"?'
    )
    assert '"steps" belongs under training.' in refusal(PYTHON, "--steps", "5")
    assert '"seed" belongs under the top level.' in refusal(PYTHON, "--run.seed", "5")
    assert "momentum" in refusal(PYTHON, "--training.optimizer.momentun", "5")


def test_row97_a_key_given_twice_is_refused(write: Callable[[str], Path]) -> None:
    path = write(YAML + "seed: 1\nseed: 2\n")
    assert refusal(path) == (f'{path}:17:1: this YAML cannot be read: the key "seed" is given twice, first in line 16.')


def test_row98_keys_that_begin_with_x_are_notes_and_other_unknown_keys_are_refused(
    write: Callable[[str], Path],
) -> None:
    loaded = config.load(PretrainConfig, write(YAML + "x_note: foo\nx_more: {a: [1]}\n"), ["--x_by", "me"])
    assert loaded == PYTHON
    again = config.load(PretrainConfig, write(config.dump(loaded)), ["--seed", "1"])
    notes = {"x_note": "foo", "x_more": {"a": [1]}, "x_by": "me"}
    assert {key: value for key, value in config.to_dict(again).items() if key.startswith("x_")} == notes
    assert config.difference(PYTHON, again) == ["seed: 0 -> 1"]
    assert 'there is no key "foo".' in refusal(write(YAML + "foo: 1\n"))
    assert 'there is no key "run.x_note".' in refusal(write(YAML), "--run.x_note", "1")


def test_a_missing_key_is_named(write: Callable[[str], Path]) -> None:
    path = write("seed: 1\n")
    assert refusal(path).startswith(f'{path}:1:1: missing keys: "output" (path), "domains"')
    path = write("output: o\ndomains:\n  dna: {k: 4}\n".replace("{k: 4}", "{weight: 2}"))
    assert refusal(path) == f'{path}:3:3: missing key: "domains.dna.data" (list of text).'


def test_a_value_out_of_range_is_refused_with_its_key_and_place(write: Callable[[str], Path]) -> None:
    path = write(YAML.replace("probability: 0.2", "probability: 2"))
    assert refusal(path) == (f"{path}:9:15: objective.masked_lm.probability must lie between 0 and 1, and is 2.0.")
    assert refusal(PYTHON, "--domains.dna.options.k", "0") == (
        "command line: domains.dna.options.k must be at least 1, and is 0."
    )
    path = write("output: o\ndomains: {}\n")
    assert refusal(path) == f"{path}:2:1: domains must name at least one domain."


# Files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", " is empty;"),
        ("# only a comment\n", " is empty;"),
        ("- a\n- b\n", " is no config:"),
        ("some words\n", " is no config:"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", " is not text;"),
        (b"seed: 1\x00", " is not text;"),
        ("seed: [1\noutput: o\n", ":2:7: this YAML cannot be read:"),
        ("seed: 1\n\toutput: o\n", ":2:1: this YAML cannot be read:"),
        ("a: b: c\n", ":1:5: this YAML cannot be read:"),
        ("seed: 1\n---\nseed: 2\n", "this YAML cannot be read:"),
        ("seed: !!python/name:os.system 1\n", "this YAML cannot be read: the tag"),
        ("seed: !!int one\n", "this YAML cannot be read: the tag"),
        ("seed: &a [*a]\n", "an alias stands inside its own anchor"),
        ("{a: 1}: b\n", "a key must be a word"),
        ("[" * 5000, " is nested too deeply"),
        ("x_: " + "ACGT" * 300_000, " is larger than any config"),
        (">seq1\nACGT\n", "this YAML cannot be read:"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(
    write: Callable[[str | bytes], Path], content: str | bytes, message: str
) -> None:
    path = write(content)
    refused = refusal(path)
    assert refused.startswith(str(path))
    assert message in refused


def test_anchors_and_merge_keys_work(write: Callable[[str], Path]) -> None:
    text = (
        "x_base: &base {data: [a.fa], weight: 2}\noutput: o\ndomains:\n  dna: {<<: *base, weight: 3}\n  text: *base\n"
    )
    loaded = config.load(PretrainConfig, write(text), ["--domains.text.weight", "4"])
    assert [(domain.data, domain.weight) for domain in loaded.domains.values()] == [
        (["a.fa"], 3),
        (["a.fa"], 4),
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(write: Callable[[bytes], Path]) -> None:
    assert config.load(PretrainConfig, write(b"\xef\xbb\xbf" + YAML.replace("\n", "\r\n").encode())) == PYTHON


def test_a_shipped_config_is_found_by_name_and_a_file_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seqbert" / "configs" / "dna").mkdir(parents=True)
    for name in ("quickstart", "dna/splice"):
        (tmp_path / "seqbert" / "configs" / f"{name}.yaml").write_text("seed: 1\n")
    monkeypatch.setattr(config, "__file__", str(tmp_path / "seqbert" / "config.py"))
    monkeypatch.chdir(tmp_path)
    assert config.find("dna/splice") == tmp_path / "seqbert" / "configs" / "dna" / "splice.yaml"
    with pytest.raises(ConfigError, match=r'no config file "quikstart"\. Did you mean "quickstart"\?.*dna/splice'):
        config.find("quikstart")
    Path("quickstart").write_text("seed: 2\n")
    assert config.find("quickstart") == Path("quickstart")


def test_a_folder_is_no_config_and_a_runs_folder_points_to_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(YAML)
    with pytest.raises(ConfigError, match=r"is a folder.*Do you mean .*config\.yaml\?"):
        config.find(tmp_path)


# Help


def test_help_names_every_key_with_its_type_default_and_docstring() -> None:
    text = config.render_help(PretrainConfig)
    assert max(len(line) for line in text.splitlines()) <= 110
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "--training.steps <whole number> How many steps there are. Default: 1000." in lines
    assert "--output <path> Required." in lines
    assert "--domains.NAME.data <list of text> Files, folders and globs. Required." in lines
    assert "objective.masked_lm: Masked language modelling. Can be null." in lines
    assert "training.optimizer with name: adamw (the default)" in lines
    assert "Default: [0.9, 0.98]." in lines
    assert "--training.optimizer.momentum <number> Default: 0.95." in lines


def test_field_help_is_the_docstring_under_the_field() -> None:
    expected = {"tokens": "What a token is.", "k": "Length of a k-mer, in bases."}
    assert config.field_help(KmerOptions) == expected


def test_differences_name_key_old_and_new_value() -> None:
    other = overridden("--domains.dna.data", "b.fa", "--training.optimizer", "{name: adamw}", "--init", "runs/a")
    assert config.difference(PYTHON, config.to_dict(other)) == [
        'domains.dna.data: ["genomes/"] -> ["b.fa"]',
        'init: null -> "runs/a"',
        'training.optimizer.name: "muon" -> "adamw"',
        "training.optimizer.momentum: 0.95 -> absent",
        "training.optimizer.betas: absent -> [0.9, 0.98]",
    ]
    assert config.difference(PYTHON, PYTHON) == []


def test_reading_configs_loads_no_heavy_library() -> None:
    code = "import sys, seqbert.config; print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
