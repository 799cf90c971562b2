"""Draw stage 4's first step on two ranks: deal, backward, average, step."""

from pathlib import Path

from tools.pages.sheet import Sheet

FRAME = Path(__file__).with_name("step_frame.svg")  # what no run changes


def bars(made, x, y, values, fill):
    """Draw ten numbers as bars on a baseline at y, 27 pixels apart."""
    largest = max(abs(one) for one in values)
    for place, value in enumerate(values):
        height = abs(value) / largest * 24
        top = y - height if value > 0 else y
        made.box(x + 27 * place, top, 20, height, fill)
    made.box(x - 4, y - 0.5, 270, 1, "soft")


def draw(found):
    """Draw the numbers of a first step into the frame."""
    made = Sheet(620, 560)
    made.parts.append(FRAME.read_text().rstrip())
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
