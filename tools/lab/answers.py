"""What learners may hand in: the answers that each exercise's check is tried on.

An exercise's answers.diff has many, as hunks without numbers:

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
`base` is what is edited: start, if not given; solution, stage, or rewritten: the stage
from scratch, exercises/rewritten/STAGE.py, or the exercise's own rewritten.py. `says` is
a regular expression that is found in what the check says of a wrong answer. Empty lines,
and those with # in front, are for the reader. `make test SLOW=1` judges the first of each
kind, SLOW=all all: put the most telling first.
"""

import re
from types import SimpleNamespace

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


def parse(text, where="answers.diff"):
    """Return the answers in a text, and {kind without one: why}.

    An answer has `verdict`, `kind`, `says`, `base` and `hunks`, pairs of texts. Raises
    ValueError for what is not laid out as above, or of no such kind.
    """
    answers, without = [], {}
    kinds = {verdict: set(kinds) for verdict, kinds in KINDS.items()}
    kinds["not"] = kinds["right"] | kinds["wrong"]
    for number, line in enumerate(text.splitlines(), start=1):
        head = re.fullmatch(r"(right|wrong|not|says|base): ([^:]*)(.*)", line)
        if head and head[1] in kinds:
            verdict, kind, rest = head.groups()
            if kind not in kinds[verdict]:
                allowed = ", ".join(sorted(kinds[verdict]))
                raise ValueError(f"{where}:{number}: {kind!r} is none of {allowed}")
            if verdict == "not":
                without[kind] = rest.removeprefix(": ")
                continue
            answers.append(SimpleNamespace(verdict=verdict, kind=kind, line=number))
            vars(answers[-1]).update(says=None, base="start", hunks=[["", ""]])
        elif not line or line.startswith("#"):
            continue
        elif head and answers:
            setattr(answers[-1], head[1], head[2] + head[3])
        elif line == "@@" and answers:
            answers[-1].hunks.append(["", ""])
        elif line[0] in " -+" and answers:
            for side, signs in enumerate((" -", " +")):
                answers[-1].hunks[-1][side] += (line[1:] + "\n") * (line[0] in signs)
        else:
            raise ValueError(f"{where}:{number}: {line!r} is not part of an answer")
    return answers, without


def script(exercise, answer):
    """Return the script of an answer. Raises ValueError where a hunk does not fit."""
    text = exercise.script(answer.base)
    for old, new in answer.hunks:
        if not old and not new:
            continue  # the base as it is
        count = f"\n{text}".count(f"\n{old}") if old else 0
        if count != 1:
            where = f"{exercise.folder.name}/answers.diff:{answer.line}"
            raise ValueError(f"{where}: {count} times in {answer.base}:\n{old}")
        text = f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:]
    return text
