"""Pictures made of boxes, words and arrows, as SVG in the palette's colors."""

import json
import math
import re
from html import escape

from tools.run import palette


class Sheet:
    """A picture of `width` by `height` pixels. x points right, y down."""

    def __init__(self, width, height):
        self.size = width, height
        self.parts = []
        self.box(0, 0, width, height, "page")

    def box(self, x, y, width, height, fill, edge="none", faint=1, dash=""):
        """Draw a box; `fill` and `edge` are names of colors, `faint` is its opacity."""
        style = f"fill: {color(fill)}"
        if faint < 1:
            style += f"; fill-opacity: {faint}"
        if edge != "none":
            style += f"; stroke: {color(edge)}"
        if dash:
            style += f"; stroke-dasharray: {dash}"
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{min(3, height / 4):g}" style="{style}"/>'
        )

    def words(
        self, x, y, text, ink="ink", anchor="middle", bold=False, size=13, mono=False
    ):
        """Write lines of text, each below the last; y is the middle of the first."""
        font = "mono" if mono else "sans"
        style = f"fill: {color(ink)}; font-family: var(--{font}); font-size: {size}px"
        weight = "; font-weight: 600" if bold else ""
        for number, line in enumerate(str(text).split("\n")):
            height = y + number * 1.3 * size + 0.35 * size
            self.parts.append(
                f'<text x="{x:g}" y="{height:g}" text-anchor="{anchor}" '
                f'style="{style}{weight}">{escape(line)}</text>'
            )

    def cells(self, x, y, columns, rows, width, height, fill):
        """Draw rows of boxes, a pixel apart; `width` and `height` are one box's."""
        for row in range(int(rows)):
            for column in range(int(columns)):
                place = x + column * (width + 1), y + row * (height + 1)
                self.box(*place, width, height, fill)

    def stairs(self, x, y, first, last, fill):
        """Draw rows `first` to `last` - 1 of causal attention's scores."""
        for row in range(int(first), int(last)):
            self.cells(x, y + 11 * row, row + 1, 1, 10, 10, fill)

    def label(self, x, y, width, height, text, fill="panel", edge="line"):
        """Draw a box with centered lines of text."""
        self.box(x, y, width, height, fill, edge)
        top = y + height / 2 - 8.5 * text.count("\n")
        is_strong = fill.startswith("rank") or fill in ("right", "soft")
        ink = "page" if is_strong else "ink"
        self.words(x + width / 2, top, text, ink)

    def arrow(self, *points, ink="soft", dash="", width=1.5, head=5):
        """Draw a line along points (x, y), with a head at its end (`head` long)."""
        (x0, y0), (x, y) = points[-2:]
        angle = math.atan2(y - y0, x - x0)
        wings = []
        for turn in -2.6, 2.6:
            wing = x + head * math.cos(angle + turn), y + head * math.sin(angle + turn)
            wings.append(wing)
        line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
        first, second = [f"{x:.1f},{y:.1f}" for x, y in wings]
        style = f"fill: none; stroke: {color(ink)}; stroke-width: {width}"
        for path, dashes in (line, dash), (f"M{first} L{x:.1f},{y:.1f} L{second}", ""):
            dashed = f"; stroke-dasharray: {dashes}" if dashes else ""
            self.parts.append(f'<path d="{path}" style="{style}{dashed}"/>')

    def svg(self, data):
        """Return the picture as SVG, including its data."""
        width, height = self.size
        about = escape(json.dumps(data), quote=False)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{height}" viewBox="0 0 {width} {height}">\n'
            f"<metadata><description>{about}</description></metadata>\n"
            f'<style type="text/css">\n{palette.stylesheet()}</style>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def color(name):
    """Return a palette color as a CSS variable; "none" stays."""
    return name if name == "none" else f"var(--{name})"


def read(text):
    """Return the picture that a file of diagrams/ describes.

    The first line is the size. Each other line contains a method of `Sheet`, numbers,
    names and, after " | ", a text in which / begins a new line.
    """
    size, *lines = text.splitlines()
    sheet = Sheet(*[int(one) for one in size.split()])
    for line in lines:
        head, _, words = line.partition(" | ")
        kind, *rest = head.split()
        numbers = [float(one) for one in rest if re.fullmatch(r"[\d.]+", one)]
        names = [one for one in rest if not re.fullmatch(r"[\d.]+", one)]
        if kind == "arrow":
            points = list(zip(numbers[::2], numbers[1::2], strict=True))
            sheet.arrow(*points, ink=names[0] if names else "soft")
        else:
            texts = [words.replace(" / ", "\n")] if words else []
            getattr(sheet, kind)(*numbers, *texts, *names)
    return sheet
