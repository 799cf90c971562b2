"""Does a training script compute on several ranks what it computes on one?

The script runs three times for some steps, in separate processes: unchanged on several
CPU ranks, in float64 on the same number of ranks, and in float64 on one rank that gets
the same batches. The script's file is not changed. The report names known bugs by line.
Exit status 1: an error was found; 2: the script could not be inspected; 3: time was
over after some steps, so the report is partial.
"""

import argparse
import csv
import json
import sys
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from onecurve.compare.run import Command
from onecurve.inspection import inspect
from onecurve.report import formats
from onecurve.rules import RULES
from onecurve.start import failures

OFTEN = 5  # seconds between progress lines


class Explain(argparse.Action):
    """The option --explain: print what a rule says, and exit."""

    def __call__(self, parser, namespace, name, option_string=None):
        if name not in RULES:
            refuse(f"no finding {name}: expected one of {', '.join(RULES)}")
        rule = RULES[name]
        told = f"{name} {rule.level}: {rule.message}. {rule.means}"
        print(f"{told} Fix: {rule.fix}." if rule.fix else told)
        parser.exit()


def parse_args():
    """Return the parsed command line; arguments after the script are the script's."""
    parser = argparse.ArgumentParser(prog="onecurve", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="at least 2 (default: 2)")
    parser.add_argument("--format", choices=["text", "json"], help="default: text")
    parser.add_argument("--logs", default="runs/onecurve", help="default: %(default)s")
    parser.add_argument(
        "--pages",
        type=Path,
        metavar="FILE",
        help="CSV file: the name of a finding, then paths of pages that explain it",
    )
    parser.add_argument("-m", action="store_true", help="SCRIPT is a module name")
    told = "say what a finding means, and exit"
    parser.add_argument("--explain", action=Explain, metavar="NAME", help=told)
    parser.add_argument("script")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="flags for the script")
    return parser.parse_args()


def refuse(why):
    """Print why nothing can be inspected, and exit with status 2."""
    print(why, file=sys.stderr)
    sys.exit(2)


def path_of(module):
    """Return the file that `python -m MODULE` runs, or None, without importing it."""
    for place in [Path.cwd(), *sys.path]:
        path = Path(place, *module.split(".")).resolve()
        for found in path.with_name(f"{path.name}.py"), path / "__main__.py":
            if found.is_file():
                return found
    return None


def prepared(folder):
    """Create a folder for logs and return it. Exit if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        refuse(f"cannot write to {folder}: {error}. Choose another --logs FOLDER")


def read_pages(path):
    """Return {finding's name: paths of pages}. Exit if the file can't be read."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except OSError as error:
        refuse(f"cannot read {path}: {error}. Choose another --pages FILE")
    return {name: [page for page in pages if page] for name, *pages in rows}


def tell(folder, begun, over):
    """Print progress on stderr every OFTEN seconds until an event is set."""
    told = "importing PyTorch"
    while not over.wait(OFTEN):
        with suppress(FileNotFoundError):  # a run may start again
            logs = [log.read_text() for log in folder.glob("*/rank0")]
            steps = sum(log.count('"kind": "step"') for log in logs)
            if logs:
                told = f"run {len(logs)}, {steps} steps in all"
        print(f"{time.monotonic() - begun:.0f} s: {told}", file=sys.stderr)


def main():
    begun = time.monotonic()
    args = parse_args()
    path = path_of(args.script) if args.m else Path(args.script).resolve()
    if args.ranks < 2:
        refuse(f"--ranks {args.ranks}: expected 2 or more")
    if not path or not path.is_file():
        refuse(f"no such {'module' if args.m else 'script'}: {args.script}")
    why = failures.syntax_error(path.read_text(errors="replace"))
    if why:
        refuse(f"{args.script} is not a Python script: {why.splitlines()[0]}")
    pages = read_pages(args.pages) if args.pages else None
    folder = prepared(Path(args.logs)) / path.stem
    over = threading.Event()
    threading.Thread(target=tell, args=(folder, begun, over), daemon=True).start()
    module = args.script if args.m else None
    command = Command(path, args.flags, args.ranks, module)
    try:
        inspection = inspect(command, folder.resolve())
    except Exception:  # noqa: BLE001, the script may do anything
        refuse(f"error in onecurve itself:\n{traceback.format_exc()}")
    over.set()
    facts = path.name, inspection, time.monotonic() - begun, folder, pages
    if args.format == "json":
        print(json.dumps(formats.facts(*facts), indent=2))
    else:
        print(formats.text(*facts))
    sys.exit(inspection.status)


if __name__ == "__main__":
    main()
