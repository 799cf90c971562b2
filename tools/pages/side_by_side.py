"""Write one HTML page that shows any two stages side by side, and print a link to it.

`python -m tools.pages.side_by_side` writes runs/side_by_side.html. The page needs no
network and no server: it is view/page.html, with the style, the scripts and the data
in it. The site's pages load the same files.
"""

import json
import os
import re
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from tools.pages import essence
from tools.pages.reasons import LESSONS
from tools.pages.switches import SWITCHES, key, read_outcomes, without
from tools.run import diffs
from tools.run.stages import EVERY, OWN, ROOT, folder, previous, refuse, script

VIEW = Path(__file__).parent / "view"
STYLES = ["base.css", "view.css"]  # in the order in which they are loaded
SCRIPTS = ["losses.js", "diff.js", "lines.js", "outcome.js", "view.js", "page.js"]
LINK = re.compile(r'href="(?!https?:|#)([^"]+)"')


def html(markdown, page_folder=ROOT):
    """Return Markdown as HTML, with a file's path in the repository as its address.

    It is in `data-file`: the page that shows it knows the way there.
    """

    def in_repository(found):
        path = os.path.relpath(page_folder / found[1], ROOT)
        return f'data-file="{path}"'

    text = MarkdownIt().enable("table").render(markdown)
    text = LINK.sub(in_repository, text)
    return re.sub(r"\[\^\w+\]", "", text)  # footnotes stay on their page


def inline(markdown):
    """Return a line of Markdown as HTML."""
    return MarkdownIt().renderInline(markdown)


def stretches(hunk):
    """Return where a hunk changes lines: [[i1, i2, j1, j2], …], counted from 0."""
    return [list(lines) for tag, *lines in hunk.opcodes if tag != "equal"]


def ideas(a, b):
    """Return the ideas of the diff from `a` to `b`, ready for JSON."""
    found = []
    for idea, numbered in diffs.by_idea(a, b):
        hunks = []
        for number, hunk in numbered:
            hunks.append({"number": number, "stretches": stretches(hunk)})
        one = {"title": inline(idea.title or "Not on the stage's page"), "hunks": hunks}
        why = html(idea.text, folder(b))
        found.append(one | {"why": why, "plumbing": idea.is_plumbing})
    return found


def front():
    """Return the ideas of the front page's diff, ready for JSON."""
    found = []
    for title, parts in essence.steps().items():
        one = {"title": inline(title), "why": "", "plumbing": title == essence.REST}
        found.append(one | {"hunks": [{"number": 0, "stretches": parts}]})
    return found


def overview():
    """Return a table of how many lines change in each section, with links, as HTML."""
    sections = list(dict.fromkeys(diffs.sections("01_cpu")))
    rows = {section: f'<th scope="row">{section}</th>' for section in sections}
    heads = '<th scope="col">section</th>'
    for a, b in diffs.EXPLAINED:
        heads += f'<th scope="col"><a href="#{b}">{b[:2]}</a></th>'
        for section in sections:
            count = 0
            first = 0
            for number, hunk in enumerate(diffs.hunks(a, b), start=1):
                if hunk.section.split(" and ")[0] == section:
                    count += len(hunk.changed())
                    first = first or number
            link = f'<a href="#{b}.{first}">{count}</a>' if count else "·"
            rows[section] += f"<td>{link}</td>"
    body = "".join(f"<tr>{row}</tr>" for row in rows.values())
    return f"<table><tr>{heads}</tr>{body}</table>"


def switches():
    """Return each switch with its outcome, the address of its exercise, and HTML."""
    outcomes = read_outcomes()
    found = []
    for switch in SWITCHES:
        one = {name: value for name, value in switch.items() if name != "edits"}
        one |= {"title": inline(one["title"]), "says": html(one["says"])}
        if one["exercise"]:
            (path,) = (ROOT / "exercises").glob(f"{one['exercise']}_*.md")
            one["page"] = f"exercises/{path.name}"
        one |= without(switch["stage"], switch["edits"])
        found.append(one | {"outcome": outcomes["switches"][key(switch)]})
    return found, outcomes["right"], outcomes["recorded"]


def page_data():
    """Return what every page with a diff shows, ready for JSON."""
    stages = []
    for target, stage in EVERY.items():
        path = folder(stage).relative_to(ROOT) / "README.md"
        row = {"name": stage, "target": target, "base": previous(stage)}
        stages.append(row | {"page": str(path), "lesson": inline(LESSONS[stage])})
    pairs = [*diffs.EXPLAINED, *pairwise(OWN)]
    found, right, recorded = switches()
    return {
        "stages": stages,
        "scripts": {name: script(name).read_text() for name in [*EVERY.values(), *OWN]},
        "lessons": {f"{a}-{b}": ideas(a, b) for a, b in pairs},
        "overview": overview(),
        "front": {"pair": "-".join(essence.PAIR), "ideas": front()},
        "switches": found,
        "right": right,
        "recorded": recorded,
    }


def as_script(data):
    """Return data as JSON that may stand inside an HTML page."""
    return json.dumps(data, separators=(",", ":")).replace("</", "<\\/")


def write(path, root="../", suffix=".md"):
    """Write the page to `path`.

    `root` leads from there to the repository's pages, which end in `suffix`.
    """
    code = [
        f"const DIFFS = {as_script(page_data() | {'root': root, 'suffix': suffix})};"
    ]
    code += [(VIEW / name).read_text() for name in SCRIPTS]
    text = (VIEW / "page.html").read_text()
    style = "\n".join((VIEW / name).read_text() for name in STYLES)
    text = text.replace("/* the style */", style)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("/* the scripts */", "\n".join(code)))


def publish(write, name):
    """Have `write` write a page to runs/, and print its address."""
    target = ROOT / "runs" / name
    try:
        write(target)
    except OSError as error:
        refuse(f"cannot write {target}: {error.strerror}")
    print(target.as_uri())


if __name__ == "__main__":
    publish(write, "side_by_side.html")
