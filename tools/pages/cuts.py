"""Draw how the transformer is cut: who has which letters, keys, experts and blocks."""

from tools.bench.figures import WORK
from tools.pages.sheet import Sheet
from tools.run.palette import LIGHT

COLORS = {light: name for name, light in LIGHT.items()}
CELL = 11  # pixels of a letter in the matrices
KEYS = 4  # the letters that a rank of two has, of eight

# Cut -> who has the letters of two texts; titles of two matrices of scores, and who has
# them; who has the attention and the MLP of two blocks. "01" is cut between both ranks,
# "both" a copy on each.
CUTS = {
    "the batch\n14": [("0", "1"), ("text A", "text B"), ("0", "1"), ("both", "both")],
    "the width\n15": [
        ("01", "01"),
        ("heads 0, 1", "heads 2, 3"),
        ("0", "1"),
        ("rows", "rows"),
    ],
    "the depth\n16": [("then", "then"), ("block 1", "block 2"), ("0", "1"), ("0", "1")],
    "the sequence\n17": [
        ("01", "01"),
        ("text A", "text B"),
        ("ring", "ring"),
        ("both", "both"),
    ],
    "the experts\n19": [
        ("0", "1"),
        ("text A", "text B"),
        ("0", "1"),
        ("experts", "experts"),
    ],
}


def cut(sheet, x, y, width, height, who):
    """Draw a box of what is on both ranks, on one, or cut across between them."""
    if who in ("both", "0", "1"):
        color = "line" if who == "both" else f"rank{who}"
        sheet.box(x, y, width, height, color)
    elif who == "01":
        sheet.box(x, y, width / 2 - 0.5, height, "rank0")
        sheet.box(x + width / 2 + 0.5, y, width / 2 - 0.5, height, "rank1")
    else:
        sheet.box(x, y, width, height / 2 - 0.5, "rank0")
        sheet.box(x, y + height / 2 + 0.5, width, height / 2 - 0.5, "rank1")


def scores(sheet, x, y, who):
    """Draw the causal scores of eight letters, each query's keys in a row."""
    for query in range(2 * KEYS):
        for key in range(query + 1):
            rank = query // KEYS if who == "ring" else int(who)
            place = x + key * CELL, y + query * CELL
            sheet.box(*place, CELL - 1, CELL - 1, f"rank{rank}", round_=1)
    if who == "ring":
        side = KEYS * CELL
        sheet.box(x - 1, y + side - 1, side + 1, side + 1, "none", "message")


def letters(cuts):
    """Draw who has which letters, scores and weights, for each cut of two ranks."""
    sheet = Sheet(620, 100 + 132 * len(cuts))
    heads = {62: "cut along", 200: "letters", 360: "scores", 540: "weights"}
    for x, text in heads.items():
        sheet.words(x, 22, text, "soft")
    for row, (name, (texts, titles, attention, weights)) in enumerate(cuts.items()):
        y = 50 + 132 * row
        sheet.box(12, y - 10, 596, 122, "panel", "line", round_=6)
        sheet.words(62, y + 40, name, bold=True)
        for number, (text, who) in enumerate(zip("AB", texts, strict=True)):
            height = y + 22 + 40 * number
            sheet.words(140, height + 9, text, "soft")
            for letter in range(8):
                part = who[letter // KEYS] if who == "01" else who
                cut(sheet, 152 + 13 * letter, height, 12, 18, part)
        for number, (title, who) in enumerate(zip(titles, attention, strict=True)):
            x = 288 + 112 * number
            scores(sheet, x, y, who)
            sheet.words(x + 44, y + 100, title, size=12)
        for number, who in enumerate(weights):
            x = 496 + 54 * number
            draw_block(sheet, x, y, who)
            sheet.words(x + 19, y + 100, f"block {number + 1}", size=12)
    y = 54 + 132 * len(cuts)
    for x, color, text in (20, "rank0", "rank 0"), (100, "rank1", "rank 1"):
        sheet.box(x, y - 7, 14, 14, color)
        sheet.words(x + 20, y, text, size=12, anchor="start")
    sheet.box(180, y - 7, 14, 14, "line")
    sheet.words(200, y, "a copy on each", size=12, anchor="start")
    cut(sheet, 310, y - 9, 12, 18, "then")
    sheet.words(328, y, "first on rank 0, then on rank 1", size=12, anchor="start")
    sheet.box(21, y + 18, 12, 12, "none", "message")
    words = "keys and values that come from the other rank, in a ring"
    sheet.words(40, y + 24, words, size=12, anchor="start")
    return sheet


def draw_block(sheet, x, y, who):
    """Draw the weights of a block: attention's, and below them the MLP's."""
    if who == "experts":
        cut(sheet, x, y, 38, 26, "both")
        for expert in range(4):
            sheet.box(x, y + 29 + 15 * expert, 38, 14, f"rank{expert // 2}", round_=1)
        return
    cut(sheet, x, y, 38, 26, "01" if who == "rows" else who)
    cut(sheet, x, y + 29, 38, 59, "01" if who == "rows" else who)


def ring(turns):
    """Draw the causal mask in the ring: `turns` are matrices [query][key] of numbers.

    A number is the rank whose keys arrive in that turn, None before and afterwards; -1
    where the mask leaves the score out.
    """
    sheet = Sheet(620, 262)
    size = len(turns[0])
    done = [[False] * size for _ in range(size)]
    for turn, rows in enumerate(turns):
        left = 68 + 138 * turn
        title = "own keys" if turn == 0 else f"from {turn} back"
        sheet.words(left + 62, 16, f"{turn}: {title}", size=12, bold=True)
        sheet.box(left - 3, 32, 16 * size + 5, 16 * size + 5, "none", "line", round_=4)
        for query, keys in enumerate(rows):
            for key, owner in enumerate(keys):
                place = left + 16 * key, 35 + 16 * query
                if owner is not None and owner >= 0:
                    sheet.box(*place, 15, 15, f"rank{owner}", round_=2)
                    done[query][key] = True
                elif owner is not None:
                    sheet.box(*place, 15, 15, "none", "soft", dash="2 2", round_=2)
                elif done[query][key]:
                    sheet.box(*place, 15, 15, f"rank{key // 2}", faint=0.25, round_=2)
    for rank in range(size // 2):
        sheet.words(32, 51 + 32 * rank, f"rank {rank}", f"rank{rank}", bold=True)
    sheet.words(
        66, 186, "rows: a rank's queries; columns: keys", "soft", "start", size=12
    )
    sheet.box(66, 204, 15, 15, "rank0", round_=2)
    sheet.box(83, 204, 15, 15, "rank3", round_=2)
    legend = "computed in this turn, in the color of the rank that the keys come from"
    sheet.words(106, 211, legend, size=12, anchor="start")
    sheet.box(66, 228, 15, 15, "rank0", faint=0.25, round_=2)
    sheet.words(88, 235, "in a turn before", size=12, anchor="start")
    sheet.box(226, 228, 15, 15, "none", "soft", dash="2 2", round_=2)
    sheet.words(248, 235, "computed for nothing: masked", size=12, anchor="start")
    return sheet


def experts(letters, choices):
    """Draw which letters go to which expert: lists of them for each of two ranks."""
    sheet = Sheet(620, 356)
    for rank in range(2):
        x = 12 + 304 * rank
        color = f"rank{rank}"
        for y, height, title in (12, 84, "letters of a text"), (216, 102, "experts"):
            sheet.box(x, y, 292, height, "panel", color, round_=6)
            where = y + 16 if y < 100 else y + height - 16
            sheet.words(
                x + 12, where, f"rank {rank}: {title}", color, 13, "start", True
            )
        for expert in range(2):
            number = 2 * rank + expert
            received = sum(choice.count(number) for choice in choices)
            left = x + 12 + 137 * expert
            sheet.box(left, 226, 130, 56, "page", color)
            sheet.words(left + 65, 244, f"expert {number}", bold=True)
            sheet.words(left + 65, 264, f"{received} letters", "soft", size=12)
    for rank in range(2):
        for place, letter in enumerate(letters[rank]):
            x = 12 + 304 * rank + 12 + 34 * place
            sheet.box(x, 46, 30, 30, f"rank{rank}")
            sheet.words(x + 15, 61, letter, "page", size=14, bold=True, mono=True)
            to = choices[rank][place]
            end = 12 + 304 * (to // 2) + 12 + 137 * (to % 2) + 30
            end += 35 * rank + 4.5 * place
            stays = to // 2 == rank
            sheet.arrow(
                (x + 15, 78), (end, 222), ink=f"rank{rank}", dash="" if stays else "5 3"
            )
    legend = "an arrow is one letter, on its way to the expert that its router chose; "
    sheet.words(310, 340, f"{legend}dashed: to the other rank", "soft", size=12)
    return sheet


def timed(orders):
    """Return [rank, start, kind, micro-batch] of all that is done, of lengths 1 and 2.

    `orders` has what each rank does, in order. A piece starts as soon as its rank is
    free and what it needs is there: the one before it forward, or after it backward.
    """
    ends = {}
    pieces = []
    waiting = [list(order) for order in orders]
    free = [0] * len(orders)
    while any(waiting):
        for rank, order in enumerate(waiting):
            if not order:
                continue
            kind, micro = order[0]
            neighbor = rank - 1 if kind == "forward" else rank + 1
            needed = (neighbor, kind, micro)
            if not 0 <= neighbor < len(orders):
                needed = None if kind == "forward" else (rank, "forward", micro)
            if needed and needed not in ends:
                continue
            order.pop(0)
            start = max(free[rank], ends[needed] if needed else 0)
            free[rank] = start + (1 if kind == "forward" else 2)
            ends[rank, kind, micro] = free[rank]
            pieces.append([rank, start, kind, micro])
    return pieces


def most_kept(order):
    """Return how many micro-batches a rank keeps at most, until they come back."""
    kept = most = 0
    for kind, _ in order:
        kept += 1 if kind == "forward" else -1
        most = max(most, kept)
    return most


def pipeline(found):
    """Draw when each rank works: {schedule: [order of each rank]}."""
    sheet = Sheet(620, 372)
    unit = 13.5
    for number, (name, orders) in enumerate(found.items()):
        y = 16 + 166 * number
        sheet.words(12, y, name, anchor="start", bold=True)
        sheet.words(608, y, "keeps at most", "soft", "end", size=12)
        for rank, start, kind, micro in timed(orders):
            color = COLORS[WORK[kind]]
            place = 62 + unit * start, y + 18 + 30 * rank
            width = unit * (1 if kind == "forward" else 2) - 1
            sheet.box(*place, width, 26, color, round_=2)
            ink = "page" if kind == "forward" else "ink"
            middle = place[0] + width / 2, place[1] + 13
            sheet.words(*middle, micro + 1, ink, size=12, bold=True)
        for rank, order in enumerate(orders):
            height = y + 31 + 30 * rank
            sheet.words(34, height, f"rank {rank}", f"rank{rank}", size=12, bold=True)
            sheet.words(590, height, most_kept(order), size=14, anchor="end", bold=True)
    sheet.box(62, 348, 14, 14, "right")
    sheet.words(84, 355, "forward", size=12, anchor="start")
    sheet.box(150, 348, 14, 14, "ghost")
    sheet.words(172, 355, "backward, twice as long", size=12, anchor="start")
    sheet.words(
        330, 355, "number: micro-batch; empty: the bubble", "soft", "start", size=12
    )
    return sheet


def bars(sheet, x, y, values, fill, edge="none"):
    """Draw ten numbers as bars around a line at y, 27 pixels apart."""
    largest = max(abs(one) for one in values)
    for place, value in enumerate(values):
        height = abs(value) / largest * 24
        top = y - height if value > 0 else y
        dash = "" if edge == "none" else "3 2"
        sheet.box(x + 27 * place, top, 20, height, fill, edge, dash=dash, round_=1)
    sheet.box(x - 4, y - 0.5, 270, 1, "soft", round_=0)


def step(found):
    """Draw the first step of two ranks: deal, backward, average, step."""
    sheet = Sheet(620, 560)
    titles = "deal", "backward", "average", "step"
    says = [
        "The sampler deals the 64 images of a step, one to each rank in turn.",
        "Each rank's 32 images give it gradients of its own.",
        "DDP replaces both by their mean, in the middle of backward().",
        "Equal weights minus equal gradients: the ranks stay equal, bit for bit.",
    ]
    for number, (title, text) in enumerate(zip(titles, says, strict=True)):
        y = (18, 168, 300, 440)[number]
        sheet.label(12, y - 10, 22, 22, str(number + 1), "line", "none")
        sheet.words(44, y, title, anchor="start", bold=True)
        sheet.words(124, y, text, "soft", "start")
    for place, label in enumerate(found["labels"]):
        x, y = 14 + 18.5 * (place % 32), 40 + 21 * (place // 32)
        sheet.box(x, y, 17, 19, f"rank{place % 2}", round_=2)
        sheet.words(x + 8.5, y + 10, label, "page", size=12, mono=True)
    for rank, gradients in enumerate(found["gradients"]):
        color = f"rank{rank}"
        x = 12 + 304 * rank
        for y in 94, 184, 456:
            sheet.box(x, y, 292, 56 if y == 94 else 84, "panel", color, round_=6)
        for place, label in enumerate(found["labels"][rank::2]):
            where = x + 10 + 17 * (place % 16), 98 + 24 * (place // 16)
            sheet.box(*where, 16, 20, color, round_=2)
            middle = where[0] + 8, where[1] + 11
            sheet.words(*middle, label, "page", size=12, mono=True)
        sheet.words(x + 12, 198, f"rank {rank}", color, "start", True, 12)
        loss = f"loss {found['losses'][rank]:.4f}"
        sheet.words(x + 280, 198, loss, "soft", "end", size=12)
        bars(sheet, x + 14, 234, gradients, color)
        side, middle = (585, 460) if rank else (112, 160)  # past the words
        sheet.arrow((side, 270), (side, 358), (middle, 358), ink="message")
        sheet.arrow((middle, 386), (side, 386), (side, 453), ink="message")
        bars(sheet, x + 14, 506, found["biases"], color)
        sheet.words(x + 12, 470, f"rank {rank}", color, "start", True, 12)
    sheet.box(164, 324, 292, 84, "panel", "ink", round_=6)
    sheet.words(176, 338, "the mean", anchor="start", bold=True, size=12)
    first, second = found["gradients"]
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    bars(sheet, 178, 372, mean, "ink")
    sheet.words(310, 550, "bars: the ten biases of the last layer", "soft", size=12)
    return sheet
