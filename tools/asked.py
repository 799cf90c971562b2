"""What was typed after make: which commands and variables there are, and their values.

`python -m tools.asked` prints the help, or refuses unknown words, before anything is
installed. It needs the standard library alone.
"""

import os
import re
import sys
from pathlib import Path

MAKEFILE = Path(__file__).parents[1].joinpath("Makefile").read_text(encoding="utf-8")
HELP = ["help", "help-variables"]
VARIABLES = """\
  GPUS=0,1     these GPUs, one process each; GPUS=cpu: none. Not given: all that
               share a batch, or two processes on a single one, or on the CPU
  NPROC=4      so many processes; they may share GPUs in ddp, ddp_inference and
               resume, and not in the other stages of beyond/
  EPOCHS=1     passes over the training set
  DATA=DIR     another MNIST root: DATA=data/mnist is all of it, after make data
  OUT=DIR      where the results go; all and compare: a folder per stage in it
  ARGS="..."   further flags of the script: ARGS="--hidden 2048 --lr 0.05"
               For resume and sharded_checkpoint: ARGS=--resume continues after
               the last epoch that was saved
  RESTARTS=3   for the same two: when a process dies, start all again from that
               epoch, three times at most
  NNODES=2 NODE_RANK=0 MASTER_ADDR=HOST on several machines, a command on each;
               WAIT=300 seconds for each other, at most
  QUICK=1      for bench: few and short rounds
  A=STAGE B=STAGE for diff; S=STAGE for trace; E=05 for the lab;
               FROM=DIR for data
  WITH="processes=3 batch=48" for try: another setting, as a failed check
               names it
  SCRIPT=train.py for inspect; NPROC=3 ranks, ARGS="..." its flags
  TRACK=half_day or two_hours, day, transformer: for exercise, then the next;
               handouts
  OMP_NUM_THREADS=4 threads of each process; not given: 1
  PYTHON=...   the Python to make .venv with, 3.10 or newer
  PY=python    use the active Python with its packages, and install nothing
  TORCH_INDEX=URL another package index for torch and torchvision. Not given:
               https://download.pytorch.org/whl/cpu, without GPU support, where
               no NVIDIA driver is. TORCH_INDEX=default: with GPU support
  ALL=1        for test: the slow tests as well
  CHECK=1      for docs: fail if something was out of date
Pass these on make's command line. OMP_NUM_THREADS, PYTHON, TORCH_INDEX are also
read from the environment.
"""
OF_SHELL = "OMP_NUM_THREADS", "PYTHON", "TORCH_INDEX"  # count from there, too


def targets():
    """Return the names of all commands."""
    listed = re.findall(r"(?m)^##   make ([a-z_]+(?:, [a-z0-9_]+)*)  ", MAKEFILE)
    return [*", ".join(listed).split(", "), *HELP]


def variables():
    """Return the names of all variables."""
    return sorted(set(re.findall(r"\b[A-Z_]+(?==)", VARIABLES)))


def typed(flags):
    """Return {variable: value} of what make was given, by its MAKEFLAGS.

    There, a backslash comes before a space or a backslash, and `$` is doubled. So
    neither make nor a shell has changed a value, or executed it.
    """
    _, _, text = flags.partition("-- ")
    found = {}
    for word in re.findall(r"(?:\\.|[^\\ ])+", text.replace("$$", "$")):
        name, _, value = re.sub(r"\\(.)", r"\1", word).partition("=")
        found[name.rstrip(":?+")] = value
    return found


def set_environment(words=()):
    """Give the variables that were typed to os.environ, and forget the shell's own.

    The shell's DATA, say, was not meant for this. An empty value is none. `words` such
    as "OUT=runs" count as typed.
    """
    given = typed(os.environ.get("MAKEFLAGS", ""))
    given |= dict(word.split("=", 1) for word in words)
    for name in variables():
        if name in given:
            os.environ[name] = given[name]
        elif name not in OF_SHELL:
            os.environ.pop(name, None)
        if not os.environ.get(name, "x"):
            del os.environ[name]


def unknown(goals, given):
    """Return in a line which word there is not, or nothing."""
    for name in given:
        if name not in variables():
            return f"there is no variable {name}: 'make help-variables' lists them"
    for goal in goals:
        if goal not in targets() and not goal.startswith(".venv/"):
            hint = ""
            if goal.isdecimal():
                hint = f"is it E={goal}? "
            elif goal[3:] in targets():  # 04_ddp
                hint = f"is it make {goal[3:]}? "
            return f"there is no target {goal}: {hint}'make help' lists them"
    return ""


def help_commands():
    """Return the lines of `make help`, which the Makefile has after ##."""
    return [line[3:] for line in MAKEFILE.splitlines() if line.startswith("##")]


def main():
    goals = os.environ.get("GOALS", "").split()
    wrong = unknown(goals, typed(os.environ.get("MAKEFLAGS", "")))
    if wrong:
        sys.exit(wrong)
    if not goals or "help" in goals:
        print("\n".join(help_commands()))
    if "help-variables" in goals:
        print(VARIABLES, end="")


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # `make | head` has what it wanted
        os._exit(0)
