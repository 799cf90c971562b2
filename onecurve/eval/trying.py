"""Inspect versions of a script and compare the findings with their grades."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import grades
import versions

SOURCE = Path(__file__).resolve().parents[1] / "src"


def command_line(description, *paths):
    """Return both commands' parser; `paths` are names of required paths."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    for path in paths:
        parser.add_argument(path, type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--write", action="store_true", help="change grades.csv")
    parser.add_argument("--reports", type=Path, default="runs/eval", metavar="FOLDER")
    return parser


def inspected(script, case):
    """Return the inspector's report on a script, a dict.

    Raises RuntimeError with the command's stderr if there is none.
    """
    own = {"PYTHONPATH": str(SOURCE), "CUDA_VISIBLE_DEVICES": ""}
    env = {**os.environ, **own, **case.get("environment", {})}
    with tempfile.TemporaryDirectory() as logs:
        words = [sys.executable, "-m", "onecurve", "--format", "json", "--logs", logs]
        words += [script.name, *case.get("arguments", [])]
        options = {"capture_output": True, "text": True}
        run = subprocess.run(words, cwd=script.parent, env=env, **options)
    if not run.stdout:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout)


def try_version(case, version, script):
    """Return the report on a version and the lines of its key."""
    with tempfile.TemporaryDirectory() as folder:
        digests, edits = case["digests"], version.edits
        copy, places = versions.write(script, digests, edits, Path(folder))
        lines = versions.key_lines(version, places, copy.parent)
        if "prepare" in case:
            words = [sys.executable, "-c", case["prepare"]]
            subprocess.run(words, cwd=copy.parent, check=True)
        return inspected(copy, case), lines


def try_all(cases, args, public):
    """Try all versions of cases, {name: (case, versions, script)}.

    Saves each report with its key. Exits with 1 if findings differ from grades.csv,
    which `--write` updates.
    """
    table = grades.read()
    new = dict.fromkeys(next(iter(table.values())), "")
    new["set"] = grades.PUBLIC if public else ""
    args.reports.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, (case, found, script) in cases.items():
        for version in found:
            report, lines = try_version(case, version, script)
            kept = {"key": asdict(version), "lines": sorted(lines), "report": report}
            path = args.reports / f"{name}-{version.name.replace(' ', '_')}.json"
            path.write_text(json.dumps(kept, indent=1) + "\n")
            place = public, name, version.name
            row = table.setdefault(place, new | {"case": name, "version": version.name})
            before = row["found"]
            changed = grades.note(row, report, script, lines)
            print(f"{name} {version.name}: {row['found'] or 'nothing'}", flush=True)
            if changed:
                status = 1
                print(f"  before: {before or 'nothing'}; see {path}", flush=True)
            if args.write:
                grades.write(table)
    sys.exit(status)
