"""Run a script in processes forked from one that has imported torch.

Start-up is most of a short run, and the tests and the exercises make many. The ranks are
processes of their own all the same, with the variables that torchrun sets.
"""

import faulthandler
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
from multiprocessing.connection import wait
from pathlib import Path

import torch
from torch.distributed import TCPStore
from tqdm import tqdm

from tools.run.stages import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torchvision", "tqdm"])


class TimedOut(subprocess.TimeoutExpired):
    """A run took too long; `.places` says where each rank was: {rank: line or None}."""

    places = None


def run_here(words, environment, float64, folder, prepare, gpus):
    """Become `python WORDS...` with the output in files of `folder`."""
    for name, stream in ("stdout", 1), ("stderr", 2):
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(folder / name, mode), stream)
    os.chdir(ROOT)
    os.environ.update(environment)
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    rank = environment.get("RANK", "0")
    stack = open(folder / f"stack{rank}", "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, stack, all_threads=False)
    torch.set_num_threads(1)
    # Its own lock is a semaphore, which a killed rank would leave behind.
    tqdm.set_lock(threading.RLock())
    if float64:
        torch.set_default_dtype(torch.float64)
    if prepare:
        function, *arguments = prepare
        function(int(rank), *arguments)
    (folder / f"started{rank}").touch()
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def places(ranks, folder, name):
    """Ask ranks that hang where they are: {rank: number of a line of script `name`}."""
    for rank in ranks:
        try:
            os.kill(rank.pid, signal.SIGUSR1)
        except ProcessLookupError:
            pass
    time.sleep(0.5)
    found = {}
    for path in folder.glob("stack*"):
        lines = re.findall(rf'File "{re.escape(name)}", line (\d+)', path.read_text())
        found[int(path.name.removeprefix("stack"))] = int(lines[0]) if lines else None
    return dict(sorted(found.items()))


def run(words, processes=None, float64=False, timeout=120, prepare=None, gpus=False):
    """Run a script; with `processes`, as so many ranks of one torchrun.

    `prepare` is (function, argument ...), called in each rank before the script with the
    rank in front; `gpus` lets the ranks see GPUs. As under torchrun, the first rank that
    fails ends the others. Returns a subprocess.CompletedProcess. Raises TimedOut `timeout`
    seconds after all have started.
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
    with tempfile.TemporaryDirectory() as folder:
        folder, ranks, lines = Path(folder), [], {}
        for environment in environments:
            more = words, environment, float64, folder, prepare, gpus
            ranks.append(CONTEXT.Process(target=run_here, args=more, daemon=True))
            ranks[-1].start()
        running, end, late = list(ranks), None, False
        while running and not any(rank.exitcode for rank in ranks):
            if end is None and len(list(folder.glob("started*"))) == len(ranks):
                end = time.monotonic() + timeout
            if late := end is not None and time.monotonic() >= end:
                lines = places(running, folder, words[0])
                break
            wait([rank.sentinel for rank in running], 0.1)
            running = [rank for rank in ranks if rank.exitcode is None]
        for rank in running:
            rank.kill()
            rank.join()
        stdout, stderr = ((folder / n).read_text() for n in ("stdout", "stderr"))
    if late:
        error = TimedOut(words, timeout, stdout, stderr)
        error.places = lines
        raise error
    code = max((abs(rank.exitcode) for rank in ranks if rank not in running), default=1)
    return subprocess.CompletedProcess(words, code, stdout, stderr)
