"""Select a diff's essential lines, for the front page and before a stage runs.

From one process to DDP, these are the lines that match STEPS. For any other stage, they
are the hunks that its page does not mark as plumbing.
"""

import re
import textwrap

from tools.run import diffs
from tools.run.stages import previous, refuse

PAIR = "02_single_gpu", "04_ddp"
STEPS = {  # step -> pattern of its lines, in the order of stage 4's page
    "Join the process group": r'"cuda":$|set_device|init_process_group',
    "Give each process its own images": r"  sampler = |  loader = DataLoader",
    "Average the gradients": r"ddp_model = |loss = train_epoch",
    "Report the loss of all images": r"totals",
    "Shuffle again in every epoch": r"manual_seed|set_epoch",
}
REST = "Imports, checks of the start, a flag, and printing on one process"
COLUMNS = 80  # of a terminal
ROOM = 20  # lines; the run has to fit below them


def step_of(line):
    """Return the step that a changed line belongs to, or REST."""
    for step, marks in STEPS.items():
        if re.search(marks, line):
            return step
    return REST


def steps():
    """Return where each step changes lines: {step: [[i1, i2, j1, j2], …]}.

    As in difflib: lines i1 to i2 of the old script are removed, j1 to j2 of the new one
    are added. The last step is REST.
    """
    old = diffs.lines(PAIR[0])
    new = diffs.lines(PAIR[1])
    found = {step: [] for step in [*STEPS, REST]}
    for hunk in diffs.hunks(*PAIR):
        for tag, i1, i2, j1, j2 in hunk.opcodes:
            for step, stretches in found.items():
                removed = [i for i in range(i1, i2) if step_of(old[i]) == step]
                added = [j for j in range(j1, j2) if step_of(new[j]) == step]
                if tag != "equal" and (removed or added):
                    of_old = [removed[0], removed[-1] + 1] if removed else [i1, i1]
                    of_new = [added[0], added[-1] + 1] if added else [j1, j1]
                    stretches.append(of_old + of_new)
    return found


def lines_of_steps():
    """Return [(step, its changed lines as -line or +line)] without REST."""
    old = diffs.lines(PAIR[0])
    new = diffs.lines(PAIR[1])
    found = []
    for step, stretches in steps().items():
        changed = []
        for i1, i2, j1, j2 in stretches:
            changed += [f"-{line}" for line in old[i1:i2]]
            changed += [f"+{line}" for line in new[j1:j2]]
        found.append((step, changed))
    return found[:-1]


def essence():
    """Return the essential lines, counted, as Markdown. Exits if a step has none."""
    shown = []
    for step, changed in lines_of_steps():
        if not changed:
            refuse(f"no line from {PAIR[0]} to {PAIR[1]} matches {STEPS[step]}: {step}")
        shown += [f"@@ {step} @@", *changed]
    count = sum(line[0] == "+" for line in shown)
    rest = sum(j2 - j1 for _, _, j1, j2 in steps()[REST])
    note = (
        f"These {count} lines do the work. Stage 4 adds {rest} more: imports, `rank` "
        "and `world_size`, two checks,\na flag, and conditions so that only one "
        "process prints and saves."
    )
    return "\n".join(["```diff", *shown, "```", "", note])


def groups_of(a, b):
    """Return [(title, changed lines)] of a diff's ideas, except plumbing."""
    if (a, b) == PAIR:
        return lines_of_steps()
    found = []
    for idea, numbered in diffs.by_idea(a, b):
        if not idea.is_plumbing:
            changed = [line for _, hunk in numbered for line in hunk.changed()]
            found.append((idea.title, changed))
    return found


def dedented(changed):
    """Return changed lines without their common indentation."""
    code = textwrap.dedent("\n".join(line[1:] for line in changed))
    pairs = zip(changed, code.split("\n"), strict=True)
    return [line[0] + text for line, text in pairs]


def wrapped(line):
    """Return a diff line wrapped for a terminal, with continuation lines indented."""
    code = line[1:].lstrip()
    indent = line[: len(line) - len(code)] + 4 * " "
    unbroken = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent, **unbroken)


def show(stage):
    """Print the essential lines of a stage's diff, as many as fit on a screen."""
    a, b = previous(stage), stage
    shown = []
    count = 0
    skipped = 0
    for title, changed in groups_of(a, b):
        head = [title] if title else []
        for line in dedented(changed) if changed else []:
            more = head + wrapped(line)
            if skipped or len(shown) + len(more) > ROOM:
                skipped += 1
            else:
                shown += more
                head = []
                count += 1
    everything = diffs.changed_lines(a, b)
    told = f"{everything} lines changed from {a}"
    if count < everything:
        which = "shown" if skipped else "essential"
        told += f", {count} of them {which}. All: make diff A={a} B={b}"
    print(told, diffs.color("\n".join(shown)), sep="\n")
