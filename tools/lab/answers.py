"""What learners may hand in: the answers that each exercise's check is tried on.

answers.diff in an exercise's folder has them, as hunks without numbers:

    right: other means
    -        sampler.set_epoch(epoch)
    +        sampler.epoch = epoch

    wrong: as before
    says: in the order of epoch 1
    base: solution
    -        sampler.set_epoch(epoch)
    +        sampler.set_epoch(0)
    @@
     a line that stays
    +a new one after it

An answer is right or wrong, and says after that how. What a hunk takes out and leaves
occurs once in the script; `@@` begins another hunk. `base` is what is edited: start, if
not given, or solution. `says` is a regular expression that is found in what the check
says of a wrong answer. Empty lines, and those with # in front, are for the reader.

Each exercise has a right answer in another style than its solution, and a wrong one for
each `raise` of its check.py that the script which a learner starts with does not reach.
"""

import re
from dataclasses import dataclass, field

from tools.run.edit import edit

HEAD = re.compile(r"(right|wrong|says|base): (.*)")


@dataclass
class Answer:
    """An answer; `hunks` has pairs [text before, text after] as lists."""

    verdict: str
    kind: str
    where: str  # file and line
    says: str | None = None
    base: str = "start"
    hunks: list = field(default_factory=lambda: [["", ""]])

    def script(self, exercise):
        """Return the script of the answer. Raises ValueError where a hunk does not fit.

        An answer without a hunk is the base as it is.
        """
        changes = []
        for old, new in self.hunks:
            if old or new:
                changes.append(("\n" + old, "\n" + new))  # whole lines
        return edit("\n" + exercise.script(self.base), *changes)[1:]


def read(exercise):
    """Return the answers of an exercise.

    Raises ValueError for what is not laid out as above.
    """
    file = exercise.folder / "answers.diff"
    answers = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        head = HEAD.fullmatch(line)
        where = f"{exercise.name}:{number}"
        if head and head[1] in ("right", "wrong"):
            answers.append(Answer(head[1], head[2], where))
        elif not line or line.startswith("#"):
            pass
        elif not answers:
            raise ValueError(f"{where}: {line!r} is not part of an answer")
        elif head:
            setattr(answers[-1], head[1], head[2])
        elif line == "@@":
            answers[-1].hunks.append(["", ""])
        elif line[0] in " -+":
            add_line(answers[-1].hunks[-1], line)
        else:
            raise ValueError(f"{where}: {line!r} is not part of an answer")
    return answers


def add_line(hunk, line):
    """Add a line of a diff to the texts of a hunk."""
    if line[0] in " -":
        hunk[0] += line[1:] + "\n"
    if line[0] in " +":
        hunk[1] += line[1:] + "\n"
