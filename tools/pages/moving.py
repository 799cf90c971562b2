"""Draw what the README opens with: a curve that draws itself, and one that parts."""

from tools.pages.sheet import Sheet

LINE = "sampler.set_epoch(epoch)  # without it, every epoch has the same order"
LEFT, RIGHT, TOP, BOTTOM = 40, 560, 44, 226  # of the chart, in pixels
HIGHEST = 2.5  # loss that is drawn
LENS = 290, 50, 270, 74  # x, y, width, height
NEAR = slice(126, 147)  # the steps in it
# First the right run, then the one without the line, in a circle of 14 seconds. Where
# nothing may move, and where style is not understood, the second shows.
MOTION = """<style>
.draws { fill: none; stroke-width: 1.6; stroke-dasharray: 1; }
.first { opacity: 0; }
@media (prefers-reduced-motion: no-preference) {
  .first { animation: first 14s infinite; } .second { animation: second 14s infinite; }
  .first .draws { animation: early 14s infinite linear; }
  .second .draws { animation: late 14s infinite linear; }
}
@keyframes first { 0%, 46% { opacity: 1; } 49%, 97% { opacity: 0; } }
@keyframes second { 0%, 46% { opacity: 0; } 49%, 96% { opacity: 1; } }
@keyframes early { 0% { stroke-dashoffset: 1; } 36%, 100% { stroke-dashoffset: 0; } }
@keyframes late { 0%, 50% { stroke-dashoffset: 1; } 82%, 99% { stroke-dashoffset: 0; } }
</style>"""


def line(made, losses, ink, attributes=""):
    """Draw the losses of all steps, and those of the lens in it."""
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
    """Begin a group: the losses of a run, and its epochs' digits beside the right."""
    made.parts.append(f'<g class="{name}">')
    line(made, run["steps"], ink, 'class="draws"')
    made.words(580, 60, title, ink, "start", bold=True, size=15)
    for epoch, (loss, expected) in enumerate(zip(run["epochs"], right, strict=True)):
        y = 142 + 26 * epoch
        found = f"{loss:.6f}"
        same = 0
        while same < 8 and found[same] == f"{expected:.6f}"[same]:
            same += 1
        made.words(706, y, found[:same], "ink", "start", mono=True, size=14)
        step = 8.43 * same  # a letter of this size is so wide
        made.words(706 + step, y, found[same:], "bad", "start", True, 14, True)


def hero(found):
    """Draw the loss of each step: of one process, of two ranks, and without a line."""
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
    made.box(LEFT - 2, 19, 545, 1.5, "bad")
    made.parts.append("</g>")
    return made
