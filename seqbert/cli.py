"""The command line: one verb for each thing to do, each with a Python function of the same name."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqbert.errors import SeqbertError, Stopped, nearest

if TYPE_CHECKING:
    from seqbert.analysis.parameters import Description
    from seqbert.inference.fill import Filled
    from seqbert.training.pretrain import DomainResult, PretrainResult

USER_ERROR, OUR_ERROR, SIGNAL = 2, 1, 128
"""Exit codes; that of a signal is added to the last one: 130 after Ctrl-C, 143 after SIGTERM."""


SHARED = {"prepare", "pretrain", "finetune", "evaluate", "predict", "embed"}
"""What the processes of a job do together."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 2 for what the user can mend, 1 for a fault of ours.

    Ctrl-C gives 130, and SIGTERM 143.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if _follows():  # of a job's processes the first alone prints results
        if arguments and arguments[0] not in SHARED:
            return 0  # the first does it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        return _dispatch(arguments)
    except SeqbertError as error:
        if debug:
            raise
        _complain(f"seqbert: {error}")
        return USER_ERROR
    except KeyboardInterrupt as stop:
        if debug:
            raise
        message = str(stop) or "stopped. A run that has written a checkpoint goes on from it with --resume auto."
        if not _follows():
            _complain(f"\nseqbert: {message}")
        return SIGNAL + (stop.signal if isinstance(stop, Stopped) else signal.SIGINT)
    except BrokenPipeError:  # nobody reads the results any more, as with `| head`: the work is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the interpreter too, which flushes once more
        return 0
    except OSError as error:  # a full disk, a folder without permission
        if debug:
            raise
        place = f' ("{error.filename}")' if error.filename else ""
        _complain(f"seqbert: the system refused: {error.strerror or error}{place}.")
        return USER_ERROR
    except Exception as error:
        if debug:
            raise
        _complain(
            f"seqbert: an error of seqbert itself, not of yours: {type(error).__name__}: {error}. "
            "Run the command again with --debug to see where, and please report it."
        )
        return OUR_ERROR


def _follows() -> bool:
    """Whether this is another process of a job than the first."""
    return int(os.environ.get("RANK", "0")) > 0


def _complain(message: str) -> None:
    """Says what ended a command, unless the pipe that it is said into is gone: the exit code stays what it is."""
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # for the interpreter too, which flushes once more


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from seqbert import __version__

        print(f"seqbert {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        print(
            f'seqbert: there is no command "{name}".{nearest(name, COMMANDS)} See seqbert --help.',
            file=sys.stderr,
        )
        return USER_ERROR
    return COMMANDS[name].run(rest)


def _overview() -> str:
    width = max(len(command.usage) for command in COMMANDS.values()) + 3
    lines = [f"  seqbert {command.usage:{width}}{command.help}" for command in COMMANDS.values()]
    return (
        "seqbert trains BERT encoders on any kind of sequence.\n\n"
        + "\n".join(lines)
        + "\n\nseqbert COMMAND --help says more. CONFIG is a path, or the name of a shipped config such as quickstart."
        "\n--debug shows where an error comes from."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A verb: what its arguments look like, what it is for, and what carries it out."""

    usage: str
    help: str
    run: Callable[[list[str]], int]


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(f"seqbert {name}", description=description, allow_abbrev=False)


def _json_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _print_json(content: Any) -> int:
    print(json.dumps(content, indent=2, ensure_ascii=False))
    return 0


def _print_run(folder: Path) -> int:
    """What a run reached, as it wrote it down."""
    return _print_json({"folder": str(folder), **json.loads((folder / "result.json").read_text(encoding="utf-8"))})


def _print_table(columns: dict[str, str], rows: list[list[str]]) -> None:
    """A table with a heading for each column; ``columns`` gives each one's alignment."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    table = Table()
    for heading, alignment in columns.items():
        table.add_column(heading, justify=alignment, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


# domains


def _domains(arguments: list[str]) -> int:
    parser = _parser("domains", "Lists the domain plugins that are installed.")
    _json_flag(parser)
    options = parser.parse_args(arguments)
    from seqbert.registry import listing

    rows = listing()
    if options.json:
        return _print_json(rows)
    for row in rows:
        print(f"{row['name']}  ({row['package']} {row['version']})")
        if "error" in row:
            print(f"  cannot be used: {row['error']}\n")
            continue
        endings: dict[str, list[str]] = {}
        for ending, what in row["formats"].items():
            endings.setdefault(what, []).append(ending)
        for what, same in endings.items():
            print(f"  reads {what} ({' '.join(same)})")
        print(f"  bits per {row['symbol']}; masking units: token{'' if row['unit'] == 'token' else ', ' + row['unit']}")
        for option in row["options"]:
            default = json.dumps(option["default"], ensure_ascii=False)
            print(f"  options.{option['name']}: {option['type']} = {default}")
        print()
    return 0


# pretrain, prepare


def _config_arguments(
    name: str, description: str, arguments: list[str], schema: Callable[[], type], *flags: str
) -> tuple[Any, list[str]]:
    """The config, the flags of the command, and the overrides that remain; ``schema`` gives the config's class."""
    parser = _parser(name, description)
    parser.usage = f"seqbert {name} CONFIG [--key value ...]"
    parser.add_argument("config", metavar="CONFIG", help="a path, or the name of a shipped config such as quickstart")
    if "resume" in flags:
        either = parser.add_mutually_exclusive_group()
        either.add_argument("--resume", metavar="auto|PATH", help="go on from the newest checkpoint, or from PATH")
        either.add_argument("--overwrite", action="store_true", help="replace the run that the output folder holds")
        parser.add_argument(
            "--allow-changes",
            action="store_true",
            help="resume even though the batch, the data, the vocabulary or the objective is another",
        )
    _json_flag(parser)
    if not arguments or any(argument in ("-h", "--help") for argument in arguments):
        from seqbert.config import render_help

        parser.print_help()
        print("\nconfig keys, each of which --key value overrides:\n")
        print(render_help(schema()))
        raise SystemExit(0 if arguments else USER_ERROR)
    if arguments[0].startswith("-"):
        parser.error("CONFIG comes first: seqbert " + name + " CONFIG [--key value ...]")
    options, overrides = parser.parse_known_args(arguments)
    return options, overrides


def _pretrain_schema() -> type:
    from seqbert.training.pretrain_config import PretrainConfig

    return PretrainConfig


def _finetune_schema() -> type:
    from seqbert.training.finetune_config import FinetuneConfig

    return FinetuneConfig


def _prepare(arguments: list[str]) -> int:
    description = "Makes the tokenizers and corpora of a config, and prints the data report."
    options, overrides = _config_arguments("prepare", description, arguments, _pretrain_schema)
    from seqbert.training.pretrain import prepare

    corpora = prepare(options.config, overrides)
    if options.json:
        return _print_json({name: corpus.report | {"folder": str(corpus.folder)} for name, corpus in corpora.items()})
    for name, corpus in corpora.items():
        print(f"\n{name}: {corpus.folder}")
        for line in _report_lines(corpus.report):
            print(f"  {line}")
        if "groups" in corpus.report:
            _print_groups(corpus.report["groups"], corpus.manifest["symbol"])
    return 0


def _report_lines(report: dict[str, Any]) -> list[str]:
    records, lengths = report["records"], report["tokens_per_document"]
    lines = [
        f"records in {records['in']:,} = read {records['read']:,} + repaired {records['repaired']:,} "
        f"+ skipped {records['skipped']:,}, from {report['files']:,} files",
        f"training: {report['train']['documents']:,} documents, {report['train']['segments']:,} segments, "
        f"{report['train']['tokens']:,} tokens",
        f"held out: {report['validation']['documents']:,} documents, {report['validation']['tokens']:,} tokens",
        f"tokens a document: {lengths['least']:,} to {lengths['most']:,}, median {lengths['median']:,}",
        f"vocabulary {report['tokenizer']['vocab_size']:,}, unknown tokens {report['unknown_share']:.3%}, "
        f"documents that stand there twice {report['duplicate_documents']:,}",
    ]
    for kind in ("skipped", "repaired", "changed", "noted"):
        for reason, count in report[kind].items():
            places = report["examples"].get(reason, [])
            lines.append(f"{kind}: {reason}: {count:,}{f' (the first: {places[0]})' if places else ''}")
    lines += [f"{what}: {value:g}" for what, value in report["largest"].items()]
    lines += [f"file left out: {entry['file']}: {entry['reason']}" for entry in report["skipped_files"]]
    if "kinds" in report["tokenizer"]:
        kinds = report["tokenizer"]["kinds"].items()
        lines.append("vocabulary: " + ", ".join(f"{kind} {row['share_of_entries']:.1%}" for kind, row in kinds))
    split = report["split"]
    facts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in split.items() if key != "by")
    lines.append(
        f"held out by {split['by']}: {facts}" if split["by"] else "held out at random; equal documents together"
    )
    return lines


def _print_groups(groups: dict[str, dict[str, Any]], symbol: str) -> None:
    """What each group of documents comes to; words are left out where none has any."""
    has_words = any(row["words"] is not None for row in groups.values())
    keys = ["documents", "tokens", "symbols", *(["words", "tokens_per_word"] if has_words else []), "tokens_per_symbol"]
    headings = [key.replace("symbol", symbol).replace("per", "a").replace("_", " ") for key in keys]
    rows = [
        [name or "(none)", *(_cell(row[key]) if isinstance(row[key], int) else _number(row[key]) for key in keys)]
        for name, row in groups.items()
    ]
    _print_table({"group": "left"} | dict.fromkeys(headings, "right"), rows)


def _pretrain(arguments: list[str]) -> int:
    description = "Trains an encoder: tokenizer, corpus and pretraining in one."
    options, overrides = _config_arguments("pretrain", description, arguments, _pretrain_schema, "resume")
    from seqbert.training.pretrain import pretrain

    result = pretrain(
        options.config,
        overrides,
        resume=options.resume,
        overwrite=options.overwrite,
        allow_changes=options.allow_changes,
    )
    if options.json:
        return _print_run(result.folder)
    _print_result(result)
    return 0


def _print_result(result: PretrainResult) -> None:
    for name, domain in result.domains.items():
        if len(domain.after.get("groups", {})) > 1:
            _print_group_bits(name, domain)
    rows = []
    for name, domain in result.domains.items():
        before, after = domain.before.get("bits_per_symbol"), domain.after.get("bits_per_symbol")
        unigram = domain.after.get("unigram_bits_per_symbol")
        gain = f"{1 - after / unigram:.1%}" if after is not None and unigram else "-"
        rows.append([name, domain.symbol, *(_number(value) for value in (before, after, unigram)), gain])
    headings = ["domain", "symbol", "before", "after", "unigram", "below unigram"]
    alignments = ["left", "left", "right", "right", "right", "right"]
    print(
        "\nBits per hidden symbol on held-out data, before and after training, and a unigram model on the same masks:"
    )
    _print_table(dict(zip(headings, alignments, strict=True)), rows)
    examples = _filled_examples(result)
    if examples:
        print("One masked place a domain, filled:")
        _print_table(dict.fromkeys(["domain", "sequence", "the model's fillers", "was"], "left"), examples)
    print(f'The run lies in {result.folder}; seqbert fill {result.folder} "... [MASK] ..." asks it more.')


def _print_group_bits(name: str, domain: DomainResult) -> None:
    rows = []
    before = domain.before.get("groups", {})
    for group, row in domain.after["groups"].items():
        bits, unigram = row["bits_per_symbol"], row["unigram_bits_per_symbol"]
        gain = f"{1 - bits / unigram:.1%}" if bits is not None and unigram else "-"
        first = before.get(group, {}).get("bits_per_symbol")
        targets = int(next(value for key, value in row.items() if key.endswith("_targets")))
        rows.append([group or "(none)", f"{targets:,}", *(_number(value) for value in (first, bits, unigram)), gain])
    headings = ["group", "targets", "before", "after", "unigram", "below unigram"]
    print(f"\n{name}: bits per hidden {domain.symbol} of each group on held-out data:")
    _print_table({"group": "left"} | dict.fromkeys(headings[1:], "right"), rows)


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _filled_examples(result: PretrainResult) -> list[list[str]]:
    from seqbert.inference.fill import fill_example

    rows = []
    for name, domain in result.domains.items():
        if "masked_lm_loss" not in domain.after:
            continue
        example = fill_example(result.folder, name, domain.example, domain.place)
        fillers = "  ".join(f"{filler.token} {filler.probability:.0%}" for filler in example.fillers)
        rows.append([name, example.shown, fillers, example.truth])
    return rows


# finetune, evaluate, predict


def _finetune(arguments: list[str]) -> int:
    description = "Trains an encoder for a task, on labelled records."
    options, overrides = _config_arguments("finetune", description, arguments, _finetune_schema, "resume")
    from seqbert.training.finetune import finetune

    result = finetune(
        options.config,
        overrides,
        resume=options.resume,
        overwrite=options.overwrite,
        allow_changes=options.allow_changes,
    )
    if options.json:
        return _print_run(result.folder)
    _print_scores(result.metrics, result.metric)
    if result.summary:
        print(f"{len(result.seeds)} seeds; the model is that of seed {result.best_seed}:")
        rows = [
            [
                part,
                metric,
                *(f"{row[key]:.4f}" for key in ("median", "mean", "standard_deviation")),
                "  ".join(_number(values[part][metric], 4) for values in result.seeds.values()),
            ]
            for part, metrics in result.summary.items()
            for metric, row in metrics.items()
        ]
        headings = dict.fromkeys(["part", "metric"], "left") | dict.fromkeys(["median", "mean", "deviation"], "right")
        _print_table(headings | {"each": "left"}, rows)
    print(f"The run lies in {result.folder}; seqbert predict {result.folder} --input FILE --output FILE uses it.")
    return 0


def _print_scores(parts: dict[str, dict[str, Any]], chosen: str) -> None:
    rows, notes = [], []
    for part, metrics in parts.items():
        for name, row in metrics.items():
            interval = f"{row['low']:.4f} to {row['high']:.4f}" if row.get("low") is not None else ""
            mark = " *" if name == chosen else ""
            rows.append([part, name + mark, _number(row["value"], 4), interval])
            if "note" in row:
                notes.append(f"{part} {name}: {row['note']}")
    if rows:
        print("\nMetrics with 95 % intervals over the records (* decides which weights are kept):")
        _print_table({"part": "left", "metric": "left", "value": "right", "interval": "left"}, rows)
    for note in notes:
        print(note)


def _device_flags(parser: argparse.ArgumentParser) -> None:
    """Where a model computes, and in which precision."""
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps or auto (auto)")
    parser.add_argument(
        "--precision", default="auto", choices=["auto", "fp32", "bf16"], help="auto: bf16 on a GPU that has it (auto)"
    )


def _file_options(parser: argparse.ArgumentParser, arguments: list[str], labelled: bool) -> tuple[Any, list[str]]:
    """The command's own arguments, and those that say how the files are read."""
    _device_flags(parser)
    if any(argument in ("-h", "--help") for argument in arguments):
        from seqbert.inference.predict import option_keys

        parser.print_help()
        print("\nwhat is different about these files, compared with those of training:\n")
        print(option_keys(labelled))
        raise SystemExit(0)
    return parser.parse_known_args(arguments)


def _average_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--average",
        metavar="NAME",
        nargs="*",
        help="average over all variants of these augmentations, such as reverse_complement; without a name over none "
        "(as the run was trained, domain.average)",
    )


def _evaluate(arguments: list[str]) -> int:
    parser = _parser("evaluate", "Scores a fine-tuned run on labelled records.")
    parser.usage = "seqbert evaluate RUN --data FILE [--key value ...]"
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--data", metavar="FILE", nargs="+", required=True, help="files, folders or globs, or sample")
    parser.add_argument("--output", metavar="FOLDER", help="write metrics, predictions and pictures there")
    _average_option(parser)
    _json_flag(parser)
    options, rest = _file_options(parser, arguments, labelled=True)
    from seqbert.inference.predict import evaluate

    place = {"device": options.device, "precision": options.precision}
    found = evaluate(options.run, options.data, options=rest, output=options.output, average=options.average, **place)
    if options.json:
        return _print_json(found)
    _print_scores({f"{found['records']:,} records": found["metrics"]}, found["metric"])
    _print_skipped(found["read"]["skipped"])
    if unseen := found["read"].get("unseen_labels"):
        print(f"left out, with labels that training has not seen: {', '.join(unseen)}")
    return 0


def _predict(arguments: list[str]) -> int:
    parser = _parser("predict", "Gives a fine-tuned run's answers for records without labels.")
    parser.usage = "seqbert predict RUN --input FILE --output FILE [--key value ...]"
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--input", metavar="FILE", nargs="+", required=True, help="files, folders or globs, or sample")
    parser.add_argument(
        "--output", metavar="FILE", required=True, help=".tsv (as GLUE wants it), .csv, .json (SQuAD), .jsonl, .parquet"
    )
    _average_option(parser)
    _json_flag(parser)
    options, rest = _file_options(parser, arguments, labelled=False)
    from seqbert.inference.predict import predict

    place = {"device": options.device, "precision": options.precision}
    result = predict(options.run, options.input, options.output, options=rest, average=options.average, **place)
    count = len(result.predictions)
    if options.json:
        return _print_json({"output": options.output, "records": count, "skipped": result.skipped})
    print(f"{count:,} predictions in {options.output}")
    _print_skipped(result.skipped)
    return 0


# embed, score


def _reading_options(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[Any, list[str]]:
    """Flags of what asks a model about files, then the command's own arguments and those on how files are read."""
    parser.add_argument("--domain", metavar="NAME", help="the domain, where the run has several")
    parser.add_argument("--max_length", type=int, metavar="N", help="tokens of a sequence (as in the run's training)")
    _json_flag(parser)
    return _file_options(parser, arguments, labelled=False)


def _embed(arguments: list[str]) -> int:
    parser = _parser("embed", "Writes the vectors of sequences, or of their tokens, as Parquet.")
    parser.usage = "seqbert embed RUN --input FILE --output FILE.parquet [--key value ...]"
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--input", metavar="FILE", nargs="+", required=True, help="files, folders or globs")
    parser.add_argument("--output", metavar="FILE", required=True, help="the Parquet file to write")
    parser.add_argument(
        "--pooling",
        default="mean",
        choices=["mean", "cls", "none"],
        help="over all tokens, the first alone, or a vector for each token (mean)",
    )
    parser.add_argument(
        "--layers",
        default=["last"],
        nargs="+",
        metavar="LAYER",
        help="last, second_to_last, sum_last_four, concat_last_four, or numbers from 0, the embeddings (last)",
    )
    options, rest = _reading_options(parser, arguments)
    from seqbert.inference.embed import embed

    numbers = [part for argument in options.layers for part in argument.split(",")]
    by_number = all(part.isdecimal() for part in numbers)
    result = embed(
        options.run,
        options.input,
        options.output,
        pooling=options.pooling,
        layers=[int(part) for part in numbers] if by_number else ",".join(numbers),
        domain=options.domain,
        max_length=options.max_length,
        options=rest,
        device=options.device,
        precision=options.precision,
    )
    if options.json:
        return _print_json({"output": options.output} | dataclasses.asdict(result))
    what = "vectors of each token" if options.pooling == "none" else "vectors"
    print(f"{what} of {result.records:,} records, {result.width:,} numbers wide, in {options.output}")
    _print_skipped(result.skipped)
    return 0


MASKED = "[MASK]"
MOST_PLACES = 60
"""Filled places that are printed."""

SHOWN_PAIRS = 10
"""Pairs of places whose similarity is printed."""

SHOWN = 20
"""Rows of scores that are printed; all of them are written with --output or --json."""


def _score(arguments: list[str]) -> int:
    parser = _parser("score", "Says how probable sequences, pairs of them, or mutations are to a language model.")
    parser.usage = "seqbert score RUN --input FILE [--pairs | --mutations A42G,...] [--output FILE] [--key value ...]"
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("--input", metavar="FILE", nargs="+", help="files, folders or globs")
    parser.add_argument("--sequence", metavar="SEQUENCE", help="one sequence, in place of files")
    parser.add_argument("--output", metavar="FILE", help=".jsonl, .csv or .parquet, a row for each score")
    parser.add_argument("--pairs", action="store_true", help="compare the two sequences of each record")
    parser.add_argument(
        "--mutations",
        metavar="MUTATIONS",
        help="A42G,L7P (A42G:L7P: together), a file of them, column:NAME, all, or all:LETTERS",
    )
    parser.add_argument("--positions", action="store_true", help="add the log-probability of each token")
    parser.add_argument("--unit", default="token", help="what is masked at once: token, unit or its name (token)")
    options, rest = _reading_options(parser, arguments)
    from seqbert.inference.score import score

    result = score(
        options.run,
        options.input,
        options.output,
        sequence=options.sequence,
        pairs=options.pairs,
        mutations=options.mutations,
        positions=options.positions,
        unit=options.unit,
        domain=options.domain,
        max_length=options.max_length,
        options=rest,
        device=options.device,
        precision=options.precision,
    )
    if options.json:
        return _print_json(dataclasses.asdict(result))
    if options.positions and len(result.rows) == 1:
        _print_rows(result.rows[0]["positions"])
    rows = [{key: value for key, value in row.items() if key != "positions"} for row in result.rows]
    _print_rows(rows[:SHOWN])
    if len(rows) > SHOWN:
        print(f"{len(rows) - SHOWN:,} more rows are not shown; --output FILE writes them all.")
    print(", ".join(f"{key.replace('_', ' ')} {_cell(value)}" for key, value in result.summary.items()))
    _print_skipped(result.skipped)
    return 0


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """A table of rows with the same keys; numbers stand at the right."""
    if rows:
        columns = {key: "left" if isinstance(value, str) else "right" for key, value in rows[0].items()}
        _print_table(columns, [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else _number(value, 4)


def _print_skipped(skipped: dict[str, int]) -> None:
    for reason, count in skipped.items():
        print(f"skipped: {reason}: {count:,}")


# fill, describe


def _fill(arguments: list[str]) -> int:
    parser = _parser(
        "fill", "Gives the most probable tokens for each [MASK] of a sequence, or fills part of a document."
    )
    parser.usage = 'seqbert fill RUN "a [MASK] sequence" | FILE --mask bar:5 [--output FILE]'
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "sequence",
        metavar="SEQUENCE|FILE",
        help='a sequence with [MASK] in it, such as "ACG[MASK]TT"; with --mask a file that the domain reads, - for '
        "standard input, or a sequence",
    )
    parser.add_argument(
        "--mask",
        metavar="UNIT:N",
        nargs="+",
        action="extend",
        default=[],
        help="hide and fill these: bar:5, word:3-7, residue:42, token:9, counted from 1 within the document",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write the filled document, in the format that the ending names"
    )
    parser.add_argument("--record", metavar="NAME|N", help="which document of the file, where it has several")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the best filler; above: one is drawn (0)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--domain", metavar="NAME", help="the domain, where the run has several")
    parser.add_argument("--top", type=int, default=5, help="fillers to show for each place (5)")
    parser.add_argument("--max_length", type=int, metavar="N", help="tokens that are seen at once (as in training)")
    _device_flags(parser)
    _json_flag(parser)
    options = parser.parse_args(arguments)
    if options.top < 1:
        parser.error("--top must be at least 1")
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    from seqbert.inference.fill import Filled, fill

    found = fill(
        options.run,
        options.sequence,
        mask=options.mask,
        output=options.output,
        record=options.record,
        temperature=options.temperature,
        seed=options.seed,
        domain=options.domain,
        top=options.top,
        max_length=options.max_length,
        device=options.device,
        precision=options.precision,
    )
    if isinstance(found, Filled):
        return _print_json(dataclasses.asdict(found)) if options.json else _print_filled(found)
    if options.json:
        rows = [[dataclasses.asdict(filler) for filler in fillers] for fillers in found]
        return _print_json(rows[0] if len(rows) == 1 else rows)
    table = [
        [str(number), filler.token, f"{filler.probability:.4f}"]
        for number, fillers in enumerate(found, 1)
        for filler in fillers
    ]
    _print_table({"mask": "right", "token": "left", "probability": "right"}, table)
    return 0


def _print_filled(filled: Filled) -> int:
    rows = [
        [
            f"{one.place:,}",
            one.was or MASKED,
            one.token,
            f"{one.probability:.4f}",
            "  ".join(f"{other.token} {other.probability:.0%}" for other in one.fillers if other.token != one.token),
        ]
        for one in filled.places
    ]
    columns = {"place": "right", "was": "left", "now": "left", "probability": "right", "or": "left"}
    _print_table(columns, rows[:MOST_PLACES])
    if len(rows) > MOST_PLACES:
        print(f"{len(rows) - MOST_PLACES:,} more places are not shown; --json gives them all.")
    same = sum(one.was == one.token for one in filled.places)
    kept = "" if all(one.was is None for one in filled.places) else f", {same:,} of them with what stood there"
    print(f"{filled.id}: {len(rows):,} places filled{kept}")
    for note in filled.notes:
        print(f"note: {note}")
    print(f"The document is in {filled.output}." if filled.output else f"\n{filled.text}")
    return 0


def _describe(arguments: list[str]) -> int:
    parser = _parser("describe", "Counts the parameters and operations of an encoder by part.")
    parser.add_argument("what", metavar="PRESET|CONFIG|RUN")
    parser.add_argument("--vocab_size", type=int, help="entries of the vocabulary (30522, BERT's, or the run's own)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence, for the operations (128)")
    _json_flag(parser)
    options = parser.parse_args(arguments)
    from seqbert.inference.describing import describe

    described = describe(options.what, options.vocab_size, options.length)
    if options.json:
        return _print_json({name: _description_tree(description) for name, description in described.items()})
    for name, description in described.items():
        _print_description(name, description)
    return 0


def _description_tree(description: Description) -> dict[str, Any]:
    return {
        **dataclasses.asdict(description),
        "total_parameters": description.total_parameters,
        "encoder_with_pooler": description.pooled_encoder_parameters,
        "forward_flops_per_token": description.forward_flops_per_token,
        "training_flops_per_token": description.training_flops_per_token,
    }


def _print_description(name: str, description: Description) -> None:
    rows = [[part, f"{count:,}", ""] for part, count in description.parameters.items()]
    encoder = "encoder with pooler" if "pooler" in description.parameters else "encoder"
    rows += [[encoder, f"{description.pooled_encoder_parameters:,}", ""]]
    rows += [["all, with heads", f"{description.total_parameters:,}", ""]]
    rows += [[part, "", f"{flops / 1e6:,.2f}"] for part, flops in description.forward_flops.items()]
    rows += [["forward", "", f"{description.forward_flops_per_token / 1e6:,.2f}"]]
    rows += [["forward and backward", "", f"{description.training_flops_per_token / 1e6:,.2f}"]]
    print(f"\n{name}, sequences of {description.length} tokens")
    _print_table({"part": "left", "parameters": "right", "MFLOP a token": "right"}, rows)


# import, export


def _import(arguments: list[str]) -> int:
    parser = _parser("import", "Makes a run of a Hugging Face BERT, ModernBERT or ESM-2 folder; nothing is downloaded.")
    parser.add_argument("folder", metavar="HF_FOLDER", help="a folder with config.json and safetensors weights")
    parser.add_argument("output", metavar="OUT", help="the run's folder")
    parser.add_argument("--domain", metavar="NAME", help="what its sequences are: one of seqbert domains")
    parser.add_argument("--overwrite", action="store_true", help="replace the run that OUT holds")
    _json_flag(parser)
    options = parser.parse_args(arguments)
    from seqbert.inference.transfer import import_checkpoint

    report = import_checkpoint(options.folder, options.output, domain=options.domain, overwrite=options.overwrite)
    if options.json:
        return _print_json(dataclasses.asdict(report) | {"folder": options.output})
    print(f"{len(report.loaded)} weights imported to {options.output}")
    if options.domain is None:
        print("No domain was named (--domain): commands that read sequences will ask for it.")
    for title, items in (
        ("without weights", report.newly_initialised),
        ("not used", report.left_over),
        ("ignored", report.ignored),
    ):
        for item in items:
            print(f"{title}: {item}")
    return 0


def _export(arguments: list[str]) -> int:
    parser = _parser("export", "Writes a run's model as a Hugging Face folder.")
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("output", metavar="OUT", help="the folder to write")
    parser.add_argument("--domain", metavar="NAME", help="the domain, where the run has several")
    parser.add_argument("--overwrite", action="store_true", help="write into a folder that holds files")
    _json_flag(parser)
    options = parser.parse_args(arguments)
    from seqbert.inference.transfer import export

    folder = export(options.run, options.output, domain=options.domain, overwrite=options.overwrite)
    if options.json:
        return _print_json({"folder": str(folder), "files": sorted(path.name for path in folder.iterdir())})
    print(f"exported to {folder}")
    return 0


# generate


def _generate(arguments: list[str]) -> int:
    parser = _parser("generate", "Continues a sequence with a causal model.")
    parser.usage = 'seqbert generate RUN ["a beginning"] [--tokens N] [--number N] [--temperature T] [--output FILE]'
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument("beginning", metavar="BEGINNING", nargs="?", default="", help="what is continued (nothing)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens that are added (64)")
    parser.add_argument("--number", type=int, default=1, metavar="N", help="continuations (1)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0: the most probable token each time (1)")
    parser.add_argument("--top_k", type=int, metavar="N", help="draw from the N most probable tokens (all)")
    parser.add_argument("--top_p", type=float, metavar="P", help="draw from those that have this probability (all)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--output", metavar="FILE", help="write the first one, in the format that the ending names")
    parser.add_argument("--domain", metavar="NAME", help="the domain, where the run has several")
    _device_flags(parser)
    _json_flag(parser)
    options = vars(parser.parse_args(arguments))
    as_json, run, beginning = options.pop("json"), options.pop("run"), options.pop("beginning")
    from seqbert.inference.generate import generate

    made = generate(run, beginning, **options)
    if as_json:
        return _print_json([dataclasses.asdict(one) for one in made])
    for one in made:
        print(one.text)
        print(f"  (log-probability {one.log_probability:.2f} of {one.tokens:,} tokens)", file=sys.stderr)
    return 0


# similarity


def _similarity(arguments: list[str]) -> int:
    parser = _parser("similarity", "Compares the vectors of one token in different contexts, by layer.")
    parser.usage = "seqbert similarity RUN FILE --token TOKEN [--output FILE.png] [--key value ...]"
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "input", metavar="FILE", nargs="+", help="plain text, a record a line; or what the domain reads"
    )
    parser.add_argument("--token", help="a word, residue, base or note")
    parser.add_argument(
        "--at", nargs="+", default=[], metavar="RECORD:NUMBER", help="in its place: which word of which"
    )
    parser.add_argument("--layers", nargs="+", type=int, metavar="LAYER", help="numbers from 0, the embeddings (all)")
    parser.add_argument("--output", metavar="FILE", help="heat maps, as PNG and SVG")
    options, rest = _reading_options(parser, arguments)
    from seqbert.inference.similarity import similarity

    result = similarity(
        options.run,
        options.input,
        options.token,
        at=options.at,
        layers=options.layers,
        domain=options.domain,
        max_length=options.max_length,
        options=rest,
        output=options.output,
        device=options.device,
        precision=options.precision,
    )
    if options.json:
        return _print_json(
            {"places": result.places, "layers": result.layers, "cosines": result.cosines.round(6).tolist()}
        )
    for number, place in enumerate(result.places, 1):
        print(f"{number:3}  {place}")
    pairs = [(row, column) for column in range(len(result.places)) for row in range(column)]
    rows = [
        [str(layer), *(f"{matrix[pair]:.3f}" for pair in pairs[:SHOWN_PAIRS])]
        for layer, matrix in zip(result.layers, result.cosines, strict=True)
    ]
    print("\nCosine similarity by layer; 0 is the embeddings:")
    headings = [f"{row + 1}, {column + 1}" for row, column in pairs[:SHOWN_PAIRS]]
    _print_table({"layer": "right"} | dict.fromkeys(headings, "right"), rows)
    if len(pairs) > SHOWN_PAIRS:
        print(f"and {len(pairs) - SHOWN_PAIRS} more pairs: --json gives all.")
    return 0


# study


def _study(arguments: list[str]) -> int:
    parser = _parser("study", "Runs a grid of trainings and measurements, and writes table and pictures.")
    parser.usage = "seqbert study CONFIG [--small] [--jobs N] [--overwrite] [--key value ...]"
    parser.add_argument("config", metavar="CONFIG", help="a path, or the name of a study such as studies/masking")
    parser.add_argument("--small", action="store_true", help="the small setting, which ends in minutes on a CPU")
    parser.add_argument("--jobs", type=int, metavar="N", help="jobs at a time (one on each GPU, else on each core)")
    parser.add_argument("--overwrite", action="store_true", help="do anew what was done with other settings")
    _json_flag(parser)
    if not arguments or any(argument in ("-h", "--help") for argument in arguments):
        from seqbert.config import render_help
        from seqbert.studies.declaration import StudyConfig

        parser.print_help()
        print("\nconfig keys, each of which --key value overrides:\n")
        print(render_help(StudyConfig))
        return 0 if arguments else USER_ERROR
    if arguments[0].startswith("-"):
        parser.error("CONFIG comes first: seqbert study CONFIG [--small] [--key value ...]")
    options, overrides = parser.parse_known_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}, and it must be at least 1")
    from seqbert.studies.study import study
    from seqbert.studies.tables import as_markdown

    result = study(options.config, overrides, small=options.small, jobs=options.jobs, overwrite=options.overwrite)
    if options.json:
        content = {
            "folder": str(result.folder),
            "tables": [dataclasses.asdict(table) for table in result.tables],
            "claims": [dataclasses.asdict(claim) for claim in result.claims],
            "failed": [one.as_dict() for one in result.failed],
        }
        _print_json(content)
    else:
        print(as_markdown(result.tables, result.claims))
        print(f"The study lies in {result.folder}.")
    for one in result.failed:
        _complain(f"seqbert: {one.job.name} failed: {one.reason} (see {one.log})")
    return USER_ERROR if result.failed else 0


COMMANDS = {
    "domains": Command("domains", "the domain plugins that are installed", _domains),
    "prepare": Command("prepare CONFIG", "tokenizer, corpus and data report", _prepare),
    "pretrain": Command("pretrain CONFIG [--key value ...]", "train an encoder", _pretrain),
    "finetune": Command("finetune CONFIG [--key value ...]", "train an encoder for a task", _finetune),
    "evaluate": Command("evaluate RUN --data FILE", "metrics on labelled records", _evaluate),
    "predict": Command("predict RUN --input FILE --output FILE", "labels, numbers, tags, answers, choices", _predict),
    "embed": Command("embed RUN --input FILE --output FILE", "vectors of sequences or tokens, as Parquet", _embed),
    "score": Command("score RUN --input FILE", "how probable sequences and mutations are", _score),
    "fill": Command('fill RUN "a [MASK] sequence"', "what a model puts in masked places, or bars of a file", _fill),
    "generate": Command('generate RUN "a beginning"', "continue a sequence with a causal model", _generate),
    "similarity": Command("similarity RUN FILE --token T", "one token's vectors in different contexts", _similarity),
    "describe": Command("describe PRESET|CONFIG|RUN", "parameters and operations by part", _describe),
    "study": Command("study CONFIG [--small] [--key value ...]", "a grid of runs, a table, pictures", _study),
    "import": Command("import HF_FOLDER OUT", "a run from a Hugging Face checkpoint", _import),
    "export": Command("export RUN OUT", "a Hugging Face checkpoint from a run", _export),
}
