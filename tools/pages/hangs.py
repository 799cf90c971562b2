"""Run the examples of 04_ddp/HANGS.md: `python -m tools.pages.hangs`.

The page contains three diffs: a mistake in stage 4, the tools that find it, and the
mistake in hello.py. Its outputs are lines of these runs, with … for omitted lines.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.run.edit import patched
from tools.run.stages import ROOT, script

PAGE = ROOT / "04_ddp" / "HANGS.md"
HELLO = ROOT / "04_ddp" / "hello.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# Every three seconds, so that after one rank fails, the other can print its error, too.
TORCHRUN += ["--monitor-interval=3"]
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
LOG = {**DETAIL, "TORCH_CPP_LOG_LEVEL": "INFO", "RANK": "1", "WORLD_SIZE": "2"}
LOG |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}  # no server listens there


def start(*words, **variables):
    """Start Python on the CPU and return its Popen, with all output in stdout."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONUNBUFFERED": "1", **variables}
    options = {"cwd": ROOT, "env": environment, "text": True}
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, *words], **options)


def outputs():
    """Return the outputs of stage 4 and hello.py, which hang, and of a lone rank.

    All start at once because they spend most of their time waiting.
    """
    mistake, tools, in_hello = re.findall(r"(?s)```diff\n(.*?)```", PAGE.read_text())
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "04_ddp" / "mnist.py"
        stage.parent.mkdir()
        stage.write_text(patched(patched(script("04_ddp").read_text(), mistake), tools))
        hello = Path(folder) / "hello.py"
        hello.write_text(patched(HELLO.read_text(), in_hello))
        with (
            start(*TORCHRUN, stage, f"--out={folder}/out") as of_stage,
            start(*TORCHRUN, hello, **DETAIL) as of_hello,
            start(HELLO, **LOG) as alone,  # waits for rank 0, which never starts
        ):
            lines = []
            while not lines or "will retry" not in lines[-1]:
                lines.append(alone.stdout.readline())
            alone.kill()
            printed = of_stage.stdout.read().replace(f"{folder}/", "")
            return [printed, of_hello.stdout.read(), "".join(lines)]


if __name__ == "__main__":
    print(*outputs(), sep="\n\n")
