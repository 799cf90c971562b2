"""`make doctor`: check whether this machine is ready for a workshop.

Prints OK or FAILURE for each check. The last line is for the instructor. Its parts are
separated by ` | `: the user with `ready` or `not ready: ` and the reason; the system;
Python; PyTorch; the number of cores.
"""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata

from tools.run.gpus import count_cpus, count_gpus
from tools.run.stages import STAGES, too_old
from tools.run.supervise import running

OK = "OK"
FAILURE = "FAILURE"  # some stage cannot run
PROBE = "tools.run.probe"  # what each rank runs
LIMIT = 120  # seconds that it may run


def packages():
    """Check the version of PyTorch."""
    import torch
    import torchvision

    old = too_old(torch.__version__, STAGES)
    if old:
        return FAILURE, f"{old}: rm -r .venv; make setup"
    return OK, f"torch {torch.__version__}, torchvision {torchvision.__version__}"


def gpus():
    """List the GPUs that PyTorch can use, and try each."""
    import torch

    names = []
    for index in range(count_gpus()):
        names.append(torch.cuda.get_device_name(index))
        torch.ones(1, device=f"cuda:{index}").item()  # fails if too old for torch
    why = f"PyTorch's CUDA: {torch.version.cuda}, see python -m torch.utils.collect_env"
    return OK, ", ".join(names) or f"none: all stages run on the CPU ({why})"


def processes():
    """Start ranks that exchange a tensor."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += [f"--nproc-per-node={max(count_gpus(), 2)}", "-m", PROBE]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with running(words, **options) as child:
        try:
            stdout, stderr = child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return FAILURE, f"no answer in {LIMIT} s: try {' '.join(words)}"
    if child.returncode:
        why = re.findall(r"\w+Error: .+", stderr) or ["the ranks failed"]
        return FAILURE, f"{why[0]}: try {' '.join(words)}"
    return OK, f"{stdout.strip()}, on {count_cpus()} cores"


def sender():
    """Return user@machine without spaces, for the instructor's line."""
    # a container's user may have no name
    user = os.environ.get("USER") or os.getuid()
    return f"{user}@{platform.node()}".replace(" ", "_")


def main():
    """Run all checks; print a line for each and one for the instructor."""
    failed = []
    for check in packages, gpus, processes:
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
    versions = f"Python {platform.python_version()} | torch {metadata.version('torch')}"
    print(f"{sender()}: {verdict} | {system} | {versions} | cores {count_cpus()}")
    if failed:
        sys.exit("not ready: fix the checks marked FAILURE")
