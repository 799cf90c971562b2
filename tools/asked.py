"""Parse make's command line: its targets, its variables and their values.

`python -m tools.asked` prints the help or rejects unknown words before anything is
installed, so it uses only the standard library.
"""

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path

MAKEFILE = Path(__file__).parents[1].joinpath("Makefile").read_text(encoding="utf-8")
HELP = ["help", "help-variables"]
VARIABLES = """\
  GPUS=0,1     one process on each of these GPUs; GPUS=cpu: no GPU. Default: all
               that can share a batch, or two processes on one GPU or the CPU
  NPROC=4      number of processes. They can share GPUs in ddp, ddp_inference,
               and resume, but not in the other stages of beyond/
  EPOCHS=1     passes over the training set
  DATA=DIR     MNIST root. After make data, DATA=data/mnist is the full dataset
  OUT=DIR      folder for results; all and compare use a subfolder per stage
  ARGS="..."   extra flags for the script: ARGS="--hidden 2048 --lr 0.05"
               For resume and sharded_checkpoint: ARGS=--resume continues after
               the last saved epoch
  RESTARTS=3   for resume and sharded_checkpoint: if a process dies, restart all
               of them from the last saved epoch, at most three times
  QUICK=1      for bench: fewer and shorter rounds
  A=STAGE B=STAGE for diff; S=STAGE for trace; E=05 for the lab;
               FROM=DIR for data
  WITH="processes=3 batch=48" for try: different settings, as named by a failed
               check
  SCRIPT=train.py for inspect; NPROC=3: number of ranks; ARGS="...": its flags
  TRACK=half_day or two_hours, day, transformer: for exercise, which then
               follows this track
  OMP_NUM_THREADS=4 threads per process; default: 1
  PYTHON=...   Python to create .venv with, 3.10 or newer
  PY=python    use the active Python and its packages; install nothing
  TORCH_INDEX=URL package index for torch and torchvision. Without an NVIDIA
               driver the default is https://download.pytorch.org/whl/cpu, which
               lacks GPU support. TORCH_INDEX=default: with GPU support
  ALL=1        for test: also run the slow tests
Pass these on make's command line. OMP_NUM_THREADS, PYTHON, TORCH_INDEX are also
read from the environment.
"""
ALSO_FROM_SHELL = "OMP_NUM_THREADS", "PYTHON", "TORCH_INDEX"


def targets():
    """Return the names of all targets."""
    listed = re.findall(r"(?m)^##   make ([a-z_]+(?:, [a-z0-9_]+)*)  ", MAKEFILE)
    return [*", ".join(listed).split(", "), *HELP]


def variables():
    """Return the names of all variables."""
    return sorted(set(re.findall(r"\b[A-Z_]+(?==)", VARIABLES)))


def typed(flags):
    """Return {variable: value} as typed on make's command line, from its MAKEFLAGS.

    MAKEFLAGS puts a backslash before spaces and backslashes and doubles `$`. Neither
    make nor a shell has expanded or executed these values.
    """
    _, _, text = flags.partition("-- ")
    found = {}
    for word in re.findall(r"(?:\\.|[^\\ ])+", text.replace("$$", "$")):
        name, _, value = re.sub(r"\\(.)", r"\1", word).partition("=")
        found[name.rstrip(":?+")] = value
    return found


def set_environment(words=()):
    """Set the typed variables in os.environ and remove the shell's.

    The shell's DATA, for example, may mean something else. Empty values count as unset,
    and `words` such as "OUT=runs" as typed.
    """
    given = typed(os.environ.get("MAKEFLAGS", ""))
    given |= dict(word.split("=", 1) for word in words)
    for name in variables():
        if name in given:
            os.environ[name] = given[name]
        elif name not in ALSO_FROM_SHELL:
            os.environ.pop(name, None)
        if not os.environ.get(name, "x"):
            del os.environ[name]


def unknown(goals, given):
    """Return a one-line error about the first unknown word, or ''."""
    for name in given:
        if name not in variables():
            near = get_close_matches(name, variables(), 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return f"unknown variable {name}.{hint} List them: make help-variables"
    for goal in goals:
        if goal not in targets() and not goal.startswith(".venv/"):
            hint = ""
            if goal.isdecimal():
                hint = f" Did you mean E={goal}?"
            elif goal[3:] in targets():  # 04_ddp
                hint = f" Did you mean make {goal[3:]}?"
            return f"unknown target {goal}.{hint} List them: make help"
    return ""


def main():
    goals = os.environ.get("GOALS", "").split()
    wrong = unknown(goals, typed(os.environ.get("MAKEFLAGS", "")))
    if wrong:
        sys.exit(wrong)
    if not goals or "help" in goals:
        told = [line for line in MAKEFILE.splitlines() if line.startswith("##")]
        print("\n".join(line[3:] for line in told))
    if "help-variables" in goals:
        print(VARIABLES, end="")


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # `make | head`: head has exited
        os._exit(0)
