"""Run a stage in processes forked from one that has imported torch: start-up is most
of a short run, and the tests make many. The ranks are processes of their own all the
same, with the variables that torchrun sets; that torchrun itself works is tested
in test_make.py, test_failing.py, test_resume.py and test_nodes.py.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import wait
from pathlib import Path

import torch
from torch.distributed import TCPStore

from tools.stages import ROOT

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torchvision", "tqdm"])


def run_here(words, environment, float64, folder):
    """Become `python WORDS...` with the output in files of `folder`."""
    for name, stream in ("stdout", 1), ("stderr", 2):
        mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(folder / name, mode), stream)
    os.chdir(ROOT)
    os.environ.update(environment, CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    if float64:
        torch.set_default_dtype(torch.float64)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def run(words, processes=None, float64=False, timeout=120):
    """Run a script; with `processes`, as so many ranks of one torchrun.

    Returns a subprocess.CompletedProcess. As under torchrun, the first rank that fails
    ends the others. Raises subprocess.TimeoutExpired.
    """
    words, end = list(map(str, words)), time.monotonic() + timeout
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
        folder, ranks = Path(folder), []
        for environment in environments:
            more = words, environment, float64, folder
            ranks.append(CONTEXT.Process(target=run_here, args=more, daemon=True))
            ranks[-1].start()
        running = list(ranks)
        while running and not any(rank.exitcode for rank in ranks):
            if not wait([rank.sentinel for rank in running], end - time.monotonic()):
                break
            running = [rank for rank in ranks if rank.exitcode is None]
        late = time.monotonic() >= end
        for rank in running:
            rank.kill()
            rank.join()
        stdout, stderr = ((folder / n).read_text() for n in ("stdout", "stderr"))
    if late:
        raise subprocess.TimeoutExpired(words, timeout, stdout, stderr)
    code = max((abs(rank.exitcode) for rank in ranks if rank not in running), default=1)
    return subprocess.CompletedProcess(words, code, stdout, stderr)
