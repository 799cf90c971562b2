"""Run a script in processes forked from one that has imported torch.

Start-up dominates short runs: it takes 0.35 s with PyTorch's elastic_launch, which
has no timeout, and 0.10 s here. The caller doesn't need torch. Ranks are separate
processes with torchrun's environment variables. Another process, the supervisor,
starts them and ends all they started when the run is over or the caller is gone.
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

from onecurve.start.failures import way
from onecurve.start.supervisor import FORKS, Job, supervise

CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
CONTEXT.set_forkserver_preload(["onecurve.start.imports"])
TOO_SLOW = 124  # instead of an exit status


class Result(subprocess.CompletedProcess):
    """A run's result; `late` is HANGS, STOPPED, or '' if it finished in time.

    `statuses` and `stderrs` are per rank; the status of a rank we killed is None.
    `errors` is {rank: (message, line of the script or None)} of uncaught exceptions,
    `own_fault` one that onecurve raised itself, or None, and `places` {rank: line or
    None} where killed and crashed ranks were. `ways` has these and the errors' `way`.
    """


def read_stack(text, name):
    """Return the `way` of the main thread in script `name`, by faulthandler."""
    found = [], []
    for thread in re.split(r"(?m)^(?:Current t|T)hread 0x", text):
        one = way(re.findall(r'File "(.*)", line (\d+) in (.*)', thread), name)
        found = one if one[0] else found  # the main thread comes last
    return found


def start_server():
    """Start the fork server so that Ctrl-C doesn't print its traceback."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    is_main = threading.current_thread() is threading.main_thread()
    if CONTEXT.get_start_method() == "forkserver" and is_main:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            multiprocessing.forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)


class Run:
    """A script's run, which begins at once; `result()` waits for its end.

    `processes` are ranks of a torchrun, or None for one process without it; `options`
    are fields of Job. The first failing rank ends all ranks; so do `timeout` seconds of
    computing or `idle` seconds without.
    """

    def __init__(self, words, processes=None, **options):
        start_server()
        words = [str(word) for word in words]
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self.folder.name)
        self.job = Job(words, processes or 0, os.getcwd(), folder, **options)
        self.link, other = CONTEXT.Pipe()
        shared = other, self.link, self.job
        self.supervisor = CONTEXT.Process(target=supervise, args=shared)
        self.supervisor.start()
        other.close()

    def result(self):
        """Wait until the run is over and return its Result."""
        try:
            statuses, late = self.link.recv()
            return read_result(self.job, statuses, late)
        finally:  # also after an interrupt
            self.end()

    def end(self):
        """End all ranks that are still running."""
        with suppress(OSError):
            self.link.send("end")
        self.link.close()
        self.supervisor.join()
        self.folder.cleanup()


def run(words, processes=None, **options):
    """Run a script in a Run with these arguments; return its Result."""
    return Run(words, processes, **options).result()


def read_result(job, statuses, late):
    """Return a job's Result from the files its ranks wrote."""

    def text(name):
        path = job.folder / name
        return path.read_text(errors="replace") if path.exists() else ""

    stderrs = [text(f"stderr{rank}") for rank in range(len(statuses))]
    errors = {}
    own_fault = None
    places = {}
    ways = {}
    for rank, status in enumerate(statuses):
        if text(f"error{rank}"):
            *errors[rank], is_ours, ways[rank] = json.loads(text(f"error{rank}"))
            own_fault = errors[rank][0] if is_ours else own_fault
        if status is None or status < 0:
            stack = read_stack(text(f"stack{rank}"), job.words[0])
            places[rank] = next(iter(stack[0]), None)
            ways.setdefault(rank, stack)
    failed = [abs(status) for status in statuses if status is not None]
    code = TOO_SLOW if late else max(failed, default=1)
    result = Result(job.words, code, text("stdout"), "".join(stderrs))
    result.late = late
    result.statuses = statuses
    result.stderrs = stderrs
    result.errors = errors
    result.own_fault = own_fault
    result.places = places
    result.ways = ways
    return result


def end_with_caller(link):
    """Kill this process once the other end of a link is closed."""
    with suppress(EOFError, OSError):
        link.recv()  # blocks: nothing is ever sent
    os.kill(os.getpid(), signal.SIGKILL)


def answer(link, name, arguments):
    """Call a function by name and send its result; it may run scripts."""
    global CONTEXT
    if FORKS:
        CONTEXT = multiprocessing.get_context("fork")  # torch is imported already
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it and hangs up
    threading.Thread(target=end_with_caller, args=(link,), daemon=True).start()
    result = resolve_name(name)(*arguments)
    sys.stdout.flush()
    link.send(result)


def call(name, *arguments):
    """Call "module:name" in a process with torch; return its result or exit with it."""
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
