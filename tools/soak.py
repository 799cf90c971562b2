"""Run a stage many times and count the exit statuses: `python -m tools.soak 04_ddp 100`.

Some versions of PyTorch abort at exit after a run over gloo. Each run is one epoch of
data/sample on two CPU processes, as `make` starts it.
"""

import collections
import os
import subprocess
import sys
import tempfile

from tools import launch
from tools.stages import ROOT, find, refuse


def soak(stage, runs):
    """Run a stage `runs` times; return a Counter of (exit status, last line of stderr)."""
    seen = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"GPUS": "cpu", "DATA": "data/sample", "OUT": folder, "EPOCHS": "1"}
        added, command = launch.plan(stage, settings)
        environment = {**os.environ, **added}
        for _ in range(runs):
            result = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            seen[result.returncode, result.stderr.strip().rpartition("\n")[2]] += 1
    return seen


def main():
    os.chdir(ROOT)
    if len(sys.argv) != 3:
        refuse("name a stage and a number of runs: python -m tools.soak 04_ddp 100")
    stage, runs = find(sys.argv[1]), launch.positive("runs", sys.argv[2])
    seen = soak(stage, runs)
    for (status, line), count in sorted(seen.items()):
        print(f"{stage}: {count} of {runs} runs ended with exit status {status} {line}")
    sys.exit(any(status for status, _ in seen))


if __name__ == "__main__":
    main()
