"""How long training takes on many GPUs, by a simple model: `make predict NODES=4`.

What comes from make: NODES, GPUS_PER_NODE, and STEP (seconds), BATCH and MB of one
GPU's step; NETWORK in Gbit/s between the nodes, INSIDE in GB/s between the GPUs of a
node; IMAGES and EPOCHS of the training; OVERLAP, the share of the exchange that the
backward pass hides.

A step takes its computing, and what is not hidden of the all-reduce of its gradients. A
ring of N takes 2 (N-1)/N · bytes / bandwidth + 2 (N-1) · latency: Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009
(https://doi.org/10.1016/j.jpdc.2008.09.002). `fit` holds it against the benchmark of
one machine; the extrapolation to many is a formula, checked by nothing but itself.
"""

import os
from statistics import median

import numpy as np

from tools.bench.results import by_case
from tools.run.stages import refuse

LATENCY = 20e-6  # seconds a message between nodes takes
INSIDE_LATENCY = 5e-6
BACKWARD = 2 / 3  # of a step's computing: the backward pass, where DDP can overlap
DEFAULTS = {
    "NODES": 4, "GPUS_PER_NODE": 8, "STEP": 7.2, "BATCH": 128, "MB": 102,
    "NETWORK": 10, "INSIDE": 300, "IMAGES": 1_280_000, "EPOCHS": 100, "OVERLAP": 0,
}  # fmt: skip
INTEGERS = "NODES", "GPUS_PER_NODE", "BATCH", "IMAGES", "EPOCHS"


def ring(size, number, bandwidth, latency):
    """Return the seconds of an all-reduce of `size` bytes over a ring of `number`.

    `bandwidth` in bytes a second, `latency` in seconds a message.
    """
    return 2 * (number - 1) / number * size / bandwidth + 2 * (number - 1) * latency


def step(seconds, size, nodes, gpus, network, inside, overlap=0.0):
    """Return the seconds of a step: computing, and the exchange that is not hidden.

    The exchange of `size` bytes is a ring over the `gpus` of each node, then one over
    the nodes; `network` and `inside` in bytes a second.
    """
    exchange = ring(size, gpus, inside, INSIDE_LATENCY)
    exchange += ring(size, nodes, network, LATENCY)
    return seconds + exchange - min(overlap * exchange, BACKWARD * seconds)


def hours(images, batch, epochs, seconds):
    """Return the hours of a training with `batch` images a step over all GPUs."""
    return -(-images // batch) * epochs * seconds / 3600


def hours_on_one_gpu(given):
    """Return the hours of the training that `given` describes, on one GPU."""
    return hours(given["IMAGES"], given["BATCH"], given["EPOCHS"], given["STEP"])


def trainings(given):
    """Return that training on all GPUs, by weak and by strong scaling.

    `given` has the keys of DEFAULTS. Each of the two is a dict: scaling, batch (of all
    GPUs), step (seconds) and hours.
    """
    gpus, found = given["NODES"] * given["GPUS_PER_NODE"], []
    for scaling, batch, seconds in [
        ("weak", given["BATCH"] * gpus, given["STEP"]),
        ("strong", given["BATCH"], given["STEP"] / gpus),
    ]:
        took = step(seconds, given["MB"] * 1e6, given["NODES"], given["GPUS_PER_NODE"],
                    given["NETWORK"] * 1e9 / 8, given["INSIDE"] * 1e9,
                    given["OVERLAP"])  # fmt: skip
        total = hours(given["IMAGES"], batch, given["EPOCHS"], took)
        found.append({"scaling": scaling, "batch": batch, "step": took, "hours": total})
    return found


def read(settings):
    """Return make's variables as numbers; refuses what is none, or not positive."""
    found = {}
    for name, default in DEFAULTS.items():
        text, example = settings.get(name) or str(default), f"such as {name}={default}"
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not np.isfinite(number):
            refuse(f"{name}={text!r} must be a number, {example}")
        if number < 0 or (number == 0 and name != "OVERLAP"):
            refuse(f"{name}={text} must be more than 0, {example}")
        if name in INTEGERS and number != int(number):
            refuse(f"{name}={text} must be a whole number, {example}")
        found[name] = int(number) if name in INTEGERS else number
    if found["OVERLAP"] > 1:
        refuse(f"OVERLAP={found['OVERLAP']:g} is a share, from 0 to 1")
    return found


def report(given):
    """Return what becomes of a training on all GPUs, as text."""
    g, gpus = given, given["NODES"] * given["GPUS_PER_NODE"]
    alone = hours_on_one_gpu(g)
    text = (
        f"one GPU: {g['BATCH']} images a step, {g['STEP']:g} s, {g['MB']:g} MB of "
        f"gradients; {g['EPOCHS']} epochs of {g['IMAGES']:,} images take "
        f"{alone:,.1f} hours\n"
        f"{g['NODES']} nodes of {g['GPUS_PER_NODE']} GPUs, {g['NETWORK']:g} Gbit/s "
        f"between them, {g['INSIDE']:g} GB/s inside; {g['OVERLAP']:.0%} of the "
        "exchange is hidden\n\n"
        f"{'':30}{'step, s':>10}{'hours':>10}{'ideal':>10}{'efficiency':>12}\n"
    )
    for one in trainings(g):
        ideal, name = alone / gpus, f"{one['scaling']}: batch of {one['batch']} in all"
        text += f"{name:30}{one['step']:>10.4f}{one['hours']:>10.1f}{ideal:>10.1f}"
        text += f"{ideal / one['hours']:>12.0%}\n"
    return text + (
        f"\nWeak scaling makes steps of {g['BATCH'] * gpus} images: the learning rate "
        f"has to grow with it, up to {gpus} times, after a warm-up.\n"
        "Strong scaling keeps the batch, and with it the learning rate; each GPU gets "
        f"{g['BATCH'] / gpus:g} images a step."
    )


def solve(rows, values):
    """Return non-negative coefficients that fit rows · x = values, by relative error.

    Least squares, again and again without the most negative coefficient: close to
    scipy.optimize.nnls, for which scipy would be a large package.
    """
    rows, values = np.array(rows, float), np.array(values, float)
    keep = list(range(rows.shape[1]))
    while True:
        scaled = rows[:, keep] / values[:, None]
        found, *_ = np.linalg.lstsq(scaled, np.ones(len(values)), rcond=None)
        if (found >= 0).all() or len(keep) == 1:
            result = np.zeros(rows.shape[1])
            result[keep] = np.maximum(found, 0)
            return result
        keep.pop(int(found.argmin()))


def gradient_bytes(hidden):
    """Return the bytes of the gradients of the tutorial's network, in float32."""
    return 4 * (784 * hidden + hidden + 10 * hidden + 10)


def work(hidden, batch):
    """Return what computing grows with: 1, weights, multiplications, pixels."""
    return [1, 794 * hidden, 794 * hidden * batch, 784 * batch]


def fit(result):
    """Fit the model to every second case of a benchmark and predict the others.

    Returns (parameters, rows); a row is (hidden, batch, fitted or not, measured,
    predicted), in seconds a step on the most processes measured: at least two.
    """
    groups = by_case(result)
    processes = max(max(group) for group in groups.values())
    fitted = list(groups)[::2]

    def measured(case, name, number=processes):
        return median(groups[case][number][name])

    computing = solve(
        [work(*case) for case in fitted], [measured(case, "step", 1) for case in fitted]
    )

    def alone(hidden, batch):
        return float(np.dot(work(hidden, batch / processes), computing))

    slower = median(measured(case, "slowest") / alone(*case) for case in fitted)
    seconds_a_byte, latency = solve(
        [[ring(gradient_bytes(hidden), processes, 1, 0), ring(0, processes, 1, 1)]
         for hidden, _ in fitted],
        [measured(case, "step") - measured(case, "slowest") for case in fitted],
    )  # fmt: skip
    bandwidth = 1 / seconds_a_byte if seconds_a_byte else float("inf")
    rows = []
    for case in groups:
        exchange = ring(gradient_bytes(case[0]), processes, bandwidth, latency)
        predicted = slower * alone(*case) + exchange
        rows.append((*case, case in fitted, measured(case, "step"), predicted))
    return {"slower": slower, "bandwidth": bandwidth, "latency": latency}, rows


if __name__ == "__main__":
    print(report(read(os.environ)))
