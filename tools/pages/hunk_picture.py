"""A hunk of a diff as an SVG, two scripts side by side: matplotlib knows no code."""

import re
import textwrap
from html import escape, unescape

from tools.pages import side_by_side

# name -> its colors in light and in dark; of the page, and viridis' darkest
PALETTE = {"fifth": ["#453781", "#9d8bf0"], "sixth": ["#440154", "#e3b8f5"]}
for name, color in re.findall(
    r"--([\w-]+): (#\w{6})", side_by_side.TEMPLATE.read_text()
):
    PALETTE.setdefault(name, []).append(color)
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
CODE = {  # pygments' classes -> a color of that page
    "keyword": "k kn kc ow",
    "string": "s1 s2 sd sa si se",
    "comment": "c1",
    "name": "nf nc nd fm mi mf mh",
}

CHAR = 7.2  # the width of a character, in pixels, as the height and the margins below
HIGH = 18
GUTTER = 44  # for the line number and the sign
TOP = 34  # of the first line of code
FILL = {name: f'style="fill: {light}"' for name, (light, _) in PALETTE.items()}
CLASS_FILL = {}  # pygments' class -> style
for name, classes in CODE.items():
    CLASS_FILL |= dict.fromkeys(classes.split(), FILL[name])


def text(x, y, words, color="ink", more=""):
    """Return a text element."""
    return f'<text x="{x}" y="{y}" {FILL[color]} {more}>{words}</text>'


def rect(x, y, width, height, color):
    """Return a filled rectangle."""
    size = f'width="{width:g}" height="{height:g}"'
    return f'<rect x="{x:g}" y="{y:g}" {size} {FILL[color]}/>'


def length(html):
    """Return how many characters a line of HTML shows."""
    return len(unescape(re.sub("<.*?>", "", html)))


def colored(html):
    """Return a line of pygments' HTML as the content of a text element."""
    html = re.sub(
        r' ?class="(\w+)"', lambda found: " " + CLASS_FILL.get(found[1], ""), html
    )
    return html.replace("span", "tspan")


def code_line(html, index, marks, kind, top, side):
    """Return the elements of a line: its background, number, sign, marks and code.

    `kind` is old or new, `side` the width of a script, `marks` as of side_by_side.rows.
    """
    changed = marks != 0
    parts = [rect(0, top, side, HIGH, kind)] if changed else []
    for start, end in marks or []:
        left = GUTTER + start * CHAR
        width = (end - start) * CHAR
        parts.append(rect(left, top + 1, width, HIGH - 2, f"{kind}-word"))
    sign = {"old": "−", "new": "+"}[kind] if changed else ""
    color = f"{kind}-sign" if changed else "soft"
    number = f"{index + 1} {sign}"
    parts.append(text(GUTTER - 6, top + 13, number, color, 'text-anchor="end"'))
    size = f'textLength="{length(html) * CHAR:.1f}" xml:space="preserve"'
    parts.append(text(GUTTER, top + 13, colored(html), "ink", size))
    return "\n".join(parts)


def script_lines(rows, lines, column, side):
    """Return the elements of all lines of one script: the left, 0, or the right, 1."""
    parts = []
    kind = ("old", "new")[column]
    for place, row in enumerate(rows):
        index = row[column]
        top = place * HIGH
        if index is None:
            parts.append(rect(0, top, side, HIGH, "page"))
        else:
            html = lines[column][str(index)]
            parts.append(code_line(html, index, row[2 + column], kind, top, side))
    return parts


def without_indent(rows, lines):
    """Return the rows and lines of a hunk without the indentation of all its lines."""
    every = [line for script in lines for line in script.values()]
    indent = min(len(line) - len(line.lstrip()) for line in every)
    moved = []
    for *indices, old, new in rows:
        marks = []
        for found in old, new:
            shifted = [[max(0, at - indent) for at in mark] for mark in found or []]
            marks.append(shifted if found else found)
        moved.append([*indices, *marks])
    cut = [{number: line[indent:] for number, line in one.items()} for one in lines]
    return moved, cut


def draw_hunk(found):
    """Return the text of an SVG of a hunk, as pictures.hunk returns it."""
    rows, lines = without_indent(found["rows"], found["lines"])
    longest = [max(map(length, script.values())) for script in lines]
    sides = [round(GUTTER + count * CHAR) + 12 for count in longest]
    width = sum(sides)
    why = textwrap.wrap(found["why"], round(width / 7))
    below = TOP + len(rows) * HIGH
    height = below + 18 * len(why) + 24
    a, b, heading = found["heading"]
    box = f'viewBox="0 0 {width} {height}" width="{width}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        rect(0, 0, width, height, "paper"),
        '<g style="font: 13px system-ui, sans-serif">',
        text(12, 21, f"{a} → {b}", more='font-weight="600"'),
        text(width - 12, 21, escape(heading), "soft", 'text-anchor="end"'),
    ]
    for number, line in enumerate(why):
        parts.append(text(12, below + 24 + 18 * number, escape(line)))
    parts.append("</g>")
    for column, side in enumerate(sides):
        place = f'x="{column * sides[0]}" y="{TOP}"'
        size = f'width="{side - 2}" height="{below - TOP}"'
        parts.append(f'<svg {place} {size} style="font: 12px {MONO}">')
        parts += script_lines(rows, lines, column, side)
        parts.append("</svg>")
    return "\n".join([*parts, "</svg>\n"])
