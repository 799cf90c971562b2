"""A picture made of boxes, words and arrows, as SVG in the colors of the palette."""

import json
import math
from html import escape

from tools.run import palette


class Sheet:
    """A picture, so many pixels wide and high. x goes to the right, y downwards."""

    def __init__(self, width, height):
        self.size = width, height
        self.parts = []
        self.box(0, 0, width, height, "page", round_=0)

    def box(
        self, x, y, width, height, fill="none", edge="none", faint=1, dash="", round_=3
    ):
        """Draw a box, `fill` and `edge` by names of colors; `faint` is its opacity."""
        style = f"fill: {color(fill)}"
        if faint < 1:
            style += f"; fill-opacity: {faint}"
        if edge != "none":
            style += f"; stroke: {color(edge)}"
        if dash:
            style += f"; stroke-dasharray: {dash}"
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{round_}" style="{style}"/>'
        )

    def words(
        self, x, y, text, ink="ink", size=13, anchor="middle", bold=False, mono=False
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
        """Return the picture as the text of its file, with the data that it shows."""
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
    """Return a color's name of the palette as CSS; "none" stays."""
    return name if name == "none" else f"var(--{name})"
