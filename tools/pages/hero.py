"""Draw the README's first picture: an animated curve, and one that diverges."""

from tools.pages.sheet import Sheet

LINE = "sampler.set_epoch(epoch)  # without it, every epoch has the same order"
LEFT, RIGHT, TOP, BOTTOM = 40, 560, 44, 226  # of the chart, in pixels
HIGHEST = 2.5  # loss, at the top of the chart
LENS = 290, 50, 270, 74  # x, y, width, height
NEAR = slice(126, 147)  # the steps in it
MONO = "fill: var(--ink); font-family: var(--mono); font-size: 14px"
# The right run, then the one without the line, twice. The second stays. It is also the
# only one shown under reduced motion.
MOTION = """<style>
.draws { fill: none; stroke-width: 1.6; stroke-dasharray: 1; }
.first { opacity: 0; }
@media (prefers-reduced-motion: no-preference) {
  .first { animation: first 14s 2; } .second { animation: second 14s 2; }
  .first .draws { animation: early 14s 2 linear; }
  .second .draws { animation: late 14s 2 linear; }
}
@keyframes first { 0%, 46% { opacity: 1; } 49%, 97% { opacity: 0; } }
@keyframes second { 0%, 46% { opacity: 0; } 49%, 96% { opacity: 1; } }
@keyframes early { 0% { stroke-dashoffset: 1; } 36%, 100% { stroke-dashoffset: 0; } }
@keyframes late { 0%, 50% { stroke-dashoffset: 1; } 82%, 99% { stroke-dashoffset: 0; } }
</style>"""


def line(made, losses, ink, attributes=""):
    """Draw the losses of all steps, and those in the lens enlarged."""
    x, y, width, height = LENS
    near = losses[NEAR]
    places, enlarged = [], []
    for step, loss in enumerate(losses):
        across = LEFT + (RIGHT - LEFT) * (step + 1) / len(losses)
        places.append((across, BOTTOM - (BOTTOM - TOP) * loss / HIGHEST))
    for step, loss in enumerate(near):
        across = x + 6 + (width - 12) * step / (len(near) - 1)
        enlarged.append((across, y + height * (0.8 - loss) / 0.6))
    for points in places, enlarged:
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
        made.parts.append(
            f'<polyline points="{path}" pathLength="1" fill="none" '
            f'style="stroke: var(--{ink})" {attributes}/>'
        )


def scene(made, name, run, right, ink, title):
    """Begin a group: a run's losses, and its epochs' digits next to the right ones."""
    made.parts.append(f'<g class="{name}">')
    line(made, run["steps"], ink, 'class="draws"')
    made.words(580, 60, title, ink, "start", bold=True, size=15)
    for epoch, (loss, expected) in enumerate(zip(run["epochs"], right, strict=True)):
        y = 142 + 26 * epoch
        found = f"{loss:.6f}"
        same = 0
        while same < 8 and found[same] == f"{expected:.6f}"[same]:
            same += 1
        wrong = (
            f'<tspan style="fill: var(--bad); font-weight: 600">{found[same:]}</tspan>'
        )
        made.parts.append(
            f'<text x="706" y="{y + 5}" style="{MONO}">{found[:same]}{wrong}</text>'
        )


def draw(found):
    """Draw each step's loss on one process, on two ranks, and without a line."""
    made = Sheet(830, 250)
    made.parts.append(MOTION)
    made.words(LEFT, 20, LINE, "ink", "start", mono=True)
    for loss in 0, 1, 2:
        y = BOTTOM - (BOTTOM - TOP) * loss / HIGHEST
        made.box(LEFT, y, RIGHT - LEFT, 1, "line")
        made.words(LEFT - 8, y, loss, "soft", "end", size=12)
    for epoch in 1, 2, 3:
        across = LEFT + (RIGHT - LEFT) * (epoch - 0.5) / 3
        made.words(across, 239, f"epoch {epoch}", "soft", size=12)
        made.words(580, 116 + 26 * epoch, epoch, "soft", "start", size=14)
        expected = f"{found['right'][epoch - 1]:.6f}"
        made.words(604, 116 + 26 * epoch, expected, "ink", "start", mono=True, size=14)
    made.words(604, 118, "one process", "soft", "start", size=12)
    made.words(706, 118, "two ranks", "soft", "start", size=12)
    made.box(*LENS, "page", "line")
    made.words(
        LENS[0] - 8, 62, "the first 21 steps\nof epoch 3", "soft", "end", size=12
    )
    line(made, found["one process"], "ghost", 'stroke-width="4" opacity=".6"')
    equal = "One curve, equal\ndigit for digit"
    scene(made, "first", found["two ranks"], found["right"], "right", equal)
    made.parts.append("</g>")
    apart = "No error without this\nline: the curve moves"
    scene(made, "second", found["without"], found["right"], "bad", apart)
    struck = f"{MONO}; fill: var(--bad); font-size: 13px; text-decoration: line-through"
    made.parts.append(f'<text x="{LEFT}" y="24.5" style="{struck}">{LINE}</text></g>')
    return made
