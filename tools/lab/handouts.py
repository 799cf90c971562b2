"""`make handouts` writes the exercises as pages to print.

runs/handouts.html has one exercise per sheet, without the hints. runs/afterwards.html
is for the instructor: what solves each exercise, and where people met the mistake.
"""

from markdown_it import MarkdownIt

from tools.lab.exercise import PARTS, along_the_path
from tools.run.stages import ROOT

HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Exercises</title>
<style>
@page { size: A4; margin: 20mm; }
body { font: 11pt/1.5 sans-serif; max-width: 44em; margin: auto; }
section { break-inside: avoid; }
.sheet { break-after: page; }
pre { white-space: pre-wrap; background: #eee; padding: 0.6em; }
</style>
"""


def write(name, kind, texts):
    """Write Markdown to a page of HTML in runs/, each text a section of a kind."""
    path = ROOT / "runs" / name
    render = MarkdownIt().enable("table").render
    sections = [f'<section class="{kind}">{render(text)}</section>' for text in texts]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([HEAD, *sections]))
    print(path.as_uri())


def write_handouts():
    """Write both pages."""
    sheets = []
    afterwards = []
    for one in along_the_path():
        head = f"Part {one.part}. {PARTS[one.part]}: make exercise E={one.number}"
        sheets.append(f"{head}\n\n{one.without_hints()}")
        met = one.chapter("Where people met it")
        afterwards.append(f"## {one.number}. {one.title}\n\n{one.hints()[-1]}\n\n{met}")
    write("handouts.html", "sheet", sheets)
    write("afterwards.html", "told", afterwards)
