"""Say whether this machine is ready for a workshop: `python -m tools.run.doctor`.

One line for each thing that a stage needs, with OK, WARNING or FAILURE and what to do.
Exit status 1 only where a stage could not run.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec

from packaging.requirements import Requirement

from tools.run import data, launch
from tools.run.stages import ROOT, end_at_a_closed_pipe

GPU_ONLY = "nvidia", "cuda", "triton"  # what a torch for CPUs does without
OK, WARNING, FAILURE = "OK", "WARNING", "FAILURE"
FULL_SHA256 = {  # of the files that the official .gz files hold, after their MD5 was right
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}  # fmt: skip


def python():
    return OK, ".".join(map(str, sys.version_info[:3]))  # make refuses older ones


def packages():
    wrong = []
    for line in (ROOT / "requirements/stages.txt").read_text().splitlines():
        line = line.partition("#")[0].strip()
        if not line or line.startswith(GPU_ONLY):
            continue
        pin = Requirement(line)
        if pin.marker and not pin.marker.evaluate():
            continue
        try:
            found = metadata.version(pin.name).partition("+")[0]
        except metadata.PackageNotFoundError:
            return FAILURE, f"{pin.name} is missing: rm .venv/*.ready, then make setup"
        if not pin.specifier.contains(found, prereleases=True):
            wrong.append(f"{pin.name} {found} instead of {pin.specifier}")
    try:
        import torch
        import torchvision
    except Exception as error:  # noqa: BLE001
        first = str(error).partition("\n")[0]
        return (
            FAILURE,
            f"torch and torchvision do not fit ({first}): rm -r .venv, make setup",
        )
    if wrong:
        return WARNING, f"{', '.join(wrong)}: make setup installs what was tried"
    return (
        OK,
        f"torch {torch.__version__}, torchvision {torchvision.__version__}, as pinned",
    )


def gpus():
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        found.append(f"{index}: {card.name}, {card.total_memory / 2**30:.0f} GiB")
    return OK, "; ".join(found) or "none: every stage runs on the CPU"


def driver():
    import torch

    count = torch.cuda.device_count()
    if not shutil.which("nvidia-smi"):
        return OK, "no nvidia-smi, no NVIDIA GPU" if not count else "no nvidia-smi"
    result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    listed = len(re.findall(r"^GPU \d", result.stdout, re.MULTILINE))
    if listed == count:
        return OK, f"nvidia-smi and torch see {count} GPUs"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = f"CUDA_VISIBLE_DEVICES is {hidden!r}" if hidden is not None else (
        f"this torch needs a driver for CUDA {torch.version.cuda}"
        if torch.version.cuda
        else "this torch is a CPU build: make setup without TORCH_INDEX"
    )  # fmt: skip
    return WARNING, f"nvidia-smi sees {listed} GPUs, torch {count}: {why}"


def reduction():
    settings = {**os.environ, "DATA": "data/sample", "ARGS": "", "NPROC": ""}
    added, command = launch.plan("04_ddp", settings)
    end = next(i for i, word in enumerate(command) if word.endswith("mnist.py"))
    command = [*command[:end], "tools/run/probe.py"]
    try:
        result = subprocess.run(
            command,
            env={**os.environ, **added},
            capture_output=True,
            text=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return FAILURE, f"no answer within 60 s: try {' '.join(command)}"
    if result.returncode:
        first = result.stderr.strip().partition("\n")[0]
        return FAILURE, f"{first}: try {' '.join(command)}"
    return OK, result.stdout.strip()


def memory():
    if not os.path.isdir("/dev/shm"):
        return OK, "no /dev/shm on this system"
    free = shutil.disk_usage("/dev/shm").free
    if free < 2**26:
        advice = "NCCL and DataLoader workers need more (docker run --shm-size=1g)"
        return WARNING, f"{free / 2**20:.0f} MiB free in /dev/shm: {advice}"
    return OK, f"{free / 2**30:.1f} GiB free in /dev/shm"


def disk():
    free = shutil.disk_usage(ROOT).free
    if free < 2**24:
        return FAILURE, f"{free / 2**20:.0f} MiB free: too little to save a model"
    if free < 2**30:
        return WARNING, f"{free / 2**20:.0f} MiB free: MNIST and the runs need 200"
    return OK, f"{free / 2**30:.0f} GiB free"


def cores():
    import torch

    given = os.environ.get("OMP_NUM_THREADS")
    count = os.cpu_count() or 1
    text = f"{count} cores, torch uses {torch.get_num_threads()} threads"
    if given and given.isdecimal() and int(given) > count:
        return WARNING, f"{text}: OMP_NUM_THREADS={given} is too many, unset it"
    if count < 2:
        return WARNING, f"{text}: two processes share one core, which works but is slow"
    return OK, text + (f" (OMP_NUM_THREADS={given})" if given else "")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mnist():
    page = (data.SAMPLE / "README.md").read_text()
    for name in data.FILES:
        path = data.SAMPLE / "MNIST" / "raw" / name
        if not path.is_file() or digest(path) not in page:
            return FAILURE, f"{data.shown(path)} is damaged: git checkout data/sample"
    if not data.FULL.exists():
        return WARNING, "only data/sample (checksums right): make data fetches the rest"
    for name, sha in FULL_SHA256.items():
        path = data.FULL / "MNIST" / "raw" / name
        if not path.is_file() or digest(path) != sha:
            return (
                FAILURE,
                f"{data.shown(path)} is damaged: rm -r data/mnist; make data",
            )
    return OK, "70000 images in data/mnist, checksums right"


def jupyter():
    if not find_spec("ipykernel") or not find_spec("jupyterlab"):
        return WARNING, "no JupyterLab here: make setup installs it; no stage needs it"
    return OK, f"JupyterLab {metadata.version('jupyterlab')} and its kernel"


CHECKS = {
    "Python": python,
    "packages": packages,
    "GPUs": gpus,
    "driver": driver,
    "processes": reduction,
    "shared memory": memory,
    "disk": disk,
    "cores": cores,
    "MNIST": mnist,
    "Jupyter": jupyter,
}


def main():
    end_at_a_closed_pipe()
    os.chdir(ROOT)
    failed = False
    for name, check in CHECKS.items():
        try:
            verdict, text = check()
        except (Exception, SystemExit) as error:  # noqa: BLE001
            first = str(error).partition("\n")[0]
            verdict, text = FAILURE, f"{type(error).__name__}: {first}"
        failed |= verdict == FAILURE
        print(f"{name:14} {verdict:8} {text}", flush=True)
    if failed:
        sys.exit("a stage could not run here: mend what says FAILURE")


if __name__ == "__main__":
    main()
