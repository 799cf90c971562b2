"""How long training takes on many GPUs, by formula: `make predict NODES=4 STEP=0.1`.

From make come NODES and GPUS_PER_NODE; STEP, the seconds of a step on one GPU; MB, its
gradients; and NETWORK, Gbit/s between nodes. The defaults describe ResNet-50 in float32
on ImageNet. SCALING.md says where the formula comes from; nothing here is measured.
"""

import math
import os

from tools.bench.tables import aligned
from tools.run.stages import refuse

IMAGES = 1_280_000  # of ImageNet
BATCH = 128  # images per step and GPU
EPOCHS = 100
INSIDE = 300e9  # bytes per second between the GPUs of a node
INSIDE_LATENCY = 5e-6  # seconds per message
LATENCY = 20e-6  # the same between nodes
DEFAULTS = {"NODES": 4, "GPUS_PER_NODE": 8, "STEP": 0.1, "MB": 102.0, "NETWORK": 10.0}


def ring(size, number, bandwidth, latency):
    """Return the seconds of an all-reduce of `size` bytes among `number` devices.

    `bandwidth` in bytes per second, `latency` in seconds per message.
    """
    transfer = 2 * (number - 1) / number * size / bandwidth
    return transfer + 2 * (number - 1) * latency


def step(given, nodes, gpus_per_node):
    """Return the seconds of a step of DDP that hides nothing of the exchange."""
    size = given["MB"] * 1e6
    network = given["NETWORK"] * 1e9 / 8
    inside = ring(size, gpus_per_node, INSIDE, INSIDE_LATENCY)
    between = ring(size, nodes, network, LATENCY)
    return given["STEP"] + inside + between


def doubled(most):
    """Return 1, 2, 4 and so on below `most`, then `most`."""
    return [*(2**n for n in range((most - 1).bit_length())), most]


def assumptions(given=DEFAULTS):
    """Return in a sentence what a prediction assumes."""
    return (
        f"{IMAGES:,} images, {BATCH} per GPU and step; {given['STEP']:g} s per step on "
        f"one GPU, {given['MB']:g} MB of gradients; {INSIDE / 1e9:g} GB/s inside a "
        f"node, {given['NETWORK']:g} Gbit/s between nodes."
    )


def prediction(given=DEFAULTS):
    """Return the rows of a table of the training on 1 GPU up to all, headings first."""
    shapes = [(1, number) for number in doubled(given["GPUS_PER_NODE"])]
    for nodes in doubled(given["NODES"])[1:]:
        shapes.append((nodes, given["GPUS_PER_NODE"]))
    rows = [["nodes", "GPUs", "an epoch, hours", f"{EPOCHS} epochs, hours"]]
    rows[0] += ["with the exchange, hours", "efficiency"]
    for nodes, gpus_per_node in shapes:
        gpus = nodes * gpus_per_node
        steps = IMAGES / (BATCH * gpus)
        epoch = steps * given["STEP"] / 3600
        predicted = EPOCHS * steps * step(given, nodes, gpus_per_node) / 3600
        times = [f"{time:,.4g}" for time in (epoch, EPOCHS * epoch, predicted)]
        rows.append([nodes, gpus, *times, f"{EPOCHS * epoch / predicted:.0%}"])
    return rows


def read(name):
    """Return make's variable as a number of its default's type.

    Refuses what is no number above 0.
    """
    default = DEFAULTS[name]
    text = os.environ.get(name) or f"{default:g}"
    try:
        number = type(default)(text)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        what = "a whole number" if isinstance(default, int) else "a number"
        refuse(f"{name}={text} must be {what} above 0, such as {name}={default:g}")
    return number


if __name__ == "__main__":
    given = {name: read(name) for name in DEFAULTS}
    print(f"{assumptions(given)}\n\n{aligned(prediction(given))}")
