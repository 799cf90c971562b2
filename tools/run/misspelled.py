"""Say which target or variable of make was meant: `python -m tools.run.misspelled`.

It needs the standard library alone, since it runs before there is a .venv.
"""

import difflib
import re
import sys

from tools.run.stages import TABLE


def meant(kind, name, known):
    """Return which target or variable a person means by a name, or ''.

    A number in a target stands for a stage: `04_ddp`, `stage4` and `4` mean `ddp`.
    """
    number = re.search(r"\d+", name)
    if kind == "target" and number:
        for stage in TABLE:
            if int(stage.name[:2]) == int(number[0]):
                return stage.target
    spelling = name.upper() if kind == "variable" else name.lower()
    found = difflib.get_close_matches(spelling, known, 1)
    return found[0] if found else ""


def main():
    kind, listing, name, *known = sys.argv[1:]
    found = meant(kind, name, known)
    advice = f"did you mean {found}? " if found else ""
    print(f"there is no {kind} {name}: {advice}'{listing}' lists them")


if __name__ == "__main__":
    main()
