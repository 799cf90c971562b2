"""A run's supervisor: start its ranks, watch them, and end them."""

import faulthandler
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from pkgutil import resolve_name

from onecurve.start import processes
from onecurve.start.failures import way
from onecurve.start.patience import Patience

# On macOS, gloo aborts if forked after importing torch, so processes are spawned:
# https://github.com/Lightning-AI/pytorch-lightning/issues/21345
FORKS = sys.platform != "darwin"
HERE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
CALLS = re.compile(  # of the script, and of functions that it calls or passes
    r"\boriginal\b|\b(substitute|draw|follow|func(tion)?|fn|collate|closure|bind|run_\w+)\("
)
STDLIB = re.escape(sysconfig.get_path("stdlib"))
LIBRARY = re.compile(f"^(?!{re.escape(HERE)}).*-packages/|^<|^{STDLIB}/")
OWN_FAULT = "error in onecurve itself"
ANSWER = 3  # seconds for a rank to write its stack, or to end


@dataclass
class Job:
    """A run's parameters, for its supervisor and ranks."""

    words: list  # the script and its flags
    processes: int  # ranks of one torchrun; 0: one process, without torchrun
    working: str  # working directory
    folder: Path  # for the ranks' output and errors
    timeout: float = 120  # seconds of computing, as Patience counts them
    idle: float | None = None  # seconds without on any rank; None: `timeout`
    float64: bool = False  # whether torch's default dtype is float64
    # (function or "package.module:function", argument ...): each rank calls it with its
    # number first, before the script, and calls what it returns afterwards
    prepare: tuple | None = None
    gpus: str | None = ""  # for CUDA_VISIBLE_DEVICES; None: unchanged
    module: str | None = None  # to run as `python -m MODULE`; words[0] is its file
    fresh: bool = False  # whether to start new interpreters with their own hash seeds


def run_rank(job, environment):
    """Run as one rank of a job: `python WORDS...`."""
    import torch

    rank = environment.get("RANK", "0")
    os.setsid()  # the script's processes are in this group and end with it
    processes.end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, stream in ("stdout", 1), (f"stderr{rank}", 2):
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(job.folder / name, mode), stream)
    # write whole lines, even if PYTHONUNBUFFERED, so that ranks' lines don't mix
    sys.stdout.reconfigure(line_buffering=True, write_through=False)
    os.chdir(job.working)
    os.environ.update(environment)
    if job.gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = job.gpus
    start_anew()
    if job.float64:
        torch.set_default_dtype(torch.float64)
    at_end = None
    if job.prepare:
        function, *arguments = job.prepare
        at_end = function(int(rank), *arguments)
    stack = open(job.folder / f"stack{rank}", "w")  # noqa: SIM115
    # faulthandler doesn't need the GIL, so it works during blocking calls.
    faulthandler.register(signal.SIGUSR1, stack)
    faulthandler.enable(stack)  # at a crash, such as gloo's
    try:
        processes.run_script(job)
        if at_end:
            at_end()
    except BaseException as error:
        text = json.dumps(described(error, job.words[0]))
        (job.folder / f"error{rank}").write_text(text)
        raise


def start_anew():
    """Make this forked process like a new one, with its own random numbers."""
    if "tqdm" in sys.modules:
        # Its own lock is a semaphore, which a killed rank would leak.
        sys.modules["tqdm"].tqdm.set_lock(threading.RLock())
    seed_anew()
    multiprocessing.set_start_method(None, force=True)


def seed_anew():
    """Seed the generators like those of a new process."""
    import torch

    torch.default_generator.seed()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def own_frame(error, frames):
    """Return the frame of this package that caused an error without errno, or None."""
    if isinstance(error, SystemExit | KeyboardInterrupt | StopIteration):
        return None
    for frame in reversed(frames):
        ours = frame.filename.startswith(HERE)
        passed_on = ours and CALLS.search(frame.line or "")
        if not (passed_on or LIBRARY.search(frame.filename)):
            return frame if ours and not getattr(error, "errno", 0) else None
    return None


def described(error, name):
    """Return an error: its message, line of the script `name`, whether ours, way."""
    if isinstance(error, SystemExit):
        text = error.code if isinstance(error.code, str) else ""
    else:
        text = "".join(traceback.format_exception_only(error)[-1:]).strip()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == name]
    if isinstance(error, SyntaxError) and error.filename == name:
        lines.append(error.lineno)
    ours = own_frame(error, frames)
    if ours:
        text = f"{OWN_FAULT}, {Path(ours.filename).name}:{ours.lineno}: {text}"
    stack = [(one.filename, one.lineno, one.name) for one in reversed(frames)]
    return text, lines[-1] if lines else None, bool(ours), way(stack, name)


def listen():
    """Return a socket for the store; unlike PyTorch's, it is on 127.0.0.1 only."""
    return socket.create_server(("127.0.0.1", 0))


def start_store(listener):
    """Return a TCPStore on a socket, which holds requests until then.

    Fork the ranks first: the store's thread resolves names under a lock of the C
    library, and a rank forked meanwhile would wait for it forever.
    """
    from torch.distributed import TCPStore

    port = listener.getsockname()[1]
    options = {"wait_for_workers": False, "master_listen_fd": listener.detach()}
    options["use_libuv"] = False  # in 2.6, ranks would wait forever for such a socket
    return TCPStore("127.0.0.1", port, is_master=True, **options)


def torchrun_variables(processes, port):
    """Return the variables that torchrun sets, as a dict for each rank."""
    shared = {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "none",  # as torchrun --standalone
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    numbers = [str(rank) for rank in range(processes)]
    return [{**shared, "RANK": number, "LOCAL_RANK": number} for number in numbers]


def supervise(link, other, job):
    """Start, watch and end a job's ranks; then send what `watch` returned."""
    other.close()  # the caller's end: only the caller may keep it open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it and hangs up
    processes.adopt_orphans()
    environments = [{}]
    if job.processes:
        listener = listen()
        environments = torchrun_variables(job.processes, listener.getsockname()[1])
    if job.prepare and isinstance(job.prepare[0], str):
        job.prepare = resolve_name(job.prepare[0]), *job.prepare[1:]  # before the forks
    forks = FORKS and not job.fresh
    context = multiprocessing.get_context("fork" if forks else "spawn")
    ranks = []
    for environment in environments:
        ranks.append(context.Process(target=run_rank, args=(job, environment)))
        ranks[-1].start()
    if job.processes:
        store = start_store(listener)  # noqa: F841, it lives as long as the ranks
    found = watch(link, ranks, job)
    for rank in ranks:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(rank.pid, signal.SIGKILL)
    processes.end_children()
    with suppress(BrokenPipeError):
        link.send(found)


def watch(link, ranks, job):
    """Wait until ranks end, one fails, they take too long, or the caller hangs up.

    Return (exit statuses, HANGS, STOPPED or ''); the status of a running rank is None.
    """
    stacks = [job.folder / f"stack{rank}" for rank in range(len(ranks))]
    patience = None
    late = ""
    while not late:
        running = {rank.sentinel: rank for rank in ranks if rank.exitcode is None}
        if not running or any(rank.exitcode for rank in ranks):
            break
        for ready in wait([link, *running], 0.1):
            if ready is link:
                return None
            running[ready].join(1)  # it is about to end
        if patience:
            late = patience.late()
        elif all(path.exists() for path in stacks):
            pids = [rank.pid for rank in ranks]
            patience = Patience(pids, job.timeout, job.idle or job.timeout)
    statuses = [rank.exitcode for rank in ranks]
    if None in statuses:
        ask_where(ranks, stacks)
    for number, rank in enumerate(ranks):
        # a killed rank may still be ending when another has noticed and ended
        if rank.exitcode is not None and rank.exitcode < 0:
            statuses[number] = rank.exitcode
    return statuses, late


def ask_where(ranks, stacks):
    """Have running ranks write their stacks; wait until they have, or have ended."""
    asked = []
    for rank, path in zip(ranks, stacks, strict=True):
        if rank.is_alive() and path.exists():
            os.kill(rank.pid, signal.SIGUSR1)
            asked.append((rank, path))
    end = time.monotonic() + ANSWER
    for rank, path in asked:
        while rank.is_alive() and not path.stat().st_size and time.monotonic() < end:
            rank.join(0.02)
    time.sleep(0.2)  # until the whole stack is written
