"""Write the exercises as hand-outs to print: `python -m tools.lab.handouts`.

runs/handouts.html has one exercise per sheet, without the hints. runs/afterwards.html
is for the instructor: what solves each exercise, and where people met the mistake.
"""

from markdown_it import MarkdownIt

from tools.lab.exercise import along_the_path
from tools.lab.path import PARTS
from tools.run.stages import ROOT, refuse

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
@page {{ size: A4; margin: 20mm; }}
body {{ font: 11pt/1.5 sans-serif; max-width: 44em; margin: auto; }}
section {{ break-inside: avoid; }}
.sheet {{ break-after: page; }}
pre {{ white-space: pre-wrap; background: #eee; padding: 0.6em; }}
</style>
{body}
</html>
"""
FOR_LEARNERS = """<section class="sheet">
<p>Part {one.part}. {part}. Exercise {one.number}: make exercise E={one.number}</p>
{html}</section>"""


def render(text):
    """Return Markdown as HTML."""
    return MarkdownIt().enable("table").render(text)


def handout(exercise):
    """Return the sheet of an exercise: its page up to the hints."""
    html = render(exercise.without_hints())
    return FOR_LEARNERS.format(one=exercise, part=PARTS[exercise.part], html=html)


def afterwards(exercise):
    """Return what an instructor says after an exercise: its lines, and who met it."""
    lines = exercise.hints()[-1]
    met = exercise.chapter("Where people met it")
    text = f"## {exercise.number}. {exercise.title}\n\n{lines}\n\n{met}\n"
    return f"<section>{render(text)}</section>"


def write(name, title, parts):
    """Write a page of HTML to runs/, and print a link to it."""
    path = ROOT / "runs" / name
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(PAGE.format(title=title, body="\n".join(parts)))
    except OSError as error:
        refuse(f"cannot write {path}: {error.strerror}")
    print(path.as_uri())


def main():
    exercises = along_the_path()
    write("handouts.html", "Exercises", map(handout, exercises))
    write("afterwards.html", "What to say afterwards", map(afterwards, exercises))


if __name__ == "__main__":
    main()
