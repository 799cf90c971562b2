"""Generated parts of 04_ddp: its first ranks, and a run that hangs, seen by each tool.

What differs between two runs (addresses, times, process ids) is left out.
"""

import difflib
import functools
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.run.stages import ROOT, refuse, script

HELLO = ROOT / "04_ddp" / "hello.py"
COMMAND = "$ OMP_NUM_THREADS=1 .venv/bin/torchrun --standalone --nproc-per-node=2"
RUN = f"{COMMAND} 04_ddp/mnist.py --data data/sample"
SHORTENED = f"{RUN}\n..."  # only some lines of the output are shown
# Edits of stage 4: what stands there -> what stands there then.
MISTAKE = {
    "            report(args, epoch, loss, correct, total, start)\n": (
        "            report(args, epoch, loss, correct, total, start)\n"
        "        else:\n"
        "            dist.barrier()  # wait until rank 0 has evaluated\n"
    )
}
TOOLS = {
    "import argparse\n": "import argparse\nimport faulthandler\n",
    "import time\n": "import time\nfrom datetime import timedelta\n",
    "from torch import nn\n": (
        "from torch import nn\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
    ),
    "def main(args):\n": (
        "@record\ndef main(args):\n"
        "    faulthandler.dump_traceback_later(5, repeat=True)\n"
    ),
    "    dist.init_process_group(args.backend)\n": (
        "    limit = timedelta(seconds=15)\n"
        "    dist.init_process_group(args.backend, timeout=limit)\n"
    ),
}
# The same mistake, in hello.py.
HELLO_MISTAKE = {
    "dist.all_reduce(number)": (
        "if dist.get_rank() == 1:\n    dist.barrier()\ndist.all_reduce(number)"
    )
}


def edited(text, edits):
    """Return a script with these edits. Raises SystemExit where one does not fit."""
    for old, new in edits.items():
        if text.count(old) != 1:
            refuse(f"a page edits {old!r}, which is not in its script once")
        text = text.replace(old, new)
    return text


def diff(old, new):
    """Return the diff of two scripts as Markdown, without the names of files."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm="")
    shown = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(["```diff", *shown, "```"])


def console(command, lines):
    """Return a command and what it printed as Markdown."""
    return "\n".join(["```console", command, *lines, "```"])


def start(path, *flags, **variables):
    """Run a script on two ranks, on the CPU; return the CompletedProcess.

    torchrun marks each line that a rank prints. It looks at its ranks every three
    seconds, so that a rank that fails does not end the other before that one has
    printed its error, too.
    """
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    environment |= {"PYTHONUNBUFFERED": "1", **variables}
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += ["--nproc-per-node=2", "--monitor-interval=3", "--tee=3"]
    with tempfile.TemporaryDirectory() as logs:
        return subprocess.run(
            [*words, f"--log-dir={logs}", path, *flags],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )


def printed_by(rank, text):
    """Return the lines that a rank has printed, of those of torchrun."""
    return re.findall(rf"^\[default{rank}\]:(.*)", text, re.MULTILINE)


def hello():
    """Return hello.py and what its two ranks print, in the order of the ranks."""
    result = start(HELLO)
    if result.returncode:
        refuse(f"hello.py failed:\n{result.stderr}")
    code = f"```python\n{HELLO.read_text()}```\n\n"
    printed = [*printed_by(0, result.stdout), *printed_by(1, result.stdout)]
    return code + console(f"{COMMAND} 04_ddp/hello.py", sorted(printed))


@functools.cache
def hanging():
    """Run stage 4 with the mistake and the tools, on the sample, until it times out.

    Returns what was printed on stdout and on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "04_ddp" / "mnist.py"
        path.parent.mkdir()
        path.write_text(edited(script("04_ddp").read_text(), MISTAKE | TOOLS))
        result = start(path, "--data=data/sample", f"--out={folder}/out")
    if result.returncode == 0:
        refuse("stage 4 did not hang with the mistake of its page")
    return result.stdout, result.stderr.replace(f"{folder}/", "")


def stage_diff(edits):
    """Return the diff from stage 4 to the same script with these edits."""
    text = script("04_ddp").read_text()
    return diff(text, edited(text, edits))


def shown():
    """Return what a learner sees of the hang: the first epoch, then nothing."""
    stdout, _ = hanging()
    return console(RUN, printed_by(0, stdout))


def stacks():
    """Return where each rank was when faulthandler looked last."""
    _, stderr = hanging()
    code = edited(script("04_ddp").read_text(), MISTAKE | TOOLS).splitlines()
    files = r"_tensor\.py|distributed_c10d\.py|04_ddp/mnist\.py"
    frame = rf'File ".*?({files})", line (\d+) (in .*)'
    lines = []
    for rank in range(2):
        looks = "\n".join(printed_by(rank, stderr)).split("Timeout (0:00:05)!\n")[1:]
        inside = [look for look in looks if re.search(r"mnist\.py.* in main\n", look)]
        lines.append(f"rank {rank}, most recent call first:")
        for file, number, place in re.findall(frame, inside[-1]):
            if file == "04_ddp/mnist.py":
                text = code[int(number) - 1].strip()
                lines.append(f"  line {number} {place}: {text}")
            else:
                lines.append(f"  PyTorch's {file} {place}")
    return console(SHORTENED, lines)


def report():
    """Return what torchrun's report says of the rank in the barrier: its own frames.

    Times and addresses are left out.
    """
    _, stderr = hanging()
    ranks = re.split(r"^\[\d\]:\n", stderr, flags=re.MULTILINE)[1:]
    (text,) = [part for part in ranks if "rank      : 1 " in part]
    lines = ["  rank      : 1 (local_rank: 1)", "  traceback :"]
    frame = r'File "(04_ddp/mnist\.py)", (line \d+, in \w+)\n\S* *(.*)'
    for file, place, code in re.findall(frame, text):
        lines += [f"  File {file}, {place}", f"    {code}"]
    (error,) = re.findall(r"RuntimeError: \[.*?\] (.*)", text)
    return console(SHORTENED, [*lines, f"RuntimeError: {error}"])


def detail():
    """Return what DETAIL says of the same mistake in hello.py, and its diff."""
    text = HELLO.read_text()
    wrong = edited(text, HELLO_MISTAKE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hello.py"
        path.write_text(wrong)
        result = start(path, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    lines = []
    for rank in range(2):
        own = rf"rank{rank}.: .*?mismatch.*?(Rank {rank} is .*?OpType=[A-Z]+)"
        lines.append(re.search(own, result.stderr)[1] + ", ...)")
    command = f"$ export TORCH_DISTRIBUTED_DEBUG=DETAIL\n{COMMAND} 04_ddp/hello.py"
    return diff(text, wrong) + "\n\n" + console(command, lines)


def log():
    """Return what a rank logs that waits for another to come: rank 1 of hello.py."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    variables["TORCH_CPP_LOG_LEVEL"] = "INFO"
    variables["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    lines = []
    with socket.socket() as taken:  # a port at which nobody listens
        taken.bind(("127.0.0.1", 0))
        variables["MASTER_PORT"] = str(taken.getsockname()[1])
        rank = subprocess.Popen(
            [sys.executable, HELLO],
            env={**os.environ, **variables},
            stderr=subprocess.PIPE,
            text=True,
        )
        with rank:
            for line in rank.stderr:
                found = re.search(r"The (client|server) socket (is|on) .*", line)
                if found:
                    address = rf"\[[^ ]*\]:{variables['MASTER_PORT']}"
                    lines.append(re.sub(address, "[node0]:29500", found[0]))
                if len(lines) == 2:
                    break
            rank.kill()
    command = "export TORCH_CPP_LOG_LEVEL=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL"
    return console(f"$ {command}", lines)


PARTS = {
    "mistake": lambda: stage_diff(MISTAKE),
    "tools": lambda: stage_diff(TOOLS),
    "shown": shown,
    "stacks": stacks,
    "report": report,
    "detail": detail,
    "log": log,
}


def hang(name):
    """Return a part of the page of hangs."""
    return PARTS[name]()
