"""Run the six stages with another PyTorch: `python -m tools.run.compat 2.6.0`.

That version gets an environment of its own, .venv-2.6.0. The stages run there on the
sample and on the CPU, and their curves are compared with that of 01_cpu in .venv.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tools.run import compare, data, preflight
from tools.run.stages import ROOT, STAGES, refuse, too_old

UV = ".venv/bin/uv"
NEEDED = "torchvision", "numpy", "psutil", "tqdm"  # uv finds those that go with torch
RUNS = Path("runs/compat")
EPOCHS = 3
LIMIT = 300  # seconds after which a run counts as one that hangs


def call(*words):
    """Run a command; end the program where it fails."""
    words = [str(word) for word in words]
    if subprocess.run(words).returncode:
        refuse(f"{Path(words[0]).name} failed: see above")


def installed(python):
    """Return a Python's version of PyTorch, if it has all that the stages need."""
    words = "import torch, torchvision, numpy, psutil, tqdm; print(torch.__version__)"
    result = subprocess.run([python, "-c", words], capture_output=True, text=True)
    return result.stdout.strip().partition("+")[0]


def make_environment(wanted):
    """Return the Python of an environment with this PyTorch; make it if need be."""
    folder = Path(f".venv-{wanted}")
    python = folder / "bin" / "python"
    if python.exists() and installed(python) == wanted:
        return python
    base = os.environ.get("PYTHON") or sys.executable
    call(UV, "venv", "--clear", "--quiet", "--python", base, folder)
    words = [UV, "pip", "install", "--compile-bytecode", "--python", python]
    words += ["--default-index", preflight.pip_index()]
    if not preflight.unreachable(f"{preflight.CPU}/torch/"):
        words += ["--torch-backend", "cpu"]  # smaller: without CUDA
    call(*words, f"torch=={wanted}", *NEEDED)
    return python


def train(python, stage, out):
    """Run a stage with a Python; return whether it ended by itself.

    Older versions of PyTorch can deadlock in destroy_process_group, after all is saved:
    https://github.com/pytorch/pytorch/pull/154976. Then the curve counts all the same.
    Ends the program where the run fails before that.
    """
    settings = {"DATA": "data/sample", "GPUS": "cpu", "OUT": str(out)}
    settings["EPOCHS"] = str(EPOCHS)
    # What a shell may have set, but this run must not use.
    settings |= dict.fromkeys(["ARGS", "NPROC", "BASE", "NNODES", "RESTARTS"], "")
    print(f"{stage}, with {data.shown(python)}", flush=True)
    metrics = out / "metrics.csv"
    metrics.unlink(missing_ok=True)
    words = [str(python), "-m", "tools.run.launch", stage]
    options = {"env": {**os.environ, **settings}, "stdout": subprocess.DEVNULL}
    try:
        status = subprocess.run(words, timeout=LIMIT, **options).returncode
    except subprocess.TimeoutExpired:
        status = None
    is_complete = metrics.exists() and len(compare.read(metrics)) == EPOCHS
    if status or not is_complete:
        refuse(f"{stage} failed with {python}: see above")
    return status == 0


def main():
    os.chdir(ROOT)
    wanted = sys.argv[1]
    if not re.fullmatch(r"\d+\.\d+\.\d+", wanted):
        refuse(f"TORCH={wanted!r} must be a version of PyTorch, such as TORCH=2.6.0")
    wrong = too_old(wanted, STAGES)
    if wrong:
        refuse(wrong)
    python = make_environment(wanted)
    ours = version("torch").partition("+")[0]
    train(sys.executable, "01_cpu", RUNS / ours / "01_cpu")
    hung = []
    for stage in STAGES:
        if not train(python, stage, RUNS / wanted / stage):
            hung.append(stage)
    differ = report(wanted, ours)
    if hung:
        why = "an older PyTorch can hang in destroy_process_group (pytorch#154976)"
        print(f"{', '.join(hung)}: saved all, then did not end: {why}")
    if differ:
        refuse(f"PyTorch {wanted} gives another curve: {', '.join(differ)}")
    print(f"PyTorch {wanted} gives the curve of {ours}")


def report(wanted, ours):
    """Print the stages' results with PyTorch `wanted`; return those that differ."""
    reference = compare.read(RUNS / ours / "01_cpu" / "metrics.csv")
    print(f"{'stage':18} {'last loss':>10} {'test':>10}   from 01_cpu, PyTorch {ours}")
    differ = []
    for stage in STAGES:
        curve = compare.read(RUNS / wanted / stage / "metrics.csv")
        verdict, equal = compare.judge(curve, reference, same_bits=False)
        if not equal:
            differ.append(stage)
        loss, correct, total = curve[-1]
        test = f"{correct}/{total}"
        print(f"{stage:18} {loss:10.6f} {test:>10}   {verdict}")
    return differ


if __name__ == "__main__":
    main()
