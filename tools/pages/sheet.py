"""Pictures made of boxes and words, as SVG in the palette's colors."""

import json
from html import escape

from tools.run import palette


class Sheet:
    """A picture of `width` by `height` pixels. x points right, y down."""

    def __init__(self, width, height):
        self.size = width, height
        self.parts = []
        self.box(0, 0, width, height, "page")

    def box(self, x, y, width, height, fill, edge="none"):
        """Draw a box; `fill` and `edge` are names of colors."""
        style = f"fill: {color(fill)}"
        if edge != "none":
            style += f"; stroke: {color(edge)}"
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
