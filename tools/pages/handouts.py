"""Write a workshop's handouts: `make handouts`, for TRACK=half_day or another track.

runs/handouts_half_day.html contains a card, "The lines that do the work", and a sheet
for each exercise: its task and commands on the front, the relevant code on the back.
runs/answers_half_day.html is for the instructor: solutions, what the check says to
wrong answers, and where people met the mistake.
"""

import ast
import difflib
import re

from tools.lab.progress import along_the_track
from tools.pages.markup import TEMPLATES
from tools.run.essence import PAIR, essence
from tools.run.stages import save_page

TRAINING = "train_epoch", "main"
DIFFERING = re.compile(r"\\d\+|\.\*|(?<= )\.(?= )")  # variable text in a pattern


def difference(old, new):
    """Return the diff between two strings without the file names."""
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    return "\n".join(list(diff)[2:])


def functions_that_matter(exercise):
    """Return lines of the broken script, with their numbers.

    These are the training functions and any code that differs from the stage.
    """
    text = exercise.script("start")
    stage = exercise.script("stage")
    shown = []
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        is_as_before = ast.get_source_segment(text, node) in stage
        if node.name in TRAINING or not is_as_before:
            numbers = range(node.lineno, node.end_lineno + 1)
            lines = [f"{n:3}  {text.splitlines()[n - 1]}" for n in numbers]
            shown.append("\n".join(lines))
    return "\n\n".join(shown)


def wrong_answers(exercise):
    """Return three wrong answers as dicts: base, diff and what the check says."""
    wrong = [one for one in exercise.answers() if one.name.startswith("wrong")]
    found = []
    for answer in wrong[:3]:
        base = answer.fields.get("base", "start")
        diff = difference(exercise.script(base), exercise.answered(answer))
        # `says` is a pattern that occurs in the check's output.
        says = re.sub(r"\\(.)", r"\1", DIFFERING.sub("…", answer.fields["says"]))
        found.append({"base": base, "diff": diff, "says": says})
    return found


def main(track):
    """Write both pages for a track; the default is half_day."""
    track = track or "half_day"
    shown = {"pair": PAIR, "essence": essence(), "exercises": along_the_track(track)}
    for function in difference, functions_that_matter, wrong_answers:
        shown[function.__name__] = function
    template = TEMPLATES.get_template("handouts.html")
    for kind in "handouts", "answers":
        save_page(f"{kind}_{track}.html", template.render(kind=kind, **shown))
