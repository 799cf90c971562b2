"""Inspect a script: `python -m tools.inspect [--ranks N] train.py FLAGS...`.

The script runs three times for some steps, in processes of its own, and nothing of it
is changed on the disk: as it is, on N CPU ranks; in float64 on N ranks; and in float64
on one rank that is handed the same batches. Exit status 1 where an error was found.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from tools.run.stages import ROOT, refuse

LOGS = ROOT / "runs" / "inspect"


def parse_args():
    """Return the command line; all after the script is the script's."""
    parser = argparse.ArgumentParser(prog="make inspect", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("script")
    parser.add_argument("flags", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main():
    args = parse_args()
    path = Path(args.script).resolve()
    if not args.script:
        refuse("which script? make inspect SCRIPT=train.py")
    if not path.is_file():
        refuse(f"there is no script {args.script}: make inspect SCRIPT=train.py")
    if args.ranks < 2:
        refuse(f"{args.ranks} rank has none to differ from: NPROC=2 or more")
    # here: they import PyTorch, and a mistake is refused at once
    from tools.inspect import report
    from tools.inspect.runs import inspect

    begun = time.monotonic()
    folder = LOGS / path.stem
    inspection = inspect((path, args.flags, args.ranks), folder)
    seconds = time.monotonic() - begun
    shown = os.path.relpath(folder)
    print(report.text(path.name, inspection, seconds, shown))
    sys.exit(any(one.level == "ERROR" for one in inspection.findings))


if __name__ == "__main__":
    main()
