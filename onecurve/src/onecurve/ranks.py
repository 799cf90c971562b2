"""Run a script in processes forked from one that has imported torch.

Start-up is most of a short run. The ranks are processes of their own all the same, with
the variables that torchrun sets, in the folder of who asks for them. PyTorch's
elastic_launch takes 0.35 s for what takes 0.10 s here, and has no timeout. Only what is
forked imports torch: who asks for a run need not.

A run leaves nothing behind. A process of its own, the supervisor, starts the ranks. It
ends them, and whatever they have started, when the run is over or when the process that
asked for it is gone.
"""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

from onecurve.supervisor import FORKS, Job, supervise

CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
# What is not installed is left out.
PRELOAD = ["torch", "torchvision", "torch.distributed.checkpoint.state_dict", "tqdm"]
CONTEXT.set_forkserver_preload([*PRELOAD, "onecurve.ranks", "onecurve.rank"])
TOO_SLOW = 124  # in place of an exit status


class Result(subprocess.CompletedProcess):
    """How a run went. It says besides: `late`, HANGS or STOPPED, or '' in time.

    And of each rank: `statuses`, its exit status, None where it was ended;
    `errors`, {rank: (text, line of the script or None)} of what it did not catch;
    `places`, {rank: line or None} of where it was when it was ended; `stderrs`.
    """


def place(stack, name):
    """Return the line of the script `name` where its main thread is, or None.

    `stack` is what faulthandler wrote of all threads, the main one at the end.
    """
    found = None
    for thread in re.split(r"(?m)^(?:Current t|T)hread 0x", stack):
        lines = re.findall(rf'File "{re.escape(name)}", line (\d+)', thread)
        if lines:
            found = int(lines[0])
    return found


def start_server():
    """Have the process from which all are forked not answer Ctrl-C by a traceback."""
    is_main = threading.current_thread() is threading.main_thread()
    if CONTEXT.get_start_method() == "forkserver" and is_main:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            multiprocessing.forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)


def run(
    words,
    processes=None,
    float64=False,
    timeout=120,
    idle=None,
    prepare=None,
    gpus="",
    module=None,
):
    """Run a script; with `processes`, as so many ranks of one torchrun.

    `prepare` is (function, argument ...), called in each rank before the script with
    the rank in front, and may return what to call after it; a function may be named, as
    "package.module:function". `gpus` is a text for CUDA_VISIBLE_DEVICES, None for all.
    `module` is the script's name, where it is to run as by `python -m`; the first of
    `words` is its file all the same. As under torchrun, the first rank that fails
    ends the others; and all end when one has computed for `timeout` seconds, or none
    does for `idle` seconds, by default as many. Returns a Result.
    """
    words = [str(word) for word in words]
    start_server()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        idle = idle or timeout
        shared = folder, timeout, idle, float64, prepare, gpus, module
        job = Job(words, processes or 0, os.getcwd(), *shared)
        link, other = CONTEXT.Pipe()
        supervisor = CONTEXT.Process(target=supervise, args=(other, link, job))
        supervisor.start()
        other.close()
        try:
            statuses, late = link.recv()
        finally:
            link.close()  # after an interrupt, the supervisor ends all
            supervisor.join()
        return read_result(job, statuses, late)


def read_result(job, statuses, late):
    """Return the Result of a job, by what its ranks have written."""

    def text(name):
        path = job.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    stderrs = [text(f"stderr{rank}") for rank in range(len(statuses))]
    errors = {}
    places = {}
    for rank, status in enumerate(statuses):
        if text(f"error{rank}"):
            errors[rank] = tuple(json.loads(text(f"error{rank}")))
        if status is None:
            places[rank] = place(text(f"stack{rank}"), job.words[0])
    failed = [abs(status) for status in statuses if status is not None]
    code = TOO_SLOW if late else max(failed, default=1)
    result = Result(job.words, code, text("stdout"), "".join(stderrs))
    result.late = late
    result.statuses = statuses
    result.stderrs = stderrs
    result.errors = errors
    result.places = places
    return result


def end_with_caller(link):
    """End this process when nobody is at the other end of a link any more."""
    with suppress(EOFError, OSError):
        link.recv()  # nothing is ever sent
    os.kill(os.getpid(), signal.SIGKILL)


def answer(link, name, arguments):
    """Call a function by its name, and send what it returns.

    It may run scripts: this process has imported torch, and needs no server.
    """
    global CONTEXT
    if FORKS:
        CONTEXT = multiprocessing.get_context("fork")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it, and hangs up
    threading.Thread(target=end_with_caller, args=(link,), daemon=True).start()
    result = resolve_name(name)(*arguments)
    sys.stdout.flush()
    link.send(result)


def call(name, *arguments):
    """Return what a function returns, called where torch is imported: "module:name".

    What it prints is seen. Ends the program as the function does, where it returns not.
    """
    start_server()
    link, other = CONTEXT.Pipe()
    process = CONTEXT.Process(target=answer, args=(other, name, arguments))
    process.start()
    other.close()
    try:
        return link.recv()
    except EOFError:
        process.join()
        sys.exit(process.exitcode or 1)
    finally:
        link.close()
        process.join()
