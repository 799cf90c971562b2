"""The front page's diff: the lines that turn one process into DDP."""

import re

from tools.run import diffs
from tools.run.stages import refuse

PAIR = "02_single_gpu", "04_ddp"
STEPS = {  # what some lines do -> what marks these lines, in the order of the lesson
    "Join the process group, each process with its own GPU": (
        r'"cuda":$|set_device|init_process_group'
    ),
    "Give each process its own images": r"  sampler = |  loader = DataLoader",
    "Average the gradients": r"ddp_model = ",
    "Shuffle again in every epoch": r"manual_seed|set_epoch",
    "Train the wrapped model": r"loss = train_epoch",
    "Report the loss of all images": r"totals",
}


def essence():
    """Return the essential lines of the diff as Markdown, and how many there are.

    Raises SystemExit where a step no longer has a line.
    """
    changed = []
    for hunk in diffs.hunks(*PAIR):
        changed += hunk.changed()
    shown = []
    for step, marks in STEPS.items():
        lines = [line for line in changed if re.search(marks, line)]
        if not lines:
            refuse(f"no line from {PAIR[0]} to {PAIR[1]} has {marks}: {step}")
        shown += [f"@@ {step} @@", *lines]
    added = len([line for line in shown if line.startswith("+")])
    rest = len([line for line in changed if line.startswith("+")]) - added
    note = (
        f"These {added} lines do the work. Stage 4 adds {rest} more: imports, checks "
        "of how you\nstarted the script, a flag, and lines that let only one process "
        "print and save."
    )
    return "\n".join(["```diff", *shown, "```", "", note])
