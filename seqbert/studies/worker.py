"""``python -m seqbert.studies.worker``: a process that does jobs of a study, one after the other, as it is told.

A line of JSON comes in for each job, and one goes out when it is done. When the pipe from the parent ends, a job that
is at work saves a checkpoint and ends, as at SIGTERM; so nothing outlives a study that is stopped or killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqbert.data.whole import write_json
from seqbert.errors import SeqbertError, Stopped
from seqbert.studies.results import ROWS


def main() -> None:
    """Serves until there is nothing more to do."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints into the job's log
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while order := orders.get():
        job = json.loads(order)
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 2)
        os.dup2(log, 1)
        os.close(log)
        answer = _answer(job)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "stopped" in answer:
            return


def _listen(orders: queue.Queue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    orders.put("")
    os.kill(os.getpid(), signal.SIGTERM)  # a run saves and ends; without one this process ends


def _answer(job: Mapping[str, Any]) -> dict[str, Any]:
    try:
        carry_out(job)
    except Stopped:
        return {"stopped": True}
    except SeqbertError as error:
        return {"error": str(error)}
    except OSError as error:
        place = f' ("{error.filename}")' if error.filename else ""
        return {"error": f"the system refused: {error.strerror or error}{place}"}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"an error of seqbert itself: {type(error).__name__}: {error}"}
    return {"done": True}


def carry_out(job: Mapping[str, Any]) -> None:
    """Does one job: ``run``, ``settings``, ``overwrite``, and for a function its name, folder and seed."""
    if job["run"] == "measure":
        from seqbert.studies.measures import measuring_function

        folder = Path(job["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        rows = measuring_function(job["function"])(folder, job["seed"], **job["settings"])
        write_json(folder / ROWS, {"rows": rows})
        return
    how: dict[str, Any] = {"overwrite": True} if job["overwrite"] else {"resume": "auto"}
    if job["run"] == "pretrain":
        from seqbert.training.pretrain import pretrain

        pretrain(job["settings"], **how)
    else:
        from seqbert.training.finetune import finetune

        finetune(job["settings"], **how)


if __name__ == "__main__":
    main()
