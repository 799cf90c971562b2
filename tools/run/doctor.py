"""Say whether this machine is ready for a workshop: `python -m tools.run.doctor`.

Prints a line for each check: OK, WARNING or FAILURE, and how to fix it. The last line
is for the instructor. The exit status is 1 if a stage could not run.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec

from packaging.requirements import Requirement

from tools.run import data
from tools.run.gpus import count_gpus
from tools.run.install import GPU_ONLY
from tools.run.plan import make_plan
from tools.run.stages import ROOT, end_at_a_closed_pipe, too_old

OK = "OK"
WARNING = "WARNING"
FAILURE = "FAILURE"
LIMIT = 120  # seconds for processes to start and exchange a tensor
AGAIN = "rm -r .venv, make setup"
# PyTorch for CUDA 12 runs with older drivers, and on older GPUs.
OLDER = f"{AGAIN} TORCH_INDEX=https://download.pytorch.org/whl/cu126"


def first_line(text):
    return str(text).strip().partition("\n")[0]


def packages():
    others = []
    for line in (ROOT / "requirements/stages.txt").read_text().splitlines():
        if not line[:1].isalpha() or line.startswith(GPU_ONLY):
            continue
        pin = Requirement(line)
        if pin.marker and not pin.marker.evaluate():
            continue
        try:
            found = metadata.version(pin.name).partition("+")[0]
        except metadata.PackageNotFoundError:
            return FAILURE, f"{pin.name} is missing: {AGAIN}"
        if not pin.specifier.contains(found, prereleases=True):
            others.append(f"{pin.name} {found} instead of {pin.specifier}")
    try:
        import torch
        import torchvision
    except Exception as error:  # noqa: BLE001
        return FAILURE, f"torch or torchvision: {first_line(error)}: {AGAIN}"
    old = too_old(metadata.version("torch"))
    if old:
        return FAILURE, f"{old}: {AGAIN}"
    if others:
        return WARNING, f"{', '.join(others)}: {AGAIN} installs what was tested"
    found = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    return OK, f"Python {platform.python_version()}, {found}, as pinned"


def gpus():
    import torch

    # get_arch_list has texts such as sm_75, for compute capability 7.5
    built_for = []
    for name in torch.cuda.get_arch_list():
        if re.fullmatch(r"sm_\d+", name):
            built_for.append(int(name[3:]))
    found = []
    for index in range(count_gpus()):
        gpu = torch.cuda.get_device_properties(index)
        found.append(f"{index}: {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB")
        if gpu.major * 10 + gpu.minor < min(built_for, default=0):
            why = f"compute capability {gpu.major}.{gpu.minor}, too old for this torch"
            return FAILURE, f"{found[-1]}, {why}: {OLDER}"
    if not found:
        return OK, "none: every stage runs on the CPU"
    for name in "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE":
        if os.environ.get(name) == "1":
            why = "TF32 rounds more, and moves the loss by about 0.15 %"
            return WARNING, f"{'; '.join(found)}: unset {name}, {why}"
    return OK, "; ".join(found)


def driver():
    import torch

    count = count_gpus()
    if not shutil.which("nvidia-smi"):
        return OK, "no nvidia-smi" if count else "no nvidia-smi, no NVIDIA GPU"
    query = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
    result = subprocess.run(query.split(), capture_output=True, text=True)
    versions = result.stdout.split()
    if result.returncode or not versions:
        return WARNING, f"nvidia-smi: {first_line(result.stdout + result.stderr)}"
    if len(versions) == count:
        return OK, f"{versions[0]}; nvidia-smi and torch see {count} GPUs"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.version.cuda:
        why = f"this torch is a CPU build: {AGAIN}"
    elif hidden is not None and (count or not hidden):
        why = f"CUDA_VISIBLE_DEVICES is {hidden!r}"
    else:
        why = cuda_error()
    seen = f"{versions[0]}; nvidia-smi sees {len(versions)} GPUs, torch {count}"
    return WARNING, f"{seen}: {why}"


def cuda_error():
    """Return in one line why CUDA can use no GPU here, in its own words."""
    import torch

    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001
        why = first_line(error).partition(". Please")[0]
        return f"{why}: a newer one, or {OLDER}" if "too old" in why else why
    return "CUDA starts all the same"


def copies():
    import torch

    count = count_gpus()
    if count < 2:
        return OK, "one device"
    sent = torch.arange(2**20)
    for one in range(count):
        other = (one + 1) % count
        if not sent.equal(sent.to(f"cuda:{one}").to(f"cuda:{other}").cpu()):
            why = f"what GPU {one} copies to GPU {other} does not arrive"
            return FAILURE, f"{why}: turn the IOMMU (VT-d, AMD-Vi) off, or GPUS={one}"
    return OK, f"from GPU to GPU arrive, {count} GPUs"


def cause(stderr):
    """Return the error that ended a process, in a line. Warnings come before it."""
    error = re.search(r"\w+Error: .+", stderr)
    return error[0] if error else first_line(stderr) or "a process died"


def processes():
    settings = {**os.environ, "DATA": "data/sample", "ARGS": "", "NPROC": ""}
    plan = make_plan("04_ddp", settings)
    command = [*plan.launcher, "-m", "tools.run.probe"]
    environment = {**os.environ, **plan.environment}
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return FAILURE, f"no answer within {LIMIT} s: try {' '.join(command)}"
    if result.returncode:
        return FAILURE, f"{cause(result.stderr)}: try {' '.join(command)}"
    return OK, result.stdout.strip()


def lab():
    """Run the probe in the way of the tests, the lab and `make trace`."""
    from tools.run import ranks

    result = ranks.run(["tools/run/probe.py"], processes=2, timeout=LIMIT)
    if result.returncode:
        users = "make exercise, test and trace start processes in this way"
        return FAILURE, f"{cause(result.stderr)}: {users}"
    return OK, f"{result.stdout.strip()}, {ranks.CONTEXT.get_start_method()}"


def memory():
    if not os.path.isdir("/dev/shm"):
        return OK, "no /dev/shm on this system"
    free = shutil.disk_usage("/dev/shm").free
    if free < 2**27:  # Docker gives 2**26
        advice = "NCCL and DataLoader workers need more (docker run --shm-size=1g)"
        return WARNING, f"{free / 2**20:.0f} MiB free in /dev/shm: {advice}"
    return OK, f"{free / 2**30:.1f} GiB free in /dev/shm"


def disk():
    free = shutil.disk_usage(ROOT).free
    if free < 2**28:
        return WARNING, f"{free / 2**20:.0f} MiB free: MNIST and the runs need 200"
    return OK, f"{free / 2**30:.0f} GiB free"


def cores():
    import torch

    count = os.cpu_count() or 1
    threads = torch.get_num_threads()
    found = f"{count} cores, torch uses {threads} threads"
    if threads > count:
        return WARNING, f"{found}: too many, unset OMP_NUM_THREADS"
    if count < 2:
        return WARNING, f"{found}: two processes share one core, which is slow"
    return OK, found


def mnist():
    full = data.FULL.exists()
    root = data.FULL if full else data.SAMPLE
    try:
        train, test = data.check(root)
    except ValueError as error:
        advice = "rm -r data/mnist, make data" if full else "git checkout data/sample"
        return FAILURE, f"{error}: {advice}"
    if full:
        return OK, f"runs use data/mnist, {train + test} images"
    found = f"runs use data/sample, {train + test} images"
    return WARNING, f"{found}: make data fetches all 70000"


def jupyter():
    if not find_spec("ipykernel") or not find_spec("jupyterlab"):
        return WARNING, "no JupyterLab here: make setup installs it; no stage needs it"
    return OK, f"JupyterLab {metadata.version('jupyterlab')} and its kernel"


CHECKS = {
    "packages": packages,
    "GPUs": gpus,
    "driver": driver,
    "copies": copies,
    "processes": processes,
    "lab": lab,
    "shared memory": memory,
    "disk": disk,
    "cores": cores,
    "MNIST": mnist,
    "Jupyter": jupyter,
}


def summary(verdicts):
    """Return this machine in a line that people can paste: system, versions, verdict.

    `verdicts` maps the names of checks to OK, WARNING or FAILURE.
    """
    system = f"{platform.system()} {platform.machine()}"
    versions = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    count = count_gpus()
    size = f"{os.cpu_count()} cores, {count} GPU{'s' * (count != 1)}"
    used = "data/mnist" if data.FULL.exists() else "data/sample"
    failed = [name for name, verdict in verdicts.items() if verdict == FAILURE]
    verdict = f"FAILURE: {', '.join(failed)}" if failed else "ready"
    return f"{system}, {versions}, {size}, {used}: {verdict}"


def main():
    end_at_a_closed_pipe()
    os.chdir(ROOT)
    verdicts = {}
    for name, check in CHECKS.items():
        try:
            verdict, text = check()
        except (Exception, SystemExit) as error:  # noqa: BLE001
            verdict = FAILURE
            text = f"{type(error).__name__}: {first_line(error)}"
        verdicts[name] = verdict
        print(f"{name:14} {verdict:8} {text}", flush=True)
    print(summary(verdicts), flush=True)
    if FAILURE in verdicts.values():
        sys.exit("a stage could not run here: fix what says FAILURE")


if __name__ == "__main__":
    main()
