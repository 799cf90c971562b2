"""Does a training script compute on several ranks what it computes on one?

The script runs three times for some steps, in processes of its own, and nothing of it
is changed on the disk: as it is, on several CPU ranks; in float64 on as many; and in
float64 on one rank that is handed the same batches. What the ranks saw is compared, and
known mistakes are told with their lines. Exit status 1: an error was found; 2: the
script could not be looked at.
"""

import argparse
import sys
import time
from pathlib import Path

from onecurve import report
from onecurve.runs import inspect

LOGS = Path("runs/onecurve")


def parse_args():
    """Return the command line; all after the script is the script's."""
    parser = argparse.ArgumentParser(prog="onecurve", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="at least 2")
    parser.add_argument("--logs", type=Path, default=LOGS, metavar="FOLDER")
    parser.add_argument("--pages", help="put before the path of a page that explains")
    parser.add_argument("script")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="those of the script")
    return parser.parse_args()


def main():
    args = parse_args()
    path = Path(args.script).resolve()
    if args.ranks < 2:
        sys.exit(f"{args.ranks} rank has none to differ from: take 2 or more")
    if not path.is_file():
        sys.exit(f"there is no script {args.script}")
    begun = time.monotonic()
    folder = args.logs / path.stem
    inspection = inspect((path, args.flags, args.ranks), folder.resolve())
    seconds = time.monotonic() - begun
    print(report.text(path.name, inspection, seconds, folder, args.pages))
    if any(one.level == "ERROR" for one in inspection.findings):
        sys.exit(1)
    sys.exit(2 if inspection.stopped else 0)


if __name__ == "__main__":
    main()
