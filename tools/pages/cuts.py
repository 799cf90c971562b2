"""Draw data from runs into the frames of diagrams/frames."""

from tools.bench.figures import WORK
from tools.pages import sheet
from tools.pages.drawing import timed
from tools.run.palette import LIGHT
from tools.run.stages import ROOT

FRAMES = ROOT / "tools" / "pages" / "diagrams" / "frames"
LENGTHS = {"forward": [1] * 4, "backward": [2] * 4}  # of a pass on each of four ranks
COLORS = {light: name for name, light in LIGHT.items()}


def frame(name):
    """Return a picture's frame, a Sheet, from its file."""
    return sheet.read((FRAMES / f"{name}.txt").read_text())


def ring(turns):
    """Draw the causal mask in the ring; `turns` are matrices [query][key].

    An entry is the rank whose keys are used in that turn, -1 if the score is masked, or
    None in the other turns.
    """
    made = frame("ring")
    made.box(66, 228, 15, 15, "rank0", faint=0.25)
    made.box(226, 228, 15, 15, "none", "soft", dash="2 2")
    size = len(turns[0])
    done = set()
    for turn, rows in enumerate(turns):
        for query, keys in enumerate(rows):
            for key, owner in enumerate(keys):
                place = 68 + 138 * turn + 16 * key, 35 + 16 * query, 15, 15
                if owner == -1:
                    made.box(*place, "none", "soft", dash="2 2")
                elif owner is not None:
                    made.box(*place, f"rank{owner}")
                elif (query, key) in done:
                    made.box(*place, f"rank{4 * key // size}", faint=0.25)
                if owner is not None and owner >= 0:
                    done.add((query, key))
    return made


def most_kept(order):
    """Return the largest number of micro-batches that a rank keeps at a time."""
    kept = most = 0
    for kind, _ in order:
        kept += 1 if kind == "forward" else -1
        most = max(most, kept)
    return most


def pipeline(found):
    """Draw when each rank works; `found` is {schedule: [order of each rank]}."""
    made = frame("pipeline")
    unit = 13.5
    for number, orders in enumerate(found.values()):
        top = 34 + 166 * number
        for rank, start, length, kind, micro in timed(orders, LENGTHS):
            x, y = 62 + unit * start, top + 30 * rank
            width = unit * length - 1
            made.box(x, y, width, 26, COLORS[WORK[kind]])
            ink = "page" if kind == "forward" else "ink"
            made.words(x + width / 2, y + 13, micro + 1, ink, bold=True, size=12)
        for rank, order in enumerate(orders):
            made.words(590, top + 13 + 30 * rank, most_kept(order), bold=True)
    return made


def bars(made, x, y, values, fill):
    """Draw ten numbers as bars on a baseline at y, 27 pixels apart."""
    largest = max(abs(one) for one in values)
    for place, value in enumerate(values):
        height = abs(value) / largest * 24
        top = y - height if value > 0 else y
        made.box(x + 27 * place, top, 20, height, fill)
    made.box(x - 4, y - 0.5, 270, 1, "soft")


def step(found):
    """Draw the first step of two ranks: deal, backward, average, step."""
    made = frame("step")
    for place, label in enumerate(found["labels"]):
        rank = place % 2
        deck = 14 + 18.5 * (place % 32), 40 + 21 * (place // 32)
        hand = 22 + 304 * rank + 17 * (place // 2 % 16), 98 + 24 * (place // 32)
        for x, y in deck, hand:
            made.box(x, y, 16, 20, f"rank{rank}")
            made.words(x + 8, y + 11, label, "page", size=12, mono=True)
    for rank, gradients in enumerate(found["gradients"]):
        x = 26 + 304 * rank
        loss = f"loss {found['losses'][rank]:.4f}"
        made.words(x + 266, 198, loss, "soft", "end", size=12)
        bars(made, x, 234, gradients, f"rank{rank}")
        bars(made, x, 506, found["biases"], f"rank{rank}")
    first, second = found["gradients"]
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    bars(made, 178, 372, mean, "ink")
    return made
