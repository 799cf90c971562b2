"""What was typed after make: which commands and variables there are, and their values.

`python -m tools.asked` prints the help, or refuses unknown words, before anything is
installed. It needs the standard library alone.
"""

import os
import re
import sys

COMMANDS = {  # section -> {targets that are described together: what they do}
    "The six stages": {
        "all": "the six in order, then compare",
        "cpu": "stage 1: one process on the CPU",
        "single_gpu": "stage 2: on one GPU; the diff from stage 1",
        "dp": "stage 3: nn.DataParallel; the diff from stage 2",
        "ddp": "stage 4: DistributedDataParallel; the diff from stage 3",
        "ddp_inference": "stage 5: evaluation on every rank; the diff from stage 4",
        "model_parallel": "stage 6: a model on two GPUs; the diff from stage 2",
        "compare": "are the curves equal? a table, and runs/curves.png",
        "diff": "any two stages, in the terminal: A=02_single_gpu B=04_ddp",
        "side_by_side": "each stage beside the one before it, in the browser",
        "playground": "stage 4 trains in the browser, with switches",
    },
    "When the model is too large": {
        "beyond": "the six stages in beyond/, then compare",
        "fsdp tensor_parallel pipeline hybrid": "stages 7 to 10",
        "resume sharded_checkpoint": "11 and 12: continue a killed run",
    },
    "The second curve: a small transformer that copies": {
        "transformer": "the eight stages in transformer/, then compare",
        "gpt data_parallel sequence_parallel pipeline_1f1b": "stages 13 to 16",
        "context_parallel moe expert_parallel grid": "stages 17 to 20",
    },
    "The break-it lab: find the bug in a script": {
        "exercises": "the path through them, and how far you are",
        "exercise": "begin one, in workshop/: E=05; without E the next",
        "try": "run your version beside a right one",
        "check watch": "is it solved? what is wrong? once; at each save",
        "hint solution": "the next hint; the diff that solves it: E=05",
        "reset": "drop your version of an exercise: E=05",
        "handouts": "for instructors: sheets to print",
    },
    "A closer look": {
        "inspect": "known silent bugs in your own script, SCRIPT=train.py",
        "notebooks": "the companion notebooks, copied into workshop/",
        "bench": "how fast, and why: measures this machine for minutes",
        "trace memory": "when each rank does what, S=07_fsdp; what it holds",
    },
    "This machine": {
        "setup": "installs all that a workshop needs into .venv",
        "doctor": "is it ready? what works, and how to fix the rest",
        "data": "all of MNIST, into data/mnist; FROM=DIR: from .gz files",
    },
    "For those who change something: CONTRIBUTING.md": {
        "test": "the tests; ALL=1: the slow ones as well",
        "site": "the pages and notebooks as a web site, in _site/",
        "lint docs outcomes mutants": "see CONTRIBUTING.md",
    },
}
HELP = ["help", "help-variables"]
VARIABLES = {
    "GPUS=0,1": "these GPUs, one process each; GPUS=cpu: none. Not given: all that\n"
    "share a batch, or two processes on a single one, or on the CPU",
    "NPROC=4": "so many processes; they may share GPUs in ddp, ddp_inference and\n"
    "resume, and not in the other stages of beyond/",
    "EPOCHS=1": "passes over the training set",
    "DATA=DIR": "another MNIST root: DATA=data/mnist is all of it, after make data",
    "OUT=DIR": "where the results go; all and compare: a folder per stage in it",
    'ARGS="..."': 'further flags of the script: ARGS="--hidden 2048 --lr 0.05"\n'
    "For resume and sharded_checkpoint: ARGS=--resume continues after\n"
    "the last epoch that was saved",
    "RESTARTS=3": "for the same two: when a process dies, start all again from that\n"
    "epoch, three times at most",
    "NNODES=2 NODE_RANK=0 MASTER_ADDR=HOST": "on several machines, a command on each;\n"
    "WAIT=300 seconds for each other, at most",
    "QUICK=1": "for bench: few and short rounds",
    "A=STAGE B=STAGE": "for diff; S=STAGE for trace; E=05 for the lab;\n"
    "FROM=DIR for data",
    'WITH="processes=3 batch=48"': "for try: another setting, as a failed check\n"
    "names it",
    "SCRIPT=train.py": 'for inspect; NPROC=3 ranks, ARGS="..." its flags',
    "TRACK=half_day": "or two_hours, day, transformer: for exercise, then the next;\n"
    "handouts",
    "OMP_NUM_THREADS=4": "threads of each process; not given: 1",
    "PYTHON=...": "the Python to make .venv with, 3.10 or newer",
    "PY=python": "use the active Python with its packages, and install nothing",
    "TORCH_INDEX=URL": "another package index for torch and torchvision. Not given:\n"
    "https://download.pytorch.org/whl/cpu, without GPU support, where\n"
    "no NVIDIA driver is. TORCH_INDEX=default: with GPU support",
    "ALL=1": "for test: the slow tests as well",
    "CHECK=1": "for docs: fail if something was out of date",
}
OF_SHELL = "OMP_NUM_THREADS", "PYTHON", "TORCH_INDEX"  # count from there, too
INDENT = 12  # columns of a variable's name


def targets():
    """Return the names of all commands."""
    rows = [words for section in COMMANDS.values() for words in section]
    return [*" ".join(rows).split(), *HELP]


def variables():
    """Return the names of all variables."""
    text = " ".join([*VARIABLES, *VARIABLES.values()])
    return sorted(set(re.findall(r"\b[A-Z_]+(?==)", text)))


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
    """Return the lines of `make help`."""
    lines = [
        "Six scripts, one loss curve: parallel training in PyTorch, side by side.",
        "Begin with 'make all' and README.md; then 'make ddp' and 04_ddp/README.md.",
    ]
    for section, rows in COMMANDS.items():
        lines.append(section)
        for words, what in rows.items():
            lines.append(f"  make {words.replace(' ', ', '):14}  {what}")
    lines.append('NPROC=4, ARGS="--hidden 2048" and the like: make help-variables')
    return lines


def help_variables():
    """Return the lines of `make help-variables`."""
    lines = []
    for words, what in VARIABLES.items():
        first, *more = what.split("\n")
        lines.append(f"  {words:{INDENT}} {first}")
        lines += [f"  {'':{INDENT}} {line}" for line in more]
    lines.append(f"Pass these on make's command line. {', '.join(OF_SHELL)} are also")
    lines.append("read from the environment.")
    return lines


def main():
    goals = os.environ.get("GOALS", "").split()
    wrong = unknown(goals, typed(os.environ.get("MAKEFLAGS", "")))
    if wrong:
        sys.exit(wrong)
    if not goals or "help" in goals:
        print("\n".join(help_commands()))
    if "help-variables" in goals:
        print("\n".join(help_variables()))


if __name__ == "__main__":
    main()
