"""Run a script in processes forked from one that has imported torch.

Start-up is most of a short run. The ranks are processes of their own all the same, with
the variables that torchrun sets, in the folder of who asks for them. PyTorch's
elastic_launch takes 0.35 s for what takes 0.10 s here, and has no timeout. Only what is
forked imports torch: who asks for a run need not.

A run leaves nothing behind. A process of its own, the supervisor, starts the ranks. It
ends them, and whatever they have started, when the run is over or when the process that
asked for it is gone.
"""

import faulthandler
import gc
import json
import multiprocessing
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from onecurve.processes import adopt_orphans, end_children, end_with_parent, pause

# macOS aborts gloo in a process that was forked after torch had been imported. So
# there the supervisor and its ranks are spawned, and each imports it, for seconds:
# https://github.com/Lightning-AI/pytorch-lightning/issues/21345
FORKS = sys.platform != "darwin"
CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
RANKS = multiprocessing.get_context("fork" if FORKS else "spawn")
# What is not installed is left out.
PRELOAD = ["torch", "torchvision", "torch.distributed.checkpoint.state_dict", "tqdm"]
CONTEXT.set_forkserver_preload([*PRELOAD, "onecurve.ranks"])


class TimedOut(subprocess.TimeoutExpired):
    """A run took too long. It has the attributes of what `run` returns."""


@dataclass
class Job:
    """A run, as its supervisor and its ranks get to know it."""

    words: list  # the script and its flags, texts
    processes: int  # ranks of one torchrun; 0: one process, without torchrun
    working: str  # the folder in which they run
    folder: Path  # where the ranks write what they print, and how they end
    timeout: float  # seconds
    float64: bool  # whether torch's default dtype is float64
    prepare: tuple | None  # (function, argument ...) to call first, with the rank
    gpus: str | None  # for CUDA_VISIBLE_DEVICES; None: all that this process sees


def run_rank(job, environment):
    """Become one rank of a job: `python WORDS...`."""
    import torch

    rank = environment.get("RANK", "0")
    os.setsid()  # what the script starts is in this group, and ends with it
    end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, stream in ("stdout", 1), (f"stderr{rank}", 2):
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(job.folder / name, mode), stream)
    # a line at once, also under PYTHONUNBUFFERED: those of two ranks do not mix
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    os.chdir(job.working)
    os.environ.update(environment)
    if job.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.gpus
    torch.set_num_threads(1)
    if "tqdm" in sys.modules:
        # Its own lock is a semaphore, which a killed rank would leave behind.
        sys.modules["tqdm"].tqdm.set_lock(threading.RLock())
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as a process of its own begins
    if job.float64:
        torch.set_default_dtype(torch.float64)
    at_end = None
    if job.prepare:
        function, *arguments = job.prepare
        at_end = function(int(rank), *arguments)
    stack = open(job.folder / f"stack{rank}", "w")  # noqa: SIM115
    # faulthandler takes no lock of Python's, so it works in a call that blocks.
    faulthandler.register(signal.SIGUSR1, stack)
    sys.argv = job.words
    path = job.words[0]
    try:
        runpy.run_path(path, run_name="__main__")
        if at_end:
            at_end()
    except BaseException as error:
        text = json.dumps(described(error, path))
        (job.folder / f"error{rank}").write_text(text)
        raise


def described(error, name):
    """Return an error as (text, line of the script `name` or None).

    The text of a SystemExit without one is empty.
    """
    if isinstance(error, SystemExit):
        text = error.code if isinstance(error.code, str) else ""
    else:
        text = "".join(traceback.format_exception_only(error)[-1:]).strip()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == name]
    if isinstance(error, SyntaxError) and error.filename == name:
        lines.append(error.lineno)
    return text, lines[-1] if lines else None


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


def end_all(ranks):
    """Kill ranks, processes, and whatever they have started."""
    for rank in ranks:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(rank.pid, signal.SIGKILL)
    end_children()


def supervise(link, job):
    """Start the ranks of a job, and end them; then send what `watch` returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it, and hangs up
    signal.signal(signal.SIGTSTP, pause)
    gc.freeze()  # a collection would copy all of PyTorch's objects, for each process
    adopt_orphans()
    environments = [{}]
    if job.processes:
        store = start_store()
        environments = torchrun_variables(job.processes, store.port)
    ranks = []
    for environment in environments:
        ranks.append(RANKS.Process(target=run_rank, args=(job, environment)))
        ranks[-1].start()
    found = watch(link, ranks, job)
    end_all(ranks)
    with suppress(BrokenPipeError):
        link.send(found)


def watch(link, ranks, job):
    """Return (exit statuses of the ranks, None for one that ran on; is it too late?).

    Watches until all have ended, or one has failed, or all that still run have done so
    for `job.timeout` seconds, or nobody is at the other end of `link`.
    """
    stacks = [job.folder / f"stack{rank}" for rank in range(len(ranks))]
    begun = None
    late = False
    while not late:
        running = {rank.sentinel: rank for rank in ranks if rank.exitcode is None}
        if not running or any(rank.exitcode for rank in ranks):
            break
        for ready in wait([link, *running], 0.1):
            if ready is link:
                return None
            running[ready].join(1)  # it is about to end
        if begun is None and all(path.exists() for path in stacks):
            begun = time.monotonic()
        late = begun is not None and time.monotonic() - begun > job.timeout
    statuses = [rank.exitcode for rank in ranks]
    for rank, path in zip(ranks, stacks, strict=True):
        if rank.is_alive() and path.exists():
            os.kill(rank.pid, signal.SIGUSR1)  # says where it is
    if None in statuses:
        time.sleep(0.2)  # until they have
    return statuses, late


def start_server():
    """Have the process from which all are forked not answer Ctrl-C by a traceback."""
    if FORKS and threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            multiprocessing.forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)


def start_store():
    """Return a TCPStore; unlike PyTorch's own socket, it listens on 127.0.0.1 alone."""
    from torch.distributed import TCPStore

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    options = {"wait_for_workers": False, "master_listen_fd": listener.detach()}
    return TCPStore("127.0.0.1", port, is_master=True, **options)


def torchrun_variables(processes, port):
    """Return the variables that torchrun sets, a dict for each rank."""
    shared = {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    numbers = [str(rank) for rank in range(processes)]
    return [{**shared, "RANK": number, "LOCAL_RANK": number} for number in numbers]


def run(words, processes=None, float64=False, timeout=120, prepare=None, gpus=""):
    """Run a script; with `processes`, as so many ranks of one torchrun.

    `prepare` is (function, argument ...), called in each rank before the script with
    the rank in front, and may return what to call after it; `gpus` is a text for
    CUDA_VISIBLE_DEVICES, None for all. As under torchrun, the first rank that fails
    ends the others. Returns what `outcome` returns. Raises TimedOut, which has the same
    attributes, when all ranks that still run have done so for `timeout` seconds,
    start-up not counted.
    """
    words = [str(word) for word in words]
    start_server()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        shared = folder, timeout, float64, prepare, gpus
        job = Job(words, processes or 0, os.getcwd(), *shared)
        link, other = CONTEXT.Pipe()
        supervisor = CONTEXT.Process(target=supervise, args=(other, job))
        supervisor.start()
        other.close()
        try:
            statuses, late = link.recv()
        finally:
            link.close()  # after an interrupt, the supervisor ends all
            supervisor.join()
        result = outcome(job, statuses, late)
    if late:
        raise result
    return result


def outcome(job, statuses, late):
    """Return a subprocess.CompletedProcess, or a TimedOut if it is too late.

    It says of each rank besides: `statuses`, its exit status, None where it was ended;
    `errors`, {rank: (text, line of the script or None)} of what it did not catch;
    `places`, {rank: line or None} of where it was when it was ended; `stderrs`.
    """

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
    outputs = text("stdout"), "".join(stderrs)
    if late:
        result = TimedOut(job.words, job.timeout, *outputs)
    else:
        failed = [abs(status) for status in statuses if status is not None]
        code = max(failed, default=1)
        result = subprocess.CompletedProcess(job.words, code, *outputs)
    result.statuses = statuses
    result.stderrs = stderrs
    result.errors = errors
    result.places = places
    return result
