"""Run the judge on public scripts, as they are and with one mistake each.

`python -m tests.judge.public CLONES [NAME...]` reads `public/NAME.toml`, copies the
script's folder out of CLONES/OWNER/REPOSITORY, edits the copy, and runs the judge on
each version. It prints keys and answers, for a person to compare, who writes a grade
into `public.json`, where what was found is kept; the answers stay in
`runs/public/NAME/`. `--torchrun` runs the scripts alone, and `--held-back` also takes
the versions that nobody looks at while the rules are changed: their first grade stays
as `first`, whatever is found later.

No line of a public script is kept here. An edit is a place and our text, which gets the
indentation of that place: `"7"` or `"7-9"` is replaced (by nothing: deleted), `"7+"`
stays and ours follows, `"-7"` stays and ours goes before, `"model.py:7"` is a line of
that file. Line numbers are the original's; `digests` are of the commit's files. `run`
is what a script needs here, without GPUs and on little data; `repair` mends what is
wrong with it as it is, so that each version has one mistake.
"""

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

CASES = Path(__file__).parent / "public"
ROOT = CASES.parents[2]
RECORD = CASES.with_suffix(".json")
LEVELS = "ERROR ", "SLOW ", "LOOK "
GONE = ", after it"  # where a line was that was taken out
EXCHANGED = "the optimizer got the mean of the ranks' gradients"


def main():
    """Run the versions of the scripts that the command line names, else of all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--torchrun", action="store_true")
    parser.add_argument("--held-back", action="store_true")
    args = parser.parse_args()
    names = args.names or sorted(path.stem for path in CASES.glob("*.toml"))
    for name in names:
        case = tomllib.loads((CASES / f"{name}.toml").read_text())
        versions = case.setdefault("version", [])
        versions.insert(0, {"name": "as it is", "mistake": "none of ours"})
        if "repair" in case:
            versions.insert(1, {"name": "repaired", "mistake": "none"})
        for version in versions:
            if args.held_back or not version.get("held_back"):
                try_version(name, case, version, args)


def try_version(name, case, version, args):
    """Run a version, keep what it says, and print that beside its key."""
    out = ROOT / "runs" / "public" / name / f"{version['name'].replace(' ', '_')}.txt"
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        script, places = write(case, version, args.clones, Path(folder))
        for line in version.get("lines", []):
            lines += places[line]
        there = [line for line in lines if not line.endswith(GONE)]
        whole = statements(there, script.parent)
        status = start(script, case, args.torchrun, out)
    if not args.torchrun:
        report = out.read_text().replace(f"{folder}/", "")
        keep(name, version["name"], report, whole)
    print(f"\n{name}, {version['name']}: exit status {status}, {out}")
    for key in ("mistake", "cause", "accept", "not_ok"):
        if key in version:
            print(f"  {key}: {version[key]}")
    if lines:
        print("  lines:", *lines)
    for fact in case.get("known", []) if version["name"] == "as it is" else []:
        print(f"  known, line {fact['lines']}: {fact['what']}")
    print(textwrap.indent(out.read_text()[-2500:], "  | "), flush=True)


def statements(places, folder):
    """Return the lines of all simple statements that have a line in `places`.

    A finding names the first line of a statement, and a key any of them. In what is
    returned a file has no folder, as in what the judge says.
    """
    found = set()
    for file in {place.rpartition(":")[0] for place in places}:
        name = Path(file).name
        mine = {place.rpartition(":")[2] for place in places if f"{file}:" in place}
        for node in ast.walk(ast.parse((folder / file).read_text())):
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                whole = {str(n) for n in range(node.lineno, node.end_lineno + 1)}
                mine |= whole if whole & mine else set()
        found |= {f"{name}:{number}" for number in mine}
    return found


def keep(name, version, report, lines):
    """Write into the record what a report found, where, and if it asked for exchange.

    `lines` are those of the key's statements, none where all were taken out: then no
    finding can be at one. A grade stays only where what was found is what was graded;
    the first of a version that was held back always does.
    """
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found = [line for line in report.splitlines() if line.startswith(LEVELS)]
    fresh = {"found": [" ".join(line.split()) for line in found]}
    if lines:
        fresh["at a line"] = any(line.split()[-1] in lines for line in found)
    not_given = "the optimizer is not given" in report
    fresh["exchange looked at"] = EXCHANGED in report or not_given
    versions = record.setdefault(name, {})
    before = versions.get(version, {})
    if before.get("found") == fresh["found"] and "grade" in before:
        fresh["grade"] = before["grade"]
    if "first" in before:
        fresh["first"] = before["first"]
    versions[version] = fresh
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def write(case, version, clones, folder):
    """Write the version below `folder`. Returns its script and where lines now are.

    The second is {line of the original: ["FILE:LINE", ...]}. Raises SystemExit if the
    clone is not there, or not the one that the line numbers belong to.
    """
    clone = clones / case["repository"]
    script = clone / case["path"]
    if not script.exists():
        link = f"https://github.com/{case['repository']}"
        sys.exit(f"{script} is missing: git clone {link} {clone}")
    copy = folder / script.parent.name
    shutil.copytree(script.parent, copy, symlinks=True, ignore_dangling_symlinks=True)
    repair = {} if version["name"] == "as it is" else case.get("repair", {})
    edits = {**case["run"], **repair, **version.get("edits", {})}
    places = {}
    for file, digest in case["digests"].items():
        path = copy / file
        text = path.read_text()
        if hashlib.sha256(text.encode()).hexdigest()[:16] != digest:
            sys.exit(f"{clone} is not at commit {case['commit']}: {file} differs")
        mine = {}
        for place, new in edits.items():
            owner, _, where = place.rpartition(":")
            if (owner or script.name) == file:
                mine[where] = new
        path.write_text(edit(text.splitlines(), mine, file, places))
    if "prepare" in case:
        subprocess.run([sys.executable, "-c", case["prepare"]], cwd=copy, check=True)
    here = f"{script.name}:"
    places.update({at.removeprefix(here): now for at, now in places.items()})
    return copy / script.name, places


def edit(lines, edits, file, places):
    """Return the edited text of a file, and note in `places` where its lines are.

    Each line of several that were replaced is where all of ours are.
    """
    pieces = {number: [line] for number, line in enumerate(lines, 1)}
    replaced = {}  # number of a line -> that of the first one replaced with it
    for where, new in edits.items():
        first, _, last = where.strip("+").removeprefix("-").partition("-")
        first, last = int(first), int(last or first)
        line = lines[first - 1]
        indent = line[: len(line) - len(line.lstrip())]
        ours = textwrap.indent(textwrap.dedent(new).strip("\n"), indent).splitlines()
        if where.endswith("+"):
            pieces[first] = pieces[first] + ours
        elif where.startswith("-"):
            pieces[first] = ours + pieces[first]
        else:
            pieces.update({number: [] for number in range(first, last + 1)})
            pieces[first] = ours
            replaced.update(dict.fromkeys(range(first, last + 1), first))
    done = []
    for number, piece in pieces.items():
        new = [f"{file}:{len(done) + 1 + at}" for at in range(len(piece))]
        places[f"{file}:{number}"] = new or [f"{file}:{len(done)}{GONE}"]
        done += piece
    for number, first in replaced.items():
        places[f"{file}:{number}"] = places[f"{file}:{first}"]
    return "\n".join(done) + "\n"


def start(script, case, torchrun, out):
    """Run the judge (or torchrun) on two ranks; what it says goes to `out`."""
    args = case.get("arguments", [])
    command = [sys.executable, "-m", "onecurve", script.name, *args]
    if torchrun:
        ranks = ["--standalone", "--nproc-per-node=2"]
        command = [sys.executable, "-m", "torch.distributed.run", *ranks]
        command += [script.name, *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment.update(case.get("environment", {}))
    with out.open("w") as file:
        both = {"stdout": file, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, cwd=script.parent, env=environment, **both)
    return done.returncode


if __name__ == "__main__":
    main()
