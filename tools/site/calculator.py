"""SCALING's calculator, which uses the page's formulas."""

import itertools
import json

from markupsafe import Markup

from tools.bench import scaling
from tools.bench.scaling import MEMORY, SEVEN, Cluster, Model
from tools.pages.markup import TEMPLATES

MODELS = {
    "1.3 billion": Model(blocks=24, width=2048, vocabulary=32_000, length=4096),
    "6.7 billion": SEVEN,
    "65 billion": Model(blocks=80, width=8192, vocabulary=32_000, length=4096),
}
CONTROLS = [  # name, label, choices, default
    ("model", "Parameters", MODELS, "6.7 billion"),
    ("sequences", "Sequences per step", [16, 64, 256, 1024], 64),
    ("machines", "Machines of eight H200s", [1, 2, 4, 8], 2),
    ("cards", "Network cards of each", [1, 8], 1),
]


def plan(model, sequences, machines, cards):
    """Return the results of a choice: for each cut, and for the activations.

    A cut's are the bytes of its state, and the seconds of a step at best and at worst.
    The activations' are bytes on a GPU: all of them, and with checkpointing.
    """
    cluster = Cluster(machines, cards)
    tokens = sequences * model.length
    own = tokens / cluster.ranks
    kept = [scaling.saved(model, own), scaling.saved(model, own, checkpointing=True)]
    cuts = {}
    for cut in scaling.thresholds(model, cluster):
        computing, *band = scaling.step(model, cut, cluster, tokens)
        if sequences >= scaling.fewest(cut, cluster):
            cuts[cut] = [scaling.state(model, cut, cluster.ranks), *band]
    return {"computing": computing, "kept": kept, "cuts": cuts}


def plans():
    """Return {"choice | choice | ...", one per control in order: its plan}."""
    found = {}
    for name, *numbers in itertools.product(*(row[2] for row in CONTROLS)):
        key = " | ".join(map(str, [name, *numbers]))
        found[key] = plan(MODELS[name], *numbers)
    return found


def calculator(source):
    """Return the calculator as HTML; `source` is the scripts' folder."""
    rounded = json.loads(
        json.dumps(plans()), parse_float=lambda text: float(f"{float(text):.4g}")
    )
    data = Markup(json.dumps({"memory": MEMORY, "plans": rounded}))
    values = {"controls": CONTROLS, "data": data, "gigabytes": round(MEMORY / 1e9)}
    return TEMPLATES.get_template("calculator.html").render(source=source, **values)
