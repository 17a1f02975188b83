"""Kills small training runs with SIGKILL, resumes them, and compares what they end with to runs that were left alone.

    python benchmarks/kill.py --runs 100             # 100 kills
    python benchmarks/kill.py --runs 10 --seed 7     # at other places

Each job is run once uninterrupted. Then it is begun again and again with ``--resume auto``, killed a few times on its
way, and let run to its end. Whatever it wrote must be what the uninterrupted run wrote: weights, the last checkpoint
and predictions byte for byte, ``metrics.jsonl`` and ``result.json`` up to timings and to what is said about resuming.
What is half written must not stay behind, and a run that finds a checkpoint must say from which step it goes on.

A kill has a place: where a run is begun or taken up again, inside a step, a checkpoint write, an evaluation, at the
edge of an epoch, in the first step, after the last one, or a random moment after the first step of a process. All but
the last are moments of the program, drawn from those that the uninterrupted run went through, half-written files among
them; ``kill_child.py`` makes the process die there. Random moments are waited for here. In half of the kills the
processes that prepare batches die too, as when a scheduler ends a job; in the others they are left behind, and must end
by themselves. A kill counts where it happened; one that came too late is drawn again. Needs Linux.

On standard output stands a table of the kills by place and job, what differed, and how many runs did; progress goes
to standard error. The exit code is 1 if any differed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("kill_child.py")

RUN = "run"
"""The folder that a job writes, in the folder it is run in: of the same name everywhere, so that configs agree."""

SHARES = {
    "beginning": 0.05,
    "first step": 0.05,
    "step": 0.16,
    "checkpoint": 0.16,
    "evaluation": 0.16,
    "epoch edge": 0.16,
    "after the last": 0.05,
    "random": 0.21,
}
"""Where kills happen, and the share of all that is placed there."""

PLACES = tuple(SHARES)

MOST_KILLS = 5
"""Kills of one run on its way from start to end."""

SECONDS = 300
"""What no process of these jobs takes; one that does has hung."""

ENDING_SECONDS = 10
"""How long the workers of a killed process may take to notice."""

TIMINGS = re.compile(r"second|data_wait")
"""Part of the keys that hold timings."""

RESUMING = re.compile(r"Going on after step|There is no checkpoint yet")
"""Beginning of what only a resumed run says."""

NOT_COMPARED = ("tensorboard", ".lock")
"""Files whose content is a matter of time, and one without content."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A small run: its name, the command that carries it out, and the config."""

    name: str
    command: str
    config: dict[str, Any]

    @property
    def may_vary(self) -> bool:
        """Whether two uninterrupted runs may differ: where the kernels are not deterministic on every machine."""
        return bool(self.config["run"]["precision"] == "bf16")


@dataclasses.dataclass
class Reference:
    """What an uninterrupted run went through and wrote.

    Attributes:
        folder: Where it was run.
        seconds: From the end of its first step to its end.
        moments: Its moments, in order.
        edges: For each seed, the steps with which epochs end.
        steps: Its steps.
    """

    folder: Path
    seconds: float
    moments: list[Moment]
    edges: dict[int, set[int]]

    @property
    def steps(self) -> int:
        """Steps of a run."""
        return max(moment.step for moment in self.moments)

    def at(self, place: str) -> list[Moment]:
        """The moments of a place."""
        return [moment for moment in self.moments if self._is_at(moment, place)]

    def _is_at(self, moment: Moment, place: str) -> bool:
        if place == "epoch edge":
            return any(
                moment.step == edge or (moment.step, moment.kind) == (edge + 1, "step")
                for edge in self.edges[moment.run]
            )
        if place == "beginning":
            return moment.kind == "between" and moment.step == 0
        if place == "first step":
            return moment.step == 1 and moment.kind == "step"
        if place == "after the last":
            return moment.ended
        return moment.kind == place


@dataclasses.dataclass(frozen=True)
class Moment:
    """A moment of a run, as ``kill_child.py`` describes it."""

    run: int
    step: int
    kind: str
    ended: bool
    what: str
    number: int
    half: bool

    @property
    def key(self) -> list[Any]:
        """What it is found by."""
        return [self.run, self.step, self.kind, self.ended, self.what, self.number]


@dataclasses.dataclass(frozen=True)
class Kill:
    """A kill that is to happen.

    Attributes:
        place: Where, as the report counts it.
        group: Whether the processes that prepare batches die too.
        key: The moment at which the process is to kill itself.
        what: What that is.
        share: Where something was just written: the share of it that is on disk then.
        delay: Without a moment: seconds from the first step of the process to the kill from here.
    """

    place: str
    group: bool
    key: list[Any] | None = None
    what: str | None = None
    share: float | None = None
    delay: float | None = None


@dataclasses.dataclass
class Trial:
    """A run that is killed on its way, and what came of it.

    Attributes:
        job: What is run.
        number: Its number, which keys all that is drawn for it.
        places: Where it is to be killed, in this order.
        kills: The kills that happened: the place, and the moment where it is known.
        left: Places that it did not come by any more.
        differences: What it ended with that the uninterrupted run did not.
        folder: Where it was run.
    """

    job: Job
    number: int
    places: list[str]
    kills: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    differences: list[str] = dataclasses.field(default_factory=list)
    folder: Path = Path()


def main() -> int:
    """Runs what the command line asks for."""
    arguments = _parser().parse_args()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="seqbert-kill-"))
    keep = False
    try:
        bench = Bench(arguments, folder)
        trials = bench.run()
        keep = arguments.keep and any(trial.differences for trial in trials)
        report = summary(trials, arguments.seed) | {"processes": len(bench.plans), "left_out": bench.left_out}
        report["seconds"] = round(time.monotonic() - begun, 1)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(lines(report)))
    if keep:
        _say(f"What differs is under {folder}; beside each run lie the plans of its processes, for kill_child.py.")
    return 1 if report["differ"] else 0


class Bench:
    """Carries out the trials, several at a time."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        self.folder = folder
        self.plans: list[Path] = []
        self.left_out: list[str] = []
        self.jobs = [job for job in jobs(folder / "data") if job.name in arguments.tasks]
        self.references: dict[str, Reference] = {}

    def run(self) -> list[Trial]:
        """The trials, until as many kills have happened as are asked for.

        Raises:
            SystemExit: An uninterrupted run failed, or no kill happens any more.
        """
        arguments = self.arguments
        write_data(self.folder / "data", random.Random(0))
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            wanted = quotas(arguments.runs, arguments.places)
            trials: list[Trial] = []
            while wanted:
                drawn = self.draw(wanted, len(trials))
                chosen = [job for job in self.jobs if job.name in {trial.job.name for trial in drawn}]
                if not all(list(pool.map(self._run_uninterrupted, chosen))):
                    continue  # one was left out; the others take its places
                trials += drawn
                for number, trial in enumerate(pool.map(self._carry_out, drawn), start=1):
                    done = sum(len(one.kills) for one in trials[: len(trials) - len(drawn) + number])
                    outcome = f"differs: {trial.differences[0]}" if trial.differences else "the same"
                    _say(f"{trial.job.name}: {len(trial.kills)} kills, {outcome} ({done} of {arguments.runs} kills)")
                wanted = [place for trial in drawn for place in trial.left]
                if not any(trial.kills for trial in drawn):
                    raise SystemExit(f"No run came by any of these places: {', '.join(sorted(set(wanted)))}.")
        return trials

    def draw(self, wanted: list[str], number: int) -> list[Trial]:
        """Trials for the wanted places: each with a few of them, the fewer the fewer there are; the jobs in turn."""
        most = max(2, min(MOST_KILLS, 2 * len(wanted) // len(self.jobs)))
        draw = random.Random(f"{self.arguments.seed}/{number}")
        wanted = draw.sample(wanted, len(wanted))
        order = draw.sample(self.jobs, len(self.jobs))
        trials: list[Trial] = []
        while wanted:
            count = draw.randint(1, most)
            places, wanted = sorted(wanted[:count], key=_turn), wanted[count:]
            trials.append(Trial(order[len(trials) % len(order)], number + len(trials), places))
        return trials

    def _run_uninterrupted(self, job: Job) -> bool:
        """Sees to the reference of a job; False where two of them differ, so that nothing can be said of a third."""
        if job.name in self.references:
            return True
        _say(f"{job.name}: the uninterrupted run")
        folder = self.folder / "references" / job.name
        trace = folder / "trace.jsonl"
        seconds = self._uninterrupted(job, folder, trace)
        edges, *moments = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
        if job.may_vary:
            again = folder.with_name(f"{job.name} again")
            self._uninterrupted(job, again)
            if differences := compare(folder / RUN, again / RUN):
                self.left_out.append(f"{job.name}: two uninterrupted runs differ here ({differences[0]})")
                self.jobs.remove(job)
                return False
        steps = {int(run): set(steps) for run, steps in edges.items()}
        self.references[job.name] = Reference(folder / RUN, seconds, [Moment(*moment) for moment in moments], steps)
        return True

    def _uninterrupted(self, job: Job, folder: Path, trace: Path | None = None) -> float:
        """Runs a job from start to end; gives the seconds after its first step."""
        with self._process(job, folder, trace=trace) as process:
            process.wait_for_first_step()
            begun = time.monotonic()
            code = process.wait()
        if code:
            raise SystemExit(f"The uninterrupted run of {job.name} failed:\n{process.said()}")
        return time.monotonic() - begun

    def _carry_out(self, trial: Trial) -> Trial:
        """Begins a run and kills it until its places are through, lets it end, and compares."""
        draw = random.Random(f"{self.arguments.seed}/trial {trial.number}")
        reference = self.references[trial.job.name]
        trial.folder = self.folder / "trials" / f"{trial.number:04d} {trial.job.name}"
        places, groups = list(trial.places), []
        while True:
            reached = newest(trial.folder / RUN)
            kill = None
            while places and kill is None:
                place = places.pop(0)
                kill = draw_kill(reference, place, reached, 1 + len(places), draw)
                if kill is None:
                    trial.left.append(place)
            with self._process(trial.job, trial.folder, kill) as process:
                groups.append(process.group)
                if kill is not None and kill.delay is not None:
                    process.wait_for_first_step()
                    process.kill_after(kill.delay, kill.group)
                code = process.wait()
            if code == -signal.SIGKILL and kill is not None and (kill.key is None or process.has_died()):
                trial.kills.append(dataclasses.asdict(kill))
                continue
            if kill is not None:
                trial.left += [kill.place, *places]
            break
        if code:
            trial.differences.append(f"a resumed run ended with the exit code {code}: {process.last_words()}")
        else:
            trial.differences += compare(reference.folder, trial.folder / RUN)
            if reached[1] and not re.search(rf"\bstep {reached[1]}\b", process.said()):
                trial.differences.append(f"the last process does not say that it goes on after step {reached[1]}")
        trial.differences += [f"processes of {group} were left running" for group in groups if not has_ended(group)]
        if not trial.differences:
            shutil.rmtree(trial.folder)
        return trial

    @contextlib.contextmanager
    def _process(
        self, job: Job, folder: Path, kill: Kill | None = None, trace: Path | None = None
    ) -> Iterator[Process]:
        """A process that carries out a job, in a folder that may hold an earlier run of it; it is gone afterwards."""
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.plan.json")))
        plan, log, output = (folder / f"{number:02d}.{name}" for name in ("plan.json", "log.jsonl", "output.txt"))
        self.plans.append(plan)
        write_json(
            plan,
            {
                "log": str(log),
                "trace": None if trace is None else str(trace),
                "die": None if kill is None or kill.key is None else dataclasses.asdict(kill),
                "forget_optimizer": self.arguments.forget_optimizer,
            },
        )
        write_json(folder / "config.yaml", job.config)  # JSON is YAML
        command = [sys.executable, str(CHILD), plan.name, job.command, "config.yaml", "--resume", "auto"]
        with output.open("wb") as file:
            started = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1", "SEQBERT_CACHE": str(self.folder / "corpora")},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Process(started, log, output)
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


@dataclasses.dataclass(frozen=True)
class Process:
    """A process that carries out a job, with the files it writes beside the run."""

    started: subprocess.Popen[bytes]
    log: Path
    output: Path

    @property
    def group(self) -> int:
        """Number of the group of processes that it and its workers form."""
        return self.started.pid

    def wait(self) -> int:
        """Waits for its end and gives its exit code; that of a process that hangs is one of a signal."""
        try:
            return self.started.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.started.send_signal(signal.SIGABRT)
            return self.started.wait()

    def wait_for_first_step(self) -> None:
        """Waits until the first step of this process is done, or the process is."""
        deadline = time.monotonic() + SECONDS
        while self.started.poll() is None and not self.log.is_file() and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill_after(self, seconds: float, group: bool) -> None:
        """Kills it in so many seconds, alone or with its workers, if it still runs then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.started.wait(seconds)
            return
        if group:
            os.killpg(self.group, signal.SIGKILL)
        else:
            self.started.kill()

    def has_died(self) -> bool:
        """Whether it says that it died at the moment that it was to die at."""
        return '"died"' in self.log.read_text(encoding="utf-8")

    def said(self) -> str:
        """What it wrote to its standard output and error."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        """The last line of it."""
        return (self.said().strip().splitlines() or ["nothing was said"])[-1]


def draw_kill(
    reference: Reference, place: str, reached: tuple[int, int], kills: int, draw: random.Random
) -> Kill | None:
    """A kill at a place that a run still comes by, or None.

    Args:
        reference: The uninterrupted run.
        place: The place.
        reached: The seed and the step of the newest checkpoint.
        kills: Kills that are still to come, with this one: it lies in the first of so many parts of what is left.
        draw: Draws.
    """
    group = draw.random() < 0.5
    if place == "random":
        return Kill(place, group, delay=draw.random() * reference.seconds * (1 - reached[1] / (reference.steps + 1)))
    ahead = [
        moment
        for moment in reference.at(place)
        if place == "beginning" or (moment.run, moment.step) > reached or (moment.ended and moment.run == reached[0])
    ]
    if not ahead:
        return None
    steps = sorted({(moment.run, moment.step) for moment in ahead})
    near = set(steps[: -(-len(steps) // kills)])
    what = draw.choice(sorted({moment.what for moment in ahead if (moment.run, moment.step) in near}))
    moment = draw.choice([one for one in ahead if one.what == what and (one.run, one.step) in near])
    return Kill(place, group, moment.key, moment.what, share=draw.random() if moment.half else None)


def newest(folder: Path) -> tuple[int, int]:
    """The seed and the step of the newest checkpoint of a run, which may be one of several seeds; 0 and 0 for none."""
    found = [(0, 0)]
    for path in folder.glob("**/checkpoints/step-*"):
        seed = path.parts[-3]
        found.append((int(seed) if seed.isdigit() else 0, int(path.name.removeprefix("step-"))))
    return max(found)


def compare(expected: Path, found: Path) -> list[str]:
    """How what a run wrote differs from what an uninterrupted one wrote, file by file."""
    ours, theirs = _files(expected), _files(found)
    differences = [f"{name}: {twice}" for name in sorted(theirs) if (twice := _logged_twice(found / name))]
    differences += [f"{name} is missing" for name in sorted(ours - theirs)]
    differences += [f"{name} was left behind" for name in sorted(theirs - ours)]
    for name in sorted(ours & theirs):
        if (difference := _difference(expected / name, found / name)) is not None:
            differences.append(f"{name} differs: {difference}")
    return differences


def _files(folder: Path) -> set[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if not set(path.parts) & set(NOT_COMPARED)}


def _difference(expected: Path, found: Path) -> str | None:
    """The first difference between two files, or None."""
    if expected.suffix not in (".json", ".jsonl"):
        same = _checksum(expected) == _checksum(found)
        return None if same else "not the same bytes"
    try:
        rows = [_rows(path) for path in (expected, found)]
    except ValueError as error:
        return f"it cannot be read ({error})"
    for number, (ours, theirs) in enumerate(zip(*rows, strict=False), start=1):
        if ours != theirs:
            return f"line {number} is {json.dumps(theirs)[:200]} and was {json.dumps(ours)[:200]}"
    ours, theirs = map(len, rows)
    return None if ours == theirs else f"it has {theirs} lines and had {ours}"


def _logged_twice(path: Path) -> str | None:
    """Which step stands twice in ``metrics.jsonl``, or None."""
    if path.name != "metrics.jsonl":
        return None
    with contextlib.suppress(ValueError):  # said where the files are compared
        lines = Counter((row["step"], "loss" in row) for row in _rows(path))
        for (step, trained), times in lines.items():
            if times > 1:
                return f"the {'loss' if trained else 'validation'} of step {step} stands there {times} times"
    return None


def _rows(path: Path) -> list[Any]:
    """The lines of a file, or all of it as one, as data without timings and without what is said about resuming."""
    text = path.read_text(encoding="utf-8")
    parts = text.splitlines() if path.suffix == ".jsonl" else [text]
    return [_steady(json.loads(part)) for part in parts]


def _steady(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    kept = {key: _steady(value) for key, value in tree.items() if not TIMINGS.search(key)}
    if isinstance(kept.get("notes"), list):
        kept["notes"] = [note for note in kept["notes"] if not RESUMING.match(note)]
    return kept


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_ended(group: int) -> bool:
    """Whether all processes of a group come to their end within some seconds; those that do not are ended."""
    deadline = time.monotonic() + ENDING_SECONDS
    while _is_alive(group):
        if time.monotonic() > deadline:
            os.killpg(group, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def _is_alive(group: int) -> bool:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                return True
    return False


def quotas(kills: int, places: Collection[str] = PLACES) -> list[str]:
    """As many places as there are to be kills, in the shares of :data:`SHARES`; each at least once if they suffice.

    >>> Counter(quotas(100))["checkpoint"], len(quotas(100)), len(set(quotas(8)))
    (16, 100, 8)
    """
    counts = Counter(places if kills >= len(places) else ())
    while counts.total() < kills:
        counts[max(places, key=lambda place: SHARES[place] / (1 + counts[place]))] += 1
    return list(counts.elements())


def _turn(place: str) -> int:
    """Sorts what can only come first, or last, on the way of a run."""
    return {"first step": 0, "after the last": 2}.get(place, 1)


def jobs(data: Path) -> list[Job]:
    """The runs: each objective of pretraining and each task of fine-tuning, and what changes how a step is made."""
    text = {"text": {"data": [str(data / "texts")], "vocab_size": 120, "validation": 0.1}}
    several = text | {
        "protein": {"data": [str(data / "proteins")], "validation": 0.1},
        "dna": {"data": [str(data / "genomes")], "validation": 0.1, "weight": 0.5},
    }
    words = {"masked_lm": {"unit": "word"}}
    return [
        _pretraining("masked_lm", text, words),
        _pretraining("next_sentence", text, words | {"pair": "next_sentence"}, run={"workers": 2}),
        _pretraining("sentence_order", text, {"pair": "sentence_order"}),
        _pretraining("causal_lm", text, {"masked_lm": None, "causal_lm": {}}, model={"causal": True}),
        _pretraining("joint", several, {}, training={"tokens_per_step": 900}, run={"workers": 2, "micro_tokens": 150}),
        _pretraining("joint_bf16", several, {}, training={"tokens_per_step": 900}, run={"precision": "bf16"}),
        _finetuning("classification", "text"),
        _finetuning("regression", "protein", run={"workers": 2}),
        _finetuning("tagging", "multilingual", run={"micro_tokens": 150}),
        _finetuning("span", "text"),
        _finetuning("choice", "dna"),
        _finetuning("seeds", "dna", task="classification", training={"seeds": 2, "epochs": 2}),
        _finetuning("lora", "music", task="classification", training={"lora": {"rank": 2}}),
        _finetuning(
            "features",
            "protein",
            task="tagging",
            features={"layers": "weighted_sum", "lstm_hidden": 8, "lstm_layers": 1},
        ),
    ]


def _pretraining(name: str, domains: dict[str, Any], objective: dict[str, Any], **changes: Any) -> Job:
    training = {"steps": 16, "max_length": 32, "tokens_per_step": 512, "evaluate_every": 4, "validation_tokens": 512}
    tree = {"domains": domains, "objective": objective, "training": training}
    return Job(name, "pretrain", _small(tree, changes))


def _finetuning(name: str, domain: str, task: str | None = None, **changes: Any) -> Job:
    tree = {
        "domain": {"name": domain},
        "task": {"name": task or name},
        "data": {"train": "sample", "validation": 0.05, "train_size": 48},
        "training": {"epochs": 3, "batch_size": 8, "max_length": 32, "evaluate_every": 4},
    }
    return Job(name, "finetune", _small(tree, changes))


def _small(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A config for a run of a second or two, with checkpoints and evaluations every few steps and with dropout."""
    model = {"preset": "bert-tiny", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    run = {"device": "cpu", "precision": "fp32", "workers": 0, "log_every": 1, "checkpoint_every": 3, "keep": 2}
    tree = {"output": RUN, "model": model | {"dropout": 0.1}, "run": run, **tree}
    tree["training"] = {"learning_rate": 1e-3} | tree["training"]
    for key, value in changes.items():
        tree[key] = tree.get(key, {}) | value
    return tree


def write_data(folder: Path, draw: random.Random) -> None:
    """Writes a text of short documents, proteins and a genome: an epoch of each is a few steps."""
    words = ["".join(draw.choices("abcdefghiklmnoprstuw", k=draw.randint(2, 7))) for _ in range(40)]
    documents = [
        " ".join(" ".join(draw.choices(words, k=draw.randint(4, 9))).capitalize() + "." for _ in range(6))
        for _ in range(36)
    ]
    proteins = ["".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=draw.randint(30, 90))) for _ in range(30)]
    genomes = ["".join(draw.choices("ACGT", k=draw.randint(80, 160))) for _ in range(20)]
    files = {"texts/texts.txt": "\n\n".join(documents) + "\n"}
    for name, records in (("proteins", proteins), ("genomes", genomes)):
        files[f"{name}/{name}.fasta"] = "".join(f">{name}{number}\n{one}\n" for number, one in enumerate(records))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def summary(trials: list[Trial], seed: int) -> dict[str, Any]:
    """What happened, as plain data."""
    differing = [
        {
            "job": trial.job.name,
            "trial": f"{seed}/{trial.number}",
            "kills": trial.kills,
            "differences": trial.differences,
            "folder": trial.folder.name,
        }
        for trial in trials
        if trial.differences
    ]
    by_job: dict[str, Counter[str]] = {trial.job.name: Counter() for trial in trials}
    for trial in trials:
        by_job[trial.job.name].update(kill["place"] for kill in trial.kills)
    return {
        "seed": seed,
        "kills": sum(len(trial.kills) for trial in trials),
        "runs": len(trials),
        "differ": len(differing),
        "places": {place: sum(counts[place] for counts in by_job.values()) for place in PLACES},
        "jobs": {job: {place: counts[place] for place in PLACES} for job, counts in sorted(by_job.items())},
        "moments": dict(Counter(_moment(kill) for trial in trials for kill in trial.kills if kill["what"])),
        "differing": differing,
    }


def _moment(kill: dict[str, Any]) -> str:
    return f"{kill['key'][2]}: {kill['what']}"


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The summary as a person reads it."""
    widths = [max(len(place), 3) for place in PLACES]
    yield "  ".join([f"{'':16}", *(f"{place:>{width}}" for place, width in zip(PLACES, widths, strict=True)), "all"])
    for name, counts in (report["jobs"] | {"all": report["places"]}).items():
        cells = [f"{counts[place]:>{width}}" for place, width in zip(PLACES, widths, strict=True)]
        yield "  ".join([f"{name:16}", *cells, f"{sum(counts.values()):>3}"])
    yield ""
    for note in report["left_out"]:
        yield f"Left out: {note}"
    for trial in report["differing"]:
        places = "; ".join(
            f"{kill['place']}" + (f" ({kill['what']}, step {kill['key'][1]})" if kill["what"] else "")
            for kill in trial["kills"]
        )
        yield f"{trial['job']}, trial {trial['trial']}, killed at: {places or 'no place'}"
        yield f"  first difference of {len(trial['differences'])}: {trial['differences'][0]}"
    yield (
        f"{report['runs']} runs in {report['processes']} processes, {report['seconds']:.0f} seconds, "
        f"seed {report['seed']}"
    )
    yield f"{report['kills']} kills, {report['differ']} differ"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def count(text: str) -> int:
    """A whole number above 0, from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _parser() -> argparse.ArgumentParser:
    names = [job.name for job in jobs(Path())]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=count, default=100, metavar="N", help="kills")
    parser.add_argument("--seed", type=int, default=0, help="draws the places")
    parser.add_argument("--jobs", type=count, default=2, help="processes at a time, one thread each")
    parser.add_argument("--tasks", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--places", nargs="+", choices=PLACES, default=PLACES, metavar="PLACE", help=", ".join(PLACES))
    parser.add_argument("--keep", action="store_true", help="keep the folders of runs that differ")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--forget_optimizer", action="store_true", help=argparse.SUPPRESS)  # shows that it can fail
    return parser


if __name__ == "__main__":
    sys.exit(main())
