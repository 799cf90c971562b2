"""How long training takes on many GPUs, by formula: `python -m tools.bench.predict`.

The numbers describe ResNet-50 in float32 on ImageNet, on up to four machines: put in
those of your own cluster. SCALING.md says where the formula comes from; nothing here
is measured.
"""

from tools.bench.tables import aligned

IMAGES = 1_280_000  # of ImageNet
BATCH = 128  # images per step and GPU
EPOCHS = 100
STEP = 0.1  # seconds of a step on one GPU
BACKWARD = 2 / 3  # of them are the backward pass, which takes two forward passes
GRADIENTS = 102e6  # bytes
INSIDE = 300e9  # bytes per second between the GPUs of a node
INSIDE_LATENCY = 5e-6  # seconds per message
NETWORK = 10e9  # bits per second between nodes
LATENCY = 20e-6  # seconds per message between nodes
CLUSTERS = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)]  # nodes, and GPUs of each
HEADINGS = ["nodes", "GPUs", f"{EPOCHS} epochs, hours"]
HEADINGS += ["if nothing overlaps", "efficiency", "if all can overlap", "efficiency"]


def ring(size, number, bandwidth, latency):
    """Return the seconds of an all-reduce of `size` bytes among `number` devices.

    `bandwidth` in bytes per second, `latency` in seconds per message.
    """
    transfer = 2 * (number - 1) / number * size / bandwidth
    return transfer + 2 * (number - 1) * latency


def steps(nodes, gpus_per_node):
    """Return the seconds of a step of DDP: computing, exchanging, at worst and at best.

    At worst nothing of the exchange overlaps with the backward pass, at best all that
    the backward pass has time for.
    """
    inside = ring(GRADIENTS, gpus_per_node, INSIDE, INSIDE_LATENCY)
    between = ring(GRADIENTS, nodes, NETWORK / 8, LATENCY)
    exchange = inside + between
    return STEP, STEP + exchange, STEP + max(exchange - BACKWARD * STEP, 0)


def assumptions():
    """Return in a sentence what a prediction assumes."""
    return (
        f"{IMAGES:,} images, {BATCH} per GPU and step; {STEP:g} s per step on one GPU, "
        f"{BACKWARD * STEP * 1000:.0f} ms of which are the backward pass; "
        f"{GRADIENTS / 1e6:g} MB of gradients; {INSIDE / 1e9:g} GB/s inside a node, "
        f"{NETWORK / 1e9:g} Gbit/s between nodes."
    )


def prediction():
    """Return the rows of a table of the training on each cluster, headings first."""
    rows = [HEADINGS]
    for nodes, gpus_per_node in CLUSTERS:
        gpus = nodes * gpus_per_node
        count = EPOCHS * IMAGES / (BATCH * gpus)
        hours = [count * seconds / 3600 for seconds in steps(nodes, gpus_per_node)]
        row = [nodes, gpus, f"{hours[0]:,.4g}"]
        for time in hours[1:]:
            row += [f"{time:,.4g}", f"{hours[0] / time:.0%}"]
        rows.append(row)
    return rows


if __name__ == "__main__":
    print(f"{assumptions()}\n\n{aligned(prediction())}")
