"""What learners may hand in: the answers that each exercise's check is tried on.

answers.diff in an exercise's folder has them, as tools/run/edit.py reads it. The names
begin with "right" or "wrong"; what follows is for the reader. `base` is what is edited:
start, if not given, or solution. `says` is a regular expression that is found in what
the check says of a wrong answer. An answer without changes is the base as it is.

Each exercise has a right answer in another style than its solution, and a wrong one for
each `raise` of its check.py that the script which a learner starts with does not reach.
"""

from dataclasses import dataclass

from tools.run.edit import Edit, read_edits


@dataclass
class Answer:
    """An answer to an exercise."""

    verdict: str  # right or wrong
    where: str  # exercise and number
    says: str
    base: str
    edit: Edit

    def script(self, exercise):
        """Return the text of the answer. Raises ValueError if the edit does not fit."""
        return self.edit.apply(exercise.script(self.base))


def read(exercise):
    """Return the answers of an exercise."""
    answers = []
    edits = read_edits(exercise.folder / "answers.diff")
    for number, edit in enumerate(edits, start=1):
        verdict = edit.name.partition(":")[0]
        says = edit.fields.get("says", "")
        base = edit.fields.get("base", "start")
        answers.append(Answer(verdict, f"{exercise.name}:{number}", says, base, edit))
    return answers
