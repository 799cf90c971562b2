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


def call(*words, **settings):
    """Run a command with make's variables; end the program where it fails."""
    given = {name: text for name, text in os.environ.items() if name != "MAKELEVEL"}
    result = subprocess.run(list(map(str, words)), env={**given, **settings})
    if result.returncode:
        refuse(f"{Path(words[0]).name} failed: see above")


def installed(python):
    """Return the version of PyTorch that a Python has beside all that the stages need."""
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
    index = preflight.pip_index()
    words = [UV, "pip", "install", "--compile-bytecode", "--python", python]
    words += ["--default-index", index]
    if not preflight.unreachable(f"{preflight.CPU}/torch/"):  # smaller: without CUDA
        words += ["--index", preflight.CPU, "--index-strategy", "unsafe-best-match"]
        local = (
            f"torch=={wanted}+cpu" if sys.platform == "linux" else f"torch=={wanted}"
        )
        call(*words, local, *NEEDED)
    else:
        call(*words, f"torch=={wanted}", *NEEDED)
    return python


def train(python, target, out):
    """Run a target of make, `cpu` or `all`, with a Python."""
    settings = {"DATA": "data/sample", "GPUS": "cpu", "OUT": str(out), "EPOCHS": "3"}
    settings |= {"ARGS": "", "NPROC": "", "BASE": "", "NNODES": "", "RESTARTS": ""}
    print(f"make {target}, with {data.shown(python)}", flush=True)
    with open(RUNS / "output", "w") as output:
        words = [str(python), "-m", "tools.run.launch", target]
        given = {**os.environ, **settings}
        result = subprocess.run(words, env=given, stdout=output)
    if result.returncode:
        print((RUNS / "output").read_text())
        refuse(f"{target} failed with {python}: see above")


def main():
    os.chdir(ROOT)
    wanted = sys.argv[1]
    if not re.fullmatch(r"\d+\.\d+\.\d+", wanted):
        refuse(f"TORCH={wanted!r} must be a version of PyTorch, such as TORCH=2.6.0")
    wrong = too_old(wanted, STAGES)
    if wrong:
        refuse(wrong)
    python = make_environment(wanted)
    RUNS.mkdir(parents=True, exist_ok=True)
    ours = version("torch").partition("+")[0]
    train(sys.executable, "cpu", RUNS / ours / "01_cpu")
    train(python, "all", RUNS / wanted)
    reference = compare.read(RUNS / ours / "01_cpu" / "metrics.csv")
    print(f"{'stage':18} {'last loss':>10} {'test':>10}   from 01_cpu, PyTorch {ours}")
    differ = []
    for stage in STAGES:
        curve = compare.read(RUNS / wanted / stage / "metrics.csv")
        verdict, equal = compare.judge(curve, reference, same_bits=False)
        if not equal or len(curve) != len(reference):
            differ.append(stage)
        loss, correct, total = curve[-1]
        test = f"{correct}/{total}"
        print(f"{stage:18} {loss:10.6f} {test:>10}   {verdict}")
    if differ:
        refuse(f"PyTorch {wanted} gives another curve: {', '.join(differ)}")
    print(f"PyTorch {wanted} gives the curve of {ours}")


if __name__ == "__main__":
    main()
