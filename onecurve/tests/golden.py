"""Compare the inspector's findings with golden.csv.

    python tests/golden.py              every script: about half an hour on two cores
    python tests/golden.py NAME ...     those whose names contain one of the words
    python tests/golden.py --update     rewrite golden.csv and rules/*.diff

The scripts are the edits of right.py in rules/*.diff and ordinary.diff. A row contains
a script's name and a finding's name, level and start of its line, without wording.
A script without findings has one row with empty fields. The files in rules/ have the
wording: `--update` rewrites a case's expected lines, too, so write the edits alone.
`onecurve --format json` inspects each script, so nothing here depends on the
inspector's internals.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cases import FOLDER, ORDINARY, read_cases, rule_files, script_of, write_expected

from inspecting import with_code

GOLDEN = FOLDER / "golden.csv"
AT_ONCE = 2
FIELDS = ["script", "finding", "level", "line"]


def scripts():
    """Return {name: source} of every script."""
    cases = read_cases(*rule_files().values(), ORDINARY)
    return {name: script_of(edits) for name, (edits, _) in cases.items()}


def findings(name, text):
    """Return a script's rows: [name, finding, level, start of the line]; and report.

    Raises RuntimeError if the command prints no report.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(text)
        logs = ["--logs", f"{folder}/logs"]
        words = [sys.executable, "-m", "onecurve", "--format", "json", *logs, str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        options = {"capture_output": True, "text": True, "env": environment}
        result = subprocess.run(words, cwd="/", **options)
    if not result.stdout.startswith("{"):
        raise RuntimeError(f"{name}: {result.stderr[-2000:]}")
    code = text.splitlines()
    rows = []
    report = json.loads(result.stdout)
    for found in report["findings"]:
        file, _, number = (found["line"] or "").rpartition(":")
        line = code[int(number) - 1].strip()[:50] if file == "train.py" else ""
        rows.append([name, found["name"], found["level"], line])
    return rows or [[name, "", "", ""]], lines_of(report, text, folder)


def lines_of(report, text, folder):
    """Return what a report says as the expected lines of a case."""
    lines = []
    for found in report["findings"]:
        first = [found["level"], found["what"], found["line"]]
        lines += ["  ".join(filter(None, first)), *map("  {}".format, found["details"])]
    lines += [f"not checked: {what}" for what in report["not compared"][1:]]
    told = "\n".join(lines).replace(f"{folder}/", "")
    return with_code(told, text, "train.py").splitlines()


def read_golden():
    """Return golden.csv as {script: rows}."""
    found = {}
    with open(GOLDEN, newline="", encoding="utf-8") as file:
        for row in list(csv.reader(file))[1:]:
            found.setdefault(row[0], []).append(row)
    return found


def write_golden(rows):
    """Write rows as golden.csv."""
    with open(GOLDEN, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows(rows)


def differences(name, expected, rows):
    """Return lines that show how a script's rows differ from the expected ones."""
    lines = [f"- {', '.join(row[1:])}" for row in expected if row not in rows]
    lines += [f"+ {', '.join(row[1:])}" for row in rows if row not in expected]
    if not lines and rows != expected:
        lines = ["the findings are in a different order"]
    return [name, *lines] if lines else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--update", action="store_true", help="write golden.csv")
    args = parser.parse_args()
    chosen = {}
    for name, text in scripts().items():
        if not args.names or any(word in name for word in args.names):
            chosen[name] = text
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(findings, chosen, chosen.values()))
    rows_of = {name: rows for name, (rows, _) in zip(chosen, results, strict=True)}
    if args.update:
        golden = read_golden() | rows_of
        missing = [name for name in scripts() if name not in golden]
        if missing:
            sys.exit(f"nothing is written: update these as well: {', '.join(missing)}")
        write_golden([row for name in sorted(scripts()) for row in golden[name]])
        lines = {name: told for name, (_, told) in zip(chosen, results, strict=True)}
        for path in rule_files().values():
            write_expected(path, lines)
        return
    golden = read_golden()
    wrong = 0
    for name, rows in rows_of.items():
        lines = differences(name, golden.get(name, []), rows)
        print("\n".join(lines), end="\n" if lines else "")
        wrong += bool(lines)
    print(f"{len(chosen) - wrong} of {len(chosen)} scripts match {GOLDEN.name}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
