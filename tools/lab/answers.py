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

What a hunk takes out and leaves occurs once in the script; `@@` begins another hunk.
`base` is what is edited: start, if not given, or solution. `says` is a regular
expression that is found in what the check says of a wrong answer. What stands behind
"right:" and "wrong:" is for the reader, as are empty lines and those with # in front.

Each exercise has a right answer in another style than its solution, and a wrong one for
each `raise` of its check.py that the script which a learner starts with does not reach.
"""

from dataclasses import dataclass, field

from tools.run.edit import edit


@dataclass
class Answer:
    """An answer; `hunks` has pairs [text before, text after] as lists."""

    verdict: str  # right or wrong
    where: str  # exercise and number
    says: str = ""
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

    def add(self, line):
        """Take a line of a hunk. Raises ValueError for one that is none."""
        if line == "@@":
            self.hunks.append(["", ""])
        elif line[0] not in " -+":
            raise ValueError(f"{self.where}: {line!r} is not part of an answer")
        if line[0] in " -":
            self.hunks[-1][0] += line[1:] + "\n"
        if line[0] in " +":
            self.hunks[-1][1] += line[1:] + "\n"


def read(exercise):
    """Return the answers of an exercise.

    Raises ValueError for what is not laid out as above.
    """
    answers = []
    for line in (exercise.folder / "answers.diff").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name in ("right", "wrong"):
            answers.append(Answer(name, f"{exercise.name}:{len(answers) + 1}"))
        elif name in ("says", "base"):
            setattr(answers[-1], name, value)
        elif line and line[0] != "#":
            answers[-1].add(line)
    return answers
