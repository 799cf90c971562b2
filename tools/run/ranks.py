"""Run a script in processes forked from one that has imported torch.

Start-up is most of a short run, and the tests and the exercises make many. The ranks
are processes of their own all the same, with the variables that torchrun sets.
PyTorch's elastic_launch takes 0.35 s for what takes 0.10 s here, and has no timeout.
"""

import faulthandler
import multiprocessing
import os
import re
import runpy
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

# macOS aborts gloo in a process that was forked after torch had been imported:
# https://github.com/Lightning-AI/pytorch-lightning/issues/21345
CONTEXT = multiprocessing.get_context(
    "spawn" if sys.platform == "darwin" else "forkserver"
)
CONTEXT.set_forkserver_preload(["torch", "torchvision", "tqdm"])


class TimedOut(subprocess.TimeoutExpired):
    """A run took too long; `.places` says where ranks hang: {rank: line or None}."""

    places = None


def run_here(words, environment, float64, timeout, folder, prepare, gpus):
    """Become `python WORDS...` with the output in files of `folder`.

    After `timeout` seconds, faulthandler's own thread writes where the process is: that
    takes no lock of Python, so a call that blocks it is no matter.
    """
    for name, stream in ("stdout", 1), ("stderr", 2):
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(folder / name, mode), stream)
    os.chdir(ROOT)
    os.environ.update(environment)
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    rank = environment.get("RANK", "0")
    torch.set_num_threads(1)
    # Its own lock is a semaphore, which a killed rank would leave behind.
    tqdm.set_lock(threading.RLock())
    if float64:
        torch.set_default_dtype(torch.float64)
    if prepare:
        function, *arguments = prepare
        function(int(rank), *arguments)
    stack = open(folder / f"stack{rank}", "w")  # noqa: SIM115
    faulthandler.dump_traceback_later(timeout, file=stack)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def hanging(ranks, folder, name):
    """Return where ranks hang: {rank: number of a line of script `name`, or None}.

    It is empty until all of `ranks`, numbers, have written where they are.
    """
    stacks = {rank: folder / f"stack{rank}" for rank in ranks}
    written = [path.exists() and path.stat().st_size for path in stacks.values()]
    if not written or not all(written):
        return {}
    time.sleep(0.2)  # until the last has written all
    found = {}
    for rank, path in stacks.items():
        lines = re.findall(rf'File "{re.escape(name)}", line (\d+)', path.read_text())
        found[rank] = int(lines[0]) if lines else None
    return found


def run(words, processes=None, float64=False, timeout=120, prepare=None, gpus=False):
    """Run a script; with `processes`, as so many ranks of one torchrun.

    `prepare` is (function, argument ...), called in each rank before the script with
    the rank in front; `gpus` lets the ranks see GPUs. As under torchrun, the first rank
    that fails ends the others. Returns a subprocess.CompletedProcess. Raises TimedOut
    when all that still run have done so for `timeout` seconds, start-up not counted.
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
        folder, ranks, places = Path(folder), [], {}
        for environment in environments:
            more = words, environment, float64, timeout, folder, prepare, gpus
            ranks.append(CONTEXT.Process(target=run_here, args=more, daemon=True))
            ranks[-1].start()
        running = dict(enumerate(ranks))
        while running and not places and not any(rank.exitcode for rank in ranks):
            wait([rank.sentinel for rank in running.values()], 0.1)
            running = {n: r for n, r in running.items() if r.exitcode is None}
            places = hanging(running, folder, words[0])
        for rank in running.values():
            rank.kill()
            rank.join()
        stdout, stderr = ((folder / n).read_text() for n in ("stdout", "stderr"))
    if places:
        error = TimedOut(words, timeout, stdout, stderr)
        error.places = places
        raise error
    ended = [abs(r.exitcode) for n, r in enumerate(ranks) if n not in running]
    return subprocess.CompletedProcess(words, max(ended, default=1), stdout, stderr)
