"""Reproduce PyTorch bugs on the installed version: `python -m tools.pages.upstream`.

Runs each script of tests/upstream on two CPU processes, prints its output, and stores
it in tests/upstream/printed.json under PyTorch's version.
"""

import json

import torch

from tools.bench import runs
from tools.run.stages import ROOT

FOLDER = ROOT / "tests" / "upstream"
PRINTED = FOLDER / "printed.json"
VERSION = torch.__version__.partition("+")[0]


def stored():
    """Return {script: {PyTorch version: lines of output}}."""
    return json.loads(PRINTED.read_text())


def upstream(name):
    """Return a script and its output on each version as Markdown."""
    shown = ["```python", (FOLDER / f"{name}.py").read_text().rstrip(), "```", ""]
    shown.append("```console")
    printed = stored()[name]
    width = max(len(version) for version in printed)
    for version, lines in printed.items():
        for line in lines:
            shown.append(f"{version:{width}}  {line}")
    return "\n".join([*shown, "```"])


def main():
    before = stored()
    found = {}
    for name in sorted(path.stem for path in FOLDER.glob("*.py")):
        printed = runs.run(name, [FOLDER / f"{name}.py"], 2)
        found[name] = before.get(name, {}) | {VERSION: printed.stdout.splitlines()}
        print(name, *found[name][VERSION], sep="\n  ", flush=True)
    PRINTED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
