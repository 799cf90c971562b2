"""Write an HTML page with each stage next to its predecessor, and print its link.

`make side_by_side` writes side_by_side.html to runs/ or OUT. The page contains its
style, scripts and data, so it needs no network or server. The site's pages show parts
of it. The templates are in view/, the parts' are in code.html. Everything except
the switches works without JavaScript. (Jinja2 is installed with PyTorch.)
"""

import json
import os
from urllib.parse import quote

from markupsafe import Markup

from tools.pages import columns
from tools.pages.markup import HERE, TEMPLATES, html, inline, linked
from tools.pages.reasons import LESSONS
from tools.pages.switches import SWITCHES, hunk_of, read_outcomes, without
from tools.run import diffs, essence
from tools.run.stages import BY_NAME, EVERY, ROOT, TRANSFORMER, folder, save_page

SCRIPTS = ["losses.js", "outcome.js", "hero.js", "view.js"]


def card(pair, hunks, numbers, title, switches, why="", is_plumbing=False):
    """Return the templates' data of an idea: some hunks of a diff, and why.

    `hunks` are pairs (section, opcodes), `numbers` identify the idea in a URL, and
    `switches` are from SWITCHES.
    """
    old = diffs.lines(pair[0])
    new = diffs.lines(pair[1])
    used = []
    count = 0
    for _, opcodes in hunks:
        for tag, i1, i2, j1, j2 in opcodes:
            used += old[i1:i2] + new[j1:j2]
            if tag != "equal":
                count += i2 - i1 + j2 - j1
    cut = min(len(line) - len(line.lstrip()) for line in used if line.strip())
    drawn = [(name, columns.cells(old, new, codes, cut)) for name, codes in hunks]
    return {
        "base": pair[0],
        "name": pair[1],
        "numbers": numbers,
        "title": inline(title),
        "count": count,
        "hunks": drawn,
        "why": html(why, folder(pair[1])),
        "plumbing": is_plumbing,
        "switches": [(one["key"], inline(one["title"])) for one in switches],
    }


def ideas(a, b):
    """Return the `card` of each idea in the diff from `a` to `b`."""
    found = []
    for idea, numbered in diffs.by_idea(a, b):
        numbers = [number for number, _ in numbered]
        hunks = [(hunk.section, hunk.opcodes) for _, hunk in numbered]
        title = idea.title or "Not on the stage's page"
        of_stage = [row for row in SWITCHES if row["stage"] == b]
        off = [row for row in of_stage if hunk_of(row) in numbers]
        found.append(
            card((a, b), hunks, numbers, title, off, idea.text, idea.is_plumbing)
        )
    return found


def front():
    """Return the `card` of each essential idea in the front page's diff."""
    sections = diffs.sections(essence.PAIR[1])
    found = []
    essential = list(essence.steps().items())[:-1]
    for number, (step, stretches) in enumerate(essential, start=1):
        hunks = [(sections[one[2]], [("replace", *one)]) for one in stretches]
        off = [row for row in SWITCHES if row.get("step") == step]
        found.append(card(essence.PAIR, hunks, [number], step, off))
    return found


def lesson(stage):
    """Return a link to a stage's page for `linked` to resolve."""
    return f"{HERE}{folder(stage).relative_to(ROOT)}/README.md"


def pair(a, b, is_front=False):
    """Return the templates' data of a diff, by the front page's steps or its ideas."""
    return {
        "a": a,
        "b": b,
        "page": lesson(b),
        "recorded": read_outcomes()["recorded"],
        "count": diffs.changed_lines(a, b),
        "lesson": inline(LESSONS[b]),
        "target": BY_NAME[b].target,
        "ideas": front() if is_front else ideas(a, b),
    }


def part(kind, data):
    """Return a part of a page, drawn by the macro `kind` of view/code.html."""
    return getattr(TEMPLATES.get_template("code.html").module, kind)(data)


def switch_data(switch, outcomes):
    """Return a switch's data for view.js, ready for JSON."""
    notes = []
    if "symptom" in switch:
        notes.append(f"[Symptoms](docs/SYMPTOMS.md#{switch['symptom']})")
    if "exercise" in switch:
        number = switch["exercise"]
        (path,) = (ROOT / "exercises").glob(f"{number}_*.md")
        page = f"[Find it yourself](exercises/{path.name})"
        notes.append(f"{page}: `make exercise E={number}`")
    one = {"name": switch["name"], "stage": switch["stage"], "gpus": "gpus" in switch}
    one["second"] = switch["stage"] in TRANSFORMER.values()  # of the second curve
    one["title"] = inline(switch["title"])
    one["says"] = html(switch["says"] + "\n\n" + " · ".join(notes))
    one |= without(switch["stage"], switch["edits"])
    return one | {"outcome": outcomes["switches"][switch["key"]]}


def data(stages):
    """Return the outcomes of some stages' switches as JavaScript."""
    outcomes = read_outcomes()
    shown = [one for one in SWITCHES if one["stage"] in stages and hunk_of(one)]
    found = {one["key"]: switch_data(one, outcomes) for one in shown}
    known = outcomes["right"].items()
    right = {name: runs for name, runs in known if name in {"01_cpu", *stages}}
    steps = {stage: outcomes["steps"][stage] for stage in ("01_cpu", "04_ddp")}
    found = {"switches": found, "right": right, "steps": steps}
    text = json.dumps(found, separators=(",", ":"))
    return Markup(f"const DIFFS = {text};".replace("</", "<\\/"))


def pairs():
    """Return the templates' data of all diffs."""
    return [pair(*one) for one in diffs.EXPLAINED]


def page(root="../", suffix=".md"):
    """Return the page as HTML; for `root` and `suffix` see `linked`."""
    template = TEMPLATES.get_template("page.html")
    text = template.render(pairs=pairs(), data=data(EVERY.values()), scripts=SCRIPTS)
    return linked(text, root, suffix)


def main():
    """Write the page as one file."""
    back = os.path.relpath(ROOT, os.environ.get("OUT") or "runs")
    save_page("side_by_side.html", page(f"{quote(back)}/"))
