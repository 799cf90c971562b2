"""The front page's diff: the lines that turn one process into DDP."""

from tools.run import diffs
from tools.run.ideas import STEPS, step_of
from tools.run.stages import refuse

PAIR = "02_single_gpu", "04_ddp"
REST = "Imports, checks of the start, a flag, and printing on one process"


def steps():
    """Return where each step changes lines: {step: [[i1, i2, j1, j2], …]}.

    As in difflib: lines i1 to i2 of the old script go, j1 to j2 of the new one come.
    Those of no step are the last, REST. Raises SystemExit where a step no longer has a
    line.
    """
    old = diffs.lines(PAIR[0])
    new = diffs.lines(PAIR[1])
    found = {step: [] for step in [*STEPS, REST]}
    for hunk in diffs.hunks(*PAIR):
        for tag, i1, i2, j1, j2 in hunk.opcodes:
            for step, stretches in found.items():
                gone = [i for i in range(i1, i2) if (step_of(old[i]) or REST) == step]
                come = [j for j in range(j1, j2) if (step_of(new[j]) or REST) == step]
                if tag != "equal" and (gone or come):
                    removed = [gone[0], gone[-1] + 1] if gone else [i1, i1]
                    added = [come[0], come[-1] + 1] if come else [j1, j1]
                    stretches.append(removed + added)
    for step, stretches in found.items():
        if not stretches:
            refuse(f"no line from {PAIR[0]} to {PAIR[1]} has {STEPS[step]}: {step}")
    return found


def essence():
    """Return the essential lines of the diff as Markdown, and how many there are."""
    old = diffs.lines(PAIR[0])
    new = diffs.lines(PAIR[1])
    found = steps()
    rest = sum(j2 - j1 for _, _, j1, j2 in found.pop(REST))
    shown = []
    added = 0
    for step, stretches in found.items():
        shown.append(f"@@ {step} @@")
        for i1, i2, j1, j2 in stretches:
            shown += [f"-{line}" for line in old[i1:i2]]
            shown += [f"+{line}" for line in new[j1:j2]]
            added += j2 - j1
    note = (
        f"These {added} lines do the work. Stage 4 adds {rest} more: imports, checks "
        "of how you\nstarted the script, a flag, and lines that let only one process "
        "print and save."
    )
    return "\n".join(["```diff", *shown, "```", "", note])
