"""What learners may hand in: the answers that each exercise's check is tried on.

answers/05_no_sampler.diff has those of exercise 5, as hunks without numbers:

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

    not: no wait: nobody waits here

An answer has a kind; `not` names a kind that the exercise has no answer of, and why.
What a hunk takes out and leaves occurs once in the script; `@@` begins another hunk.
`base` is what is edited: start, if not given; solution, stage, or rewritten, which is
answers/rewritten/STAGE.py, the stage written from scratch. `says` is a regular
expression that is found in what the check says of a wrong answer. Empty lines, and
those with # in front, are for the reader.

`make test` tries the first right answer of each exercise, and those with the line
`run: always`: each reaches another `raise` of check.py, which the script that a learner
starts with does not reach. `make answers` tries all answers.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).with_name("answers")
KINDS = {  # verdict -> kind -> what it asks of an exercise
    "right": {
        "other means": "another call, clock or form of arguments that does the same",
        "other loader": "workers, a data set of one's own, tensors and no DataLoader",
        "other dtype": ".float() in the script, images normalised, half precision",
        "more than asked": "a warm-up, an accuracy besides, output of each rank",
        "other names": "other names of layers, keys in another order, a named tuple",
        "rewritten": "a script from scratch with the same flags",
    },
    "wrong": {
        "as before": "a repair that leaves the mistake in, or puts it elsewhere",
        "two ranks alone": "/ 2, [::2], half of the batch: right for two ranks only",
        "this input alone": "a default or a count written down; no incomplete batch",
        "taken out": "the mechanism is gone, or there and never used",
        "hidden": "the symptom does not show any more, the cause is there",
        "no wait": "waits for nothing, or for so much that it spoils what it measures",
        "half": "one half of what is asked",
        "rewritten wrong": "a script from scratch with the same flags, and the mistake",
    },
}
ALL_KINDS = KINDS["right"] | KINDS["wrong"]
HEAD = re.compile(r"(right|wrong|not|says|base|run): (([^:]*)(?:: )?(.*))")


@dataclass
class Answer:
    """An answer; `hunks` has pairs [text before, text after] as lists."""

    verdict: str
    kind: str
    line: int  # of the file
    says: str | None = None
    base: str = "start"
    run: str = "by make answers"
    hunks: list = field(default_factory=lambda: [["", ""]])


def read(exercise):
    """Return the answers of an exercise, and {kind without one: why}."""
    path = FOLDER / f"{exercise.name}.diff"
    return parse(path.read_text(), path.name)


def parse(text, where):
    """Return the answers in a text, and {kind without one: why}.

    Raises ValueError for what is not laid out as above, or of no such kind.
    """
    answers = []
    without = {}
    for number, line in enumerate(text.splitlines(), start=1):
        head = HEAD.fullmatch(line)
        key, value, kind, rest = head.groups() if head else (None, None, None, None)
        if key in ("right", "wrong", "not"):
            allowed = ALL_KINDS if key == "not" else KINDS[key]
            if kind not in allowed:
                known = ", ".join(sorted(allowed))
                raise ValueError(f"{where}:{number}: {kind!r} is none of {known}")
            if key == "not":
                without[kind] = rest
            else:
                answers.append(Answer(key, kind, number))
        elif not line or line.startswith("#"):
            pass
        elif not answers:
            raise ValueError(f"{where}:{number}: {line!r} is not part of an answer")
        elif head:
            setattr(answers[-1], key, value)
        elif line == "@@":
            answers[-1].hunks.append(["", ""])
        elif line[0] in " -+":
            add_line(answers[-1].hunks[-1], line)
        else:
            raise ValueError(f"{where}:{number}: {line!r} is not part of an answer")
    return answers, without


def add_line(hunk, line):
    """Add a line of a diff to the texts of a hunk."""
    if line[0] in " -":
        hunk[0] += line[1:] + "\n"
    if line[0] in " +":
        hunk[1] += line[1:] + "\n"


def script(exercise, answer):
    """Return the script of an answer. Raises ValueError where a hunk does not fit."""
    if answer.base == "rewritten":
        text = (FOLDER / "rewritten" / f"{exercise.stage}.py").read_text()
    else:
        text = exercise.script(answer.base)
    for old, new in answer.hunks:
        if not old and not new:
            continue  # the base as it is
        count = f"\n{text}".count(f"\n{old}") if old else 0
        if count != 1:
            where = f"{exercise.name}.diff:{answer.line}"
            raise ValueError(f"{where}: {count} times in {answer.base}:\n{old}")
        text = f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]
    return text


def telling(answers):
    """Return the answers that `make test` tries: the first right one, those marked."""
    right = [answer for answer in answers if answer.verdict == "right"]
    return right[:1] + [answer for answer in answers if answer.run == "always"]
