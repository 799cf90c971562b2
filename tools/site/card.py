"""What a chat or a feed shows beside a link to the site: a card, and its tags."""

from html import escape

from tools.bench.figures import figure
from tools.pages import pictures, stored
from tools.run.palette import LIGHT

TITLE = "Six scripts, one loss curve"
BELOW = "Parallel training in PyTorch. Forget one line, and mostly nothing complains:"
BELOW += "\nthe loss still falls, only not along the same curve."


def draw(path):
    """Draw the right losses, and those without set_epoch: 1200 x 630 pixels."""
    (found,) = pictures.hero()
    made, axis = figure(12, 6.3)
    axis.plot(found["one process"], color=LIGHT["ghost"], linewidth=9)
    axis.plot(found["without"]["steps"], color=LIGHT["bad"], linewidth=2.5)
    axis.axis("off")
    style = {"transform": axis.transAxes, "ha": "right", "va": "top"}
    axis.text(0.97, 0.96, TITLE, size=40, weight="bold", color=LIGHT["ink"], **style)
    axis.text(0.97, 0.79, BELOW, size=19, color=LIGHT["soft"], **style)
    made.savefig(path, dpi=100)


def tags(title, text):
    """Return a page's tags for a link; none before the site has an address."""
    address = stored.address()
    if address == stored.UNPUBLISHED:
        return ""
    _, owner, name = address.rsplit("/", 2)
    values = {"title": title, "description": text}
    values["image"] = f"https://{owner}.github.io/{name}/_static/card.png"
    lines = []
    for kind, value in values.items():
        lines.append(f'<meta property="og:{kind}" content="{escape(value)}">')
    return "".join(lines)
