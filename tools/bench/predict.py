"""How long training takes on many GPUs, by a simple model: `python -m tools.bench.predict`.

What comes from make: NODES, GPUS_PER_NODE, and STEP (seconds), BATCH and MB of one GPU's step;
NETWORK in Gbit/s between the nodes, INSIDE in GB/s between the GPUs of a node; IMAGES and
EPOCHS of the training; OVERLAP, the share of the exchange that the backward pass hides.

A step takes its computing, and what is not hidden of the all-reduce of its gradients. A
ring of N takes 2 (N-1)/N · bytes / bandwidth + 2 (N-1) · latency: Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009
(https://doi.org/10.1016/j.jpdc.2008.09.002). `fit` holds it against the benchmark of one
machine; the extrapolation to many is a formula, checked by nothing but itself.
"""

import os
import statistics

import numpy as np

from tools.run.stages import refuse

LATENCY = 20e-6  # seconds a message between nodes takes, where nothing else is given
INSIDE_LATENCY = 5e-6
BACKWARD = 2 / 3  # of a step's computing: the backward pass, where DDP can overlap
DEFAULTS = {
    "NODES": 4, "GPUS_PER_NODE": 8, "STEP": 7.2, "BATCH": 128, "MB": 102,
    "NETWORK": 10, "INSIDE": 300, "IMAGES": 1_280_000, "EPOCHS": 100, "OVERLAP": 0,
}  # fmt: skip


def ring(size, number, bandwidth, latency):
    """Return the seconds of an all-reduce of `size` bytes over a ring of `number`.

    `bandwidth` in bytes a second, `latency` in seconds a message.
    """
    return 2 * (number - 1) / number * size / bandwidth + 2 * (number - 1) * latency


def exchange(size, nodes, gpus, network, inside):
    """Return the seconds of an all-reduce over nodes of `gpus` GPUs each.

    A ring inside each node, then one between the nodes; `network` and `inside` in bytes a
    second.
    """
    within = ring(size, gpus, inside, INSIDE_LATENCY)
    return within + ring(size, nodes, network, LATENCY)


def step(seconds, size, nodes, gpus, network, inside, overlap=0.0):
    """Return the seconds of a step: computing, and the exchange that is not hidden."""
    talk = exchange(size, nodes, gpus, network, inside)
    hidden = min(overlap * talk, BACKWARD * seconds)
    return seconds + talk - hidden


def hours(images, batch, epochs, seconds):
    """Return the hours of a training with `batch` images a step over all GPUs."""
    return -(-images // batch) * epochs * seconds / 3600


def read(settings):
    """Return the numbers of make's variables; refuses what is none, or not positive."""
    found = {}
    for name, default in DEFAULTS.items():
        text = settings.get(name) or str(default)
        try:
            found[name] = float(text)
        except ValueError:
            refuse(f"{name}={text!r} must be a number, such as {name}={default}")
        whole = name in ("NODES", "GPUS_PER_NODE", "BATCH", "IMAGES", "EPOCHS")
        if found[name] < 0 or (found[name] == 0 and name != "OVERLAP"):
            refuse(f"{name}={text} must be more than 0, such as {name}={default}")
        if whole and found[name] != int(found[name]):
            refuse(f"{name}={text} must be a whole number, such as {name}={default}")
        if whole:
            found[name] = int(found[name])
    if found["OVERLAP"] > 1:
        refuse(f"OVERLAP={found['OVERLAP']:g} is a share, from 0 to 1")
    return found


def extrapolate(given):
    """Return the lines that say what becomes of a training, from `read`'s numbers."""
    g, total = given, given["NODES"] * given["GPUS_PER_NODE"]
    network, inside = g["NETWORK"] * 1e9 / 8, g["INSIDE"] * 1e9
    size = g["MB"] * 1e6
    alone = hours(g["IMAGES"], g["BATCH"], g["EPOCHS"], g["STEP"])
    lines = [
        (
            f"one GPU: {g['BATCH']} images a step, {g['STEP']:g} s, {g['MB']:g} MB of "
            f"gradients; {g['EPOCHS']} epochs of {g['IMAGES']:,} images take {alone:,.1f} hours"
        ),
        (
            f"{g['NODES']} nodes of {g['GPUS_PER_NODE']} GPUs, {g['NETWORK']:g} Gbit/s between "
            f"them, {g['INSIDE']:g} GB/s inside; {g['OVERLAP']:.0%} of the exchange is hidden"
        ),
        "",
        f"{'':30}{'step, s':>10}{'hours':>10}{'ideal':>10}{'efficiency':>12}",
    ]
    more = g["NODES"], g["GPUS_PER_NODE"], network, inside, g["OVERLAP"]
    weak = step(g["STEP"], size, *more)
    strong = step(g["STEP"] / total, size, *more)
    for name, batch, seconds in [
        (f"weak: batch of {g['BATCH'] * total} in all", g["BATCH"] * total, weak),
        (f"strong: batch of {g['BATCH']} in all", g["BATCH"], strong),
    ]:
        took = hours(g["IMAGES"], batch, g["EPOCHS"], seconds)
        lines.append(f"{name:30}{seconds:>10.4f}{took:>10.1f}{alone / total:>10.1f}"
                     f"{alone / total / took:>12.0%}")  # fmt: skip
    lines += [
        "",
        (
            f"Weak scaling makes steps of {g['BATCH'] * total} images: the learning rate has to "
            f"grow with it, up to {total} times, after a warm-up."
        ),
        (
            "Strong scaling keeps the batch, and with it the learning rate; each GPU gets "
            f"{g['BATCH'] / total:g} images a step."
        ),
    ]
    return lines


def cases(result):
    """Return (hidden, batch, bytes, one, two, reduce, slowest) medians of a benchmark.

    `two` are the most processes that it measured.
    """
    found = {}
    for case in result["scaling"]:
        group = found.setdefault((case["hidden"], case["batch"]), {})
        group[case["processes"]] = {
            name: statistics.median(samples)
            for name, samples in case["samples"].items()
        }
    return [
        {
            "hidden": hidden, "batch": batch, "processes": max(group),
            "bytes": 4 * (784 * hidden + hidden + 10 * hidden + 10),
            "one": group[1]["step"], "many": group[max(group)],
        }
        for (hidden, batch), group in found.items() if max(group) > 1
    ]  # fmt: skip


def solve(rows, values):
    """Return non-negative coefficients that fit rows · x = values, by relative error."""
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


def work(hidden, batch):
    """Return what a step's computing is made of: 1, weights to update, multiplications."""
    return [1, 794 * hidden, 794 * hidden * batch, 784 * batch]


def fit(result):
    """Fit the model to every second case of a benchmark and predict the others.

    Returns (parameters, rows); a row is (hidden, batch, fitted or not, measured, predicted)
    in seconds a step on the most processes measured.
    """
    found = cases(result)
    number = found[0]["processes"]
    known, unknown = found[0::2], found[1::2]
    computing = solve(
        [work(c["hidden"], c["batch"]) for c in known], [c["one"] for c in known]
    )
    share = [
        (c, np.dot(work(c["hidden"], c["batch"] / number), computing)) for c in known
    ]
    slower = statistics.median(c["many"]["slowest"] / alone for c, alone in share)
    talking = solve(
        [[2 * (number - 1) / number * c["bytes"], 2 * (number - 1)] for c in known],
        [c["many"]["step"] - c["many"]["slowest"] for c in known],
    )
    parameters = {
        "processes": number, "slower": slower, "computing": computing.tolist(),
        "bandwidth": 1 / talking[0] if talking[0] else float("inf"),
        "latency": talking[1],
    }  # fmt: skip
    rows = []
    for case in found:
        alone = np.dot(work(case["hidden"], case["batch"] / number), computing)
        predicted = slower * alone
        predicted += ring(case["bytes"], number, parameters["bandwidth"], talking[1])
        rows.append((case["hidden"], case["batch"], case in known,
                     case["many"]["step"], float(predicted)))  # fmt: skip
    assert len(rows) == len(known) + len(unknown)
    return parameters, rows


if __name__ == "__main__":
    print("\n".join(extrapolate(read(os.environ))))
