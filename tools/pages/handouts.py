"""Write a workshop's handouts: `make handouts`, for TRACK=half_day or another track.

runs/handouts_half_day.html contains a card, "The lines that do the work", and a sheet
for each exercise: its task and commands on the front, the relevant code on the back.
runs/answers_half_day.html is for the instructor: solutions, what the check says to
wrong answers, and where people met the mistake.
"""

import ast
import difflib
import re
from pathlib import Path

from markdown_it import MarkdownIt

from tools.lab.progress import along_the_track
from tools.run.essence import PAIR, essence
from tools.run.stages import save_page

HEAD = Path(__file__).with_suffix(".html")
TRAINING = "train_epoch", "main"
DIFFERING = re.compile(r"\\d\+|\.\*|(?<= )\.(?= )")  # variable text in a pattern


def block(lines, language=""):
    """Return lines as a block of code in Markdown."""
    return "\n".join([f"```{language}", *lines, "```"])


def difference(old, new):
    """Return the diff between two strings as lines, without the file names."""
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    return list(diff)[2:]


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
            shown += [*lines, ""]
    return shown[:-1]


def sheet(exercise):
    """Return the front and the back of an exercise's sheet as Markdown."""
    number = exercise.number
    commands = [
        f"make exercise E={number}     # copies it to workshop/{exercise.name}",
        f"make try E={number}          # compares your script with a correct one",
        f"make check E={number}        # is it solved?",
        f"make hint E={number}         # where to look, what to ask, the lines",
    ]
    front = exercise.without_hints().replace("# ", f"# {number}. ", 1)
    head = f"## {number}. The relevant lines of {exercise.name}/{exercise.file}"
    back = f"{head}\n\n{block(functions_that_matter(exercise))}"
    return f"{front}\n\n{block(commands)}", back


def told(exercise):
    """Return the instructor's notes on an exercise as Markdown."""
    start = exercise.script("start")
    parts = [f"## {exercise.number}. {exercise.title}", "The solution:"]
    parts.append(block(difference(start, exercise.script("solution")), "diff"))
    answers = exercise.answers()
    wrong = [answer for answer in answers if answer.name.startswith("wrong")]
    for answer in wrong[:3]:
        base = answer.fields.get("base", "start")
        # `says` is a pattern that occurs in the check's output.
        says = re.sub(r"\\(.)", r"\1", DIFFERING.sub("…", answer.fields["says"]))
        says = f"The check says: *… {says} …*"
        parts.append(f"A wrong answer changes this in the {base} script. {says}")
        old = exercise.script(base)
        parts.append(block(difference(old, exercise.answered(answer)), "diff"))
    parts += ["Where people met it:", exercise.chapter("Where people met it")]
    return "\n\n".join(parts)


def page(sections):
    """Return an HTML page of sections, pairs of a CSS class and Markdown."""
    render = MarkdownIt().enable("table").render
    shown = []
    for kind, text in sections:
        html = render(text)
        shown.append(f'<section class="{kind}">{html}</section>')
    return "\n".join([HEAD.read_text(), *shown])


def main(track):
    """Write both pages for a track; the default is half_day."""
    track = track or "half_day"
    exercises = along_the_track(track)
    title = f"# The lines that do the work\n\nFrom `{PAIR[0]}` to `{PAIR[1]}`."
    sections = [("card", f"{title}\n\n{essence()}")]
    for exercise in exercises:
        sections += zip(("front", "code"), sheet(exercise), strict=True)
    save_page(f"handouts_{track}.html", page(sections))
    save_page(f"answers_{track}.html", page([("told", told(one)) for one in exercises]))
