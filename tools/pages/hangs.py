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


def start(path, *words, **variables):
    """Run a script on two ranks, on the CPU; return the CompletedProcess.

    torchrun looks at its ranks every three seconds, so that a rank that fails does not
    end the other before that one has printed its error, too.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node=2", "--monitor-interval=3"]
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    environment |= {"PYTHONUNBUFFERED": "1", **variables}
    return subprocess.run(
        [*torchrun, *words[:2], path, *words[2:]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def hello():
    """Return hello.py and what its two ranks print, in the order of the ranks."""
    result = start(HELLO)
    if result.returncode:
        refuse(f"hello.py failed:\n{result.stderr}")
    code = f"```python\n{HELLO.read_text()}```\n\n"
    # Two ranks may write into the same line.
    printed = re.findall(
        r"hello, I am rank \d of \d|rank \d: the sum is [\d.]+", result.stdout
    )
    printed = sorted(printed)
    return code + console(f"{COMMAND} 04_ddp/hello.py", printed)


@functools.cache
def hanging():
    """Run stage 4 with the mistake and the tools, on the sample, until it times out.

    Returns what each rank printed, {(rank, stdout or stderr): text}, and what torchrun
    printed on stderr.
    """
    text = edited(script("04_ddp").read_text(), MISTAKE | TOOLS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "04_ddp" / "mnist.py"
        path.parent.mkdir()
        path.write_text(text)
        logs = Path(folder) / "logs"
        words = ["--redirects=3", f"--log-dir={logs}", "--data=data/sample"]
        result = start(path, *words, f"--out={folder}/out")
        printed = {}
        for rank in range(2):
            for kind in "stdout", "stderr":
                (file,) = logs.glob(f"*/attempt_0/{rank}/{kind}.log")
                shown = file.read_text(errors="replace")
                printed[rank, kind] = shown.replace(f"{folder}/", "")
    if result.returncode == 0:
        refuse("stage 4 did not hang with the mistake of its page")
    return printed, result.stderr.replace(f"{folder}/", "")


def mistake():
    text = script("04_ddp").read_text()
    return diff(text, edited(text, MISTAKE))


def tools():
    text = script("04_ddp").read_text()
    return diff(text, edited(text, TOOLS))


def shown():
    """Return what a learner sees of the hang: the first epoch, then nothing."""
    printed, _ = hanging()
    lines = printed[0, "stdout"].splitlines()
    return console(RUN, lines)


def stacks():
    """Return where each rank was when faulthandler looked last."""
    printed, _ = hanging()
    lines = []
    files = r"_tensor\.py|distributed_c10d\.py|04_ddp/mnist\.py"
    frame = rf'File ".*?({files})", line (\d+) (in .*)'
    code = edited(script("04_ddp").read_text(), MISTAKE | TOOLS).splitlines()
    for rank in range(2):
        looks = printed[rank, "stderr"].split("Timeout (0:00:05)!\n")[1:]
        inside = [look for look in looks if re.search(r"mnist\.py.* in main\n", look)]
        lines.append(f"rank {rank}, most recent call first:")
        for file, number, place in re.findall(frame, inside[-1]):
            if file == "04_ddp/mnist.py":
                lines.append(
                    f"  line {number} {place}: {code[int(number) - 1].strip()}"
                )
            else:
                lines.append(f"  PyTorch's {file} {place}")
    return console(SHORTENED, lines)


def own_traceback(text):
    """Return the frames of mnist.py in a traceback, with their code, and the error."""
    frames = re.findall(
        r'File "(04_ddp/mnist\.py)", (line \d+, in \w+)\n\S* *(.*)', text
    )
    lines = []
    for file, place, code in frames:
        lines += [f"  File {file}, {place}", f"    {code}"]
    (error,) = re.findall(r"RuntimeError: \[.*?\] (.*)", text)
    return [*lines, f"RuntimeError: {error}"]


def timeout():
    """Return the error with which the rank in the barrier ends."""
    printed, _ = hanging()
    text = printed[1, "stderr"].split("Traceback (most recent call last):")[-1]
    return console(SHORTENED, own_traceback(text))


def report():
    """Return what torchrun's report says of that rank, without times and addresses."""
    _, told = hanging()
    ranks = re.split(r"^\[\d\]:\n", told, flags=re.MULTILINE)[1:]
    (rank,) = [part for part in ranks if "rank      : 1 " in part]
    head = ["  rank      : 1 (local_rank: 1)", "  traceback :"]
    return console(SHORTENED, head + own_traceback(rank))


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
    "mistake": mistake,
    "tools": tools,
    "shown": shown,
    "stacks": stacks,
    "timeout": timeout,
    "report": report,
    "detail": detail,
    "log": log,
}


def hang(name):
    """Return a part of the page of hangs."""
    return PARTS[name]()
