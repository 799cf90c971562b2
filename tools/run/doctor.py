"""Say whether this machine is ready for a workshop: `python -m tools.run.doctor`.

Prints a line for each check: OK, WARNING or FAILURE, and what to do about it. The last
line is for the instructor. It has parts, with ` | ` between them: who, and `ready` or
`not ready: ` and why; the system, Python, PyTorch, the cores.
"""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata

from tools.run import data
from tools.run.gpus import count_cpus, count_gpus
from tools.run.packages import is_there
from tools.run.stages import STAGES, too_old
from tools.run.supervise import running

OK = "OK"
WARNING = "WARNING"
FAILURE = "FAILURE"  # a stage could not run
AGAIN = "rm -r .venv, make setup"
PROBE = "tools.run.probe"  # what each rank runs
LIMIT = 120  # seconds that it may take


def packages():
    import torch
    import torchvision

    old = too_old(torch.__version__, STAGES)
    if old:
        return FAILURE, f"{old}; {AGAIN}"
    old = too_old(torch.__version__)
    if old:
        return WARNING, f"{old}; the others run"
    return OK, f"torch {torch.__version__}, torchvision {torchvision.__version__}"


def gpus():
    import torch
    from torch.utils import collect_env

    driver = collect_env.get_nvidia_driver_version(collect_env.run)
    names = []
    for index in range(count_gpus()):
        names.append(torch.cuda.get_device_name(index))
        torch.ones(1, device=f"cuda:{index}").item()  # fails if it is too old for torch
    if names:
        return OK, f"driver {driver}: {', '.join(names)}"
    if not driver:
        return OK, "none: every stage runs on the CPU"
    if not torch.version.cuda:
        why = f"this torch is a CPU build: {AGAIN} TORCH_INDEX=default"
        return WARNING, f"driver {driver}, but {why}"
    why = f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001
        why = str(error).partition(". Please")[0].partition("\n")[0]
    return WARNING, f"driver {driver}, but {why}"


def processes():
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += [f"--nproc-per-node={max(count_gpus(), 2)}", "-m", PROBE]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with running(words, **options) as child:
        try:
            stdout, stderr = child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return FAILURE, f"no answer in {LIMIT} s: try {' '.join(words)}"
    if child.returncode:
        error = re.search(r"\w+Error: .+", stderr)  # warnings come before it
        why = error[0] if error else stderr.strip().partition("\n")[0]
        return FAILURE, f"{why}: try {' '.join(words)}"
    found = stdout.strip()
    if count_cpus() < 2:
        return WARNING, f"{found}, but they share one core, which is slow"
    return OK, f"{found}, on {count_cpus()} cores"


def mnist():
    counts = data.check(data.SAMPLE)
    found = f"data/sample, {sum(counts)} images"
    if not data.FULL.exists():
        return OK, f"{found}; make data fetches all 70000"
    return OK, f"{found}; data/mnist, {sum(data.check(data.FULL))}"


def sender():
    """Return the name in a line for the instructor, in one word."""
    # a container may know no name of its user
    user = os.environ.get("USER") or os.getuid()
    return f"{user}@{platform.node()}".replace(" ", "_")


def main():
    """Make all checks; print a line for each, and one for the instructor."""
    failed = []
    for check in packages, gpus, processes, mnist:
        name = check.__name__
        print(f"{name:10} ", end="", flush=True)  # the processes take seconds
        try:
            verdict, text = check()
        except Exception as error:  # noqa: BLE001
            verdict = FAILURE
            text = f"{type(error).__name__}: {error}".partition("\n")[0]
        if verdict == FAILURE:
            old = re.search(r"PyTorch [\d.]+(?=\S* is too old)", text)
            failed.append(old[0] if old else name)
        print(f"{verdict:8} {text}")
    verdict = f"not ready: {', '.join(failed)}" if failed else "ready"
    system = f"{platform.system()} {platform.machine()}"
    torch = metadata.version("torch") if is_there("torch") else "missing"
    versions = f"Python {platform.python_version()} | torch {torch}"
    print(f"{sender()}: {verdict} | {system} | {versions} | cores {count_cpus()}")
    if failed:
        sys.exit("a stage could not run here: fix what says FAILURE")
