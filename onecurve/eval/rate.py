"""Run the judge on the cases, to be graded by their keys.

    python tests/judge/rate.py REPORTS [CASE...] [--held-back]

Writes the report on each script into the folder REPORTS, below its key; those that are
there already stay. Somebody reads them, and writes into a graded*.json what the report
says: `right` if a finding has a line of the key and states a cause that it accepts, as
a LOOK may, `vague` if it only points to it, `missed`, or `false ok` if it calls ok what
the key says that it must not.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from read_keys import CASES, read

ROOT = Path(__file__).resolve().parents[2]


def parse_args():
    """Return the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reports", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--held-back", action="store_true")
    return parser.parse_args()


def report_on(text):
    """Return what the judge prints of a script, and its exit status, as text."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(text)
        words = [sys.executable, "-m", "onecurve", "--logs", folder, script]
        run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return f"{run.stdout}exit status {run.returncode}\n"


def found_in(report):
    """Return the first lines of the findings of a report."""
    levels = "ERROR ", "SLOW ", "LOOK "
    lines = [line for line in report.splitlines() if line.startswith(levels)]
    return [" ".join(line.split()) for line in lines]


def key_of(version):
    """Return a version's key in lines."""
    return (
        f"mistake: {version.mistake}\nlines: {' | '.join(version.lines)}\n"
        f"cause: {version.cause}\naccept: {' | '.join(version.accept)}\n"
        f"not ok: {', '.join(version.not_ok)}\n\n"
    )


def main():
    args = parse_args()
    args.reports.mkdir(exist_ok=True)
    for case in args.cases or sorted(path.name for path in CASES.iterdir()):
        tries = []
        for number, version in enumerate(read(case)):
            if version.held_back == args.held_back:
                tries.append((number, key_of(version), version.script()))
        if tries:  # a case may be held back as a whole, its right script too
            right = (CASES / case / "train.py").read_text()
            tries.append(("right", "right\n\n", right))
        for name, key, text in tries:
            path = args.reports / f"{case}-{name}.txt"
            if not path.exists():
                path.write_text(key + report_on(text))
                print(path, flush=True)


if __name__ == "__main__":
    main()
