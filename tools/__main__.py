"""Run a make command: `make ddp` runs `python -m tools ddp`.

COMMANDS lists the function of each command and the variables that it receives, strings;
the others are in os.environ. Stages, such as ddp, go to tools.run.launch. A function is
imported only when called, because most need PyTorch, which takes seconds to import.
"""

import os
import sys
from pkgutil import resolve_name

from tools import asked
from tools.run.packages import refuse_missing
from tools.run.stages import ROOT, refuse

COMMANDS = {  # target: function, variables
    "compare": "tools.run.compare:main OUT",
    "diff": "tools.run.diffs:main A B",
    "side_by_side": "tools.pages.side_by_side:main",
    "playground": "tools.site.playground:main",
    "exercises": "tools.lab.progress:list_exercises",
    "exercise": "tools.lab.commands:main_exercise E TRACK",
    "try": "tools.lab.trying:main E WITH",
    "check": "tools.lab.commands:check E",
    "watch": "tools.lab.watch:main E",
    "hint": "tools.lab.commands:hint E",
    "solution": "tools.lab.commands:solution E",
    "reset": "tools.lab.commands:reset E",
    "inspect": "tools.run.inspecting:main SCRIPT NPROC ARGS",
    "notebooks": "tools.run.notebooks:main ARGS",
    "bench": "tools.bench.benchmark:main",
    "trace": "tools.bench.trace:main S",
    "memory": "tools.bench.held:main",
    "setup": "tools.run.doctor:main",
    "doctor": "tools.run.doctor:main",
    "data": "tools.run.data:main FROM",
    "test": "tools.maintain:test",
    "site": "tools.maintain:site",
    "lint": "tools.maintain:lint",
    "docs": "tools.maintain:docs",
    "outcomes": "tools.pages.outcomes:main",
    "mutants": "tools.maintain:mutants",
}


def main():
    target, *words = sys.argv[1:]
    asked.set_environment(words)
    os.chdir(ROOT)
    refuse_missing()
    if target in COMMANDS:
        name, *variables = COMMANDS[target].split()
        values = [os.environ.get(variable, "") for variable in variables]
    else:  # one stage or several
        name, values = "tools.run.launch:main", [target]
    sys.exit(resolve_name(name)(*values))


if __name__ == "__main__":
    try:
        try:
            main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `make exercises | head`: head has exited
        os._exit(0)
    except OSError as error:  # such as an unwritable folder
        refuse(f"{error.filename}: {error.strerror}")
