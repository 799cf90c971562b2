"""Inspect the scripts with known bugs, and compare the findings with the grades.

    python eval/rate.py [NAME...] [--write] [--check] [--reports FOLDER]

Exits with 1 if findings differ from the graded ones. `--check` runs no script; it only
checks that each edit applies to its script and the result compiles.
"""

import tempfile
from pathlib import Path

import versions
from trying import command_line, try_all

CASES = Path(__file__).parent / "cases"


def read(name):
    """Return a case, its versions, the correct one first, and its script.

    Raises an error if a version can't be compiled or its key's lines don't exist.
    """
    script = CASES / name / "train.py"
    case, found = versions.read(script.with_name("versions.toml"))
    for version in found:
        with tempfile.TemporaryDirectory() as folder:
            digests, edits = case["digests"], version.edits
            copy, places = versions.write(script, digests, edits, Path(folder))
            compile(copy.read_text(), f"{name} {version.name}", "exec")
            versions.key_lines(version, places, copy.parent)
    return case, [versions.Version("right"), *found], script


def main():
    parser = command_line(__doc__)
    parser.add_argument("--check", action="store_true", help="run nothing")
    args = parser.parse_args()
    names = args.names or sorted(path.name for path in CASES.iterdir())
    cases = {name: read(name) for name in names}
    if not args.check:
        try_all(cases, args, public=False)


if __name__ == "__main__":
    main()
