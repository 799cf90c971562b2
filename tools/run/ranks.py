"""Run a script in processes forked from one that has imported torch.

Start-up is most of a short run, and the tests and the exercises make many. The ranks
are processes of their own all the same, with the variables that torchrun sets.
PyTorch's elastic_launch takes 0.35 s for what takes 0.10 s here, and has no timeout.

A run leaves nothing behind. A process of its own, the keeper, starts the ranks and ends
them, and whatever they have started: when the run is over, or when who asked for it is
gone, however that went.
"""

import faulthandler
import gc
import json
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

import torch
from torch.distributed import TCPStore
from tqdm import tqdm

from tools.run.stages import ROOT
from tools.run.supervise import adopt_orphans, end_children, end_with_parent

# macOS aborts gloo in a process that was forked after torch had been imported:
# https://github.com/Lightning-AI/pytorch-lightning/issues/21345
CONTEXT = multiprocessing.get_context(
    "spawn" if sys.platform == "darwin" else "forkserver"
)
CONTEXT.set_forkserver_preload(["torch", "torchvision", "tools.run.ranks"])


class TimedOut(subprocess.TimeoutExpired):
    """A run took too long; it has what `run` returns besides."""


def run_here(words, environment, float64, folder, prepare, gpus):
    """Become `python WORDS...`, with what it writes, and how it ends, in `folder`."""
    rank = environment.get("RANK", "0")
    os.setsid()  # what the script starts is in this group, and ends with it
    end_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, stream in ("stdout", 1), (f"stderr{rank}", 2):
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(folder / name, mode), stream)
    os.chdir(ROOT)
    os.environ.update(environment)
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)
    # Its own lock is a semaphore, which a killed rank would leave behind.
    tqdm.set_lock(threading.RLock())
    if float64:
        torch.set_default_dtype(torch.float64)
    if prepare:
        function, *arguments = prepare
        function(int(rank), *arguments)
    stack = open(folder / f"stack{rank}", "w")  # noqa: SIM115
    # It takes no lock of Python, so a call that blocks it is no matter.
    faulthandler.register(signal.SIGUSR1, stack)
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except BaseException as error:
        (folder / f"error{rank}").write_text(json.dumps(described(error, words[0])))
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


def keep(link, environments, timeout, words, float64, folder, prepare, gpus):
    """Start the ranks; send what `watch` returns, once they and theirs have ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked gets it, and hangs up
    gc.freeze()  # a collection would copy all of PyTorch's objects, for each process
    adopt_orphans()
    fork, ranks = multiprocessing.get_context("fork"), []
    for environment in environments:
        more = words, environment, float64, folder, prepare, gpus
        ranks.append(fork.Process(target=run_here, args=more))
        ranks[-1].start()
    found = watch(link, ranks, timeout, folder)
    end_all(ranks)
    with suppress(BrokenPipeError):
        link.send(found)


def watch(link, ranks, timeout, folder):
    """Return (exit statuses of the ranks, None for one that ran on; is it too late?).

    Watches until all have ended, or one has failed, or all that still run have done so
    for `timeout` seconds, or nobody is at the other end of `link`.
    """
    stacks = [folder / f"stack{rank}" for rank in range(len(ranks))]
    begun, late = None, False
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
        late = begun is not None and time.monotonic() - begun > timeout
    statuses = [rank.exitcode for rank in ranks]
    for rank, path in zip(ranks, stacks, strict=True):
        if rank.is_alive() and path.exists():
            os.kill(rank.pid, signal.SIGUSR1)  # says where it is
    if None in statuses:
        time.sleep(0.2)  # until they have
    return statuses, late


def start_server():
    """Have the process from which all are forked not answer Ctrl-C by a traceback."""
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            multiprocessing.forkserver.ensure_running()
        finally:
            signal.signal(signal.SIGINT, before)


def run(words, processes=None, float64=False, timeout=120, prepare=None, gpus=False):
    """Run a script; with `processes`, as so many ranks of one torchrun.

    `prepare` is (function, argument ...), called in each rank before the script with
    the rank in front; `gpus` lets the ranks see GPUs. As under torchrun, the first rank
    that fails ends the others. Returns a subprocess.CompletedProcess that says of each
    rank besides: `statuses`, its exit status, None where it was ended; `errors`,
    {rank: (text, line of the script or None)} of what it did not catch; `places`,
    {rank: line or None} of where it was when it was ended; `stderrs`. Raises TimedOut,
    which has the same, when all that still run have done so for `timeout` seconds,
    start-up not counted.
    """
    words = list(map(str, words))
    environments = [{}]
    if processes:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
        }
        environments = [
            {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            for rank in range(processes)
        ]
    start_server()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        link, other = CONTEXT.Pipe()
        more = environments, timeout, words, float64, folder, prepare, gpus
        keeper = CONTEXT.Process(target=keep, args=(other, *more))
        keeper.start()
        other.close()
        try:
            statuses, late = link.recv()
        finally:
            link.close()  # an interrupt: the keeper ends all
            keeper.join()
        texts = {
            path.name: path.read_text(errors="replace") for path in folder.iterdir()
        }
    ranks = range(len(environments))
    stderrs = [texts.get(f"stderr{rank}", "") for rank in ranks]
    outputs = texts.get("stdout", ""), "".join(stderrs)
    failed = max((abs(status) for status in statuses if status is not None), default=1)
    result = TimedOut(words, timeout, *outputs) if late else None
    result = result or subprocess.CompletedProcess(words, failed, *outputs)
    result.statuses, result.stderrs = statuses, stderrs
    result.errors = {
        rank: tuple(json.loads(texts[f"error{rank}"]))
        for rank in ranks
        if texts.get(f"error{rank}")
    }
    result.places = {
        rank: place(texts.get(f"stack{rank}", ""), words[0])
        for rank in ranks
        if statuses[rank] is None
    }
    if late:
        raise result
    return result
