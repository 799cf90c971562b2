"""The ideas of a diff: the parts in which a stage's page explains its hunks.

They are kept in the pages and nowhere else. A part `plumbing`, in place of `hunk`, has
what every script needs and no mechanism is. The reason of an idea is what follows its
part, up to the next part or heading or an edge of a fold (`<details>`, `</details>`).
"""

import re
from typing import NamedTuple

from tools.run.stages import folder

PART = re.compile(
    r"<!-- generated: (hunk|plumbing) (\S+) (\S+) ([\d ]+) \| (.+?) -->\n"
    r"(.*?)<!-- end -->\n"
    r"(.*?)(?=^<!-- generated|^##+ |^</?details>|\Z)",
    re.DOTALL | re.MULTILINE,
)
# Of the lines that turn one process into DDP, those that do it.
STEPS = {  # what some lines do -> what marks these lines; first those without an error
    "Shuffle again in every epoch": r"manual_seed|set_epoch",
    "Give each process its own images": r"  sampler = |  loader = DataLoader",
    "Average the gradients": r"ddp_model = |loss = train_epoch",
    "Report the loss of all images": r"totals",
    "Join the process group": r'"cuda":$|set_device|init_process_group',
}


class Idea(NamedTuple):
    """Hunks of a diff that belong together, and why they are there."""

    title: str  # Markdown
    numbers: list  # of the hunks, from 1
    shown: str  # the part of the page that shows the hunks
    text: str  # why they are there, Markdown
    is_plumbing: bool


def ideas(a, b):
    """Return the ideas of the diff from `a` to `b`, in the order of the page of `b`.

    What is plumbing comes last. It is an empty list where the page has no such diff.
    """
    page = (folder(b) / "README.md").read_text()
    mechanism = []
    plumbing = []
    for kind, old, new, numbers, title, shown, text in PART.findall(page):
        if (old, new) == (a, b):
            numbers = [int(number) for number in numbers.split()]
            is_plumbing = kind == "plumbing"
            one = Idea(title, numbers, shown, text.strip(), is_plumbing)
            (plumbing if is_plumbing else mechanism).append(one)
    return mechanism + plumbing


def step_of(line):
    """Return which of STEPS a changed line belongs to, or None."""
    for step, marks in STEPS.items():
        if re.search(marks, line):
            return step
    return None
