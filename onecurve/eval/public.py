"""Inspect public scripts, unchanged and with one bug each, and compare with grades.

    python eval/public.py CLONES [NAME...] [--write] [--reports FOLDER]

`public/NAME.toml` names a script in CLONES/OWNER/REPOSITORY. Its edits `run` make the
script run without GPUs and on little data, and `repair` fixes the script's own bugs, so
that each version has one bug. Otherwise like rate.py.
"""

import sys
from dataclasses import replace
from pathlib import Path

import versions
from trying import command_line, try_all
from versions import Version

FOLDER = Path(__file__).parent / "public"
AS_IT_IS = "as it is"


def read(name):
    """Return a public script's case and its versions, each with all edits it needs."""
    case, found = versions.read(FOLDER / f"{name}.toml")
    repair = case.get("repair", {})
    if repair:
        found.insert(0, Version("repaired"))
    whole = [Version(AS_IT_IS, edits=case["run"])]
    for version in found:
        edits = {**case["run"], **repair, **version.edits}
        whole.append(replace(version, edits=edits))
    return case, whole


def script_in(clones, case):
    """Return a public script's path, or exit if it is missing."""
    clone = clones / case["repository"]
    script = clone / case["path"]
    if not script.exists():
        link = f"https://github.com/{case['repository']}"
        sys.exit(f"{script} is missing. Try: git clone {link} {clone}")
    return script


def main():
    args = command_line(__doc__, "clones").parse_args()
    cases = {}
    for name in args.names or sorted(path.stem for path in FOLDER.glob("*.toml")):
        case, found = read(name)
        cases[name] = case, found, script_in(args.clones, case)
    try_all(cases, args, public=True)


if __name__ == "__main__":
    main()
