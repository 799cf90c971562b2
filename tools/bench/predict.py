"""How long training takes on many GPUs, by a simple model: `make predict NODES=4`.

What comes from make: NODES, GPUS_PER_NODE, and STEP (seconds), BATCH and MB of one
GPU's step; NETWORK in Gbit/s between the nodes, INSIDE in GB/s between the GPUs of a
node; IMAGES and EPOCHS of the training; OVERLAP, the share of the exchange that the
backward pass hides. MODE is what all GPUs together do: ddp, fsdp, tp or pp, with BLOCKS
of the model, ACTIVATIONS in MB between two of them for BATCH images, and MICRO-batches
of a pipeline. These are by default those of ResNet-50 in float32, the mean of its blocks
(https://arxiv.org/abs/1512.03385).

A step takes its computing, and what is not hidden of the all-reduce of its gradients. A
ring of N takes 2 (N-1)/N · bytes / bandwidth + 2 (N-1) · latency: Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009
(https://doi.org/10.1016/j.jpdc.2008.09.002). `fit` holds it against the benchmark of
one machine; the extrapolation to many is a formula, checked by nothing but itself.
"""

import math
import os
from statistics import median

import numpy as np

from tools.bench.tables import by_case, published, table
from tools.run.stages import refuse

LATENCY = 20e-6  # seconds a message between nodes takes
INSIDE_LATENCY = 5e-6
BACKWARD = 2 / 3  # of a step's computing: the backward pass, where DDP can overlap
DEFAULTS = {
    "NODES": 4, "GPUS_PER_NODE": 8, "STEP": 7.2, "BATCH": 128, "MB": 102,
    "NETWORK": 10, "INSIDE": 300, "IMAGES": 1_280_000, "EPOCHS": 100, "OVERLAP": 0,
    "MODE": "ddp", "BLOCKS": 16, "ACTIVATIONS": 177, "MICRO": 32,
}  # fmt: skip
INTEGERS = "NODES", "GPUS_PER_NODE", "BATCH", "IMAGES", "EPOCHS", "BLOCKS", "MICRO"
MODES = {  # what all GPUs together do, and what `kept` and `moved` compute
    "ddp": ("data parallel", "16 *N*", "2 (*W* − 1)/*W* · 4 *N*"),
    "fsdp": ("fully sharded", "16 *N*/*W*", "3 (*W* − 1)/*W* · 4 *N*"),
    "tp": ("tensor parallel", "16 *N*/*W*", "4 *L* · 2 (*W* − 1)/*W* · *A*"),
    "pp": ("pipeline", "16 *N*/*W*", "2 *A*"),
}


def ring(size, number, bandwidth, latency):
    """Return the seconds of an all-reduce of `size` bytes over a ring of `number`.

    `bandwidth` in bytes a second, `latency` in seconds a message.
    """
    return 2 * (number - 1) / number * size / bandwidth + 2 * (number - 1) * latency


def kept(mode, gpus, size):
    """Return the bytes of weights, gradients and Adam's two moments that a GPU keeps.

    `size` is that of the gradients; where they are cut, evenly. Activations come on top.
    """
    return 4 * size / (1 if mode == "ddp" else gpus)


def moved(mode, gpus, size, activations=0.0, blocks=0):
    """Return the bytes that a GPU sends in a step, over a ring of all.

    `size` is that of the gradients, `activations` that between two blocks, for the
    images that the GPU works on in a step. FSDP gathers the weights for the forward and
    for the backward pass and scatters the sums of gradients (ZeRO); tensor parallelism
    adds up activations twice a block, and their gradients twice (Megatron-LM).
    """
    share = (gpus - 1) / gpus
    return {
        "ddp": 2 * share * size,
        "fsdp": 3 * share * size,
        "tp": 4 * blocks * 2 * share * activations,
        "pp": 2 * activations * (gpus > 1),  # one way; their gradients the other way
    }[mode]


def bubble(gpus, micro):
    """Return the share of a step that a GPU of a pipeline is idle (GPipe)."""
    return (gpus - 1) / (micro + gpus - 1)


def exchange(given, scale):
    """Return the seconds of a step's messages, of `scale` times BATCH images in all.

    Each of the rings is one over the GPUs of a node, then one over the nodes.
    """
    g, mode = given, given["MODE"]
    activations = scale * g["ACTIVATIONS"] * 1e6
    network, inside = g["NETWORK"] * 1e9 / 8, g["INSIDE"] * 1e9
    if mode == "pp":
        speed, wait = inside, INSIDE_LATENCY
        if g["NODES"] > 1:
            speed, wait = network, LATENCY  # of the slowest border
        alone = g["NODES"] * g["GPUS_PER_NODE"] == 1
        return 0 if alone else 2 * (activations / speed + g["MICRO"] * wait)
    size = activations if mode == "tp" else g["MB"] * 1e6
    parts = g["BLOCKS"] if mode == "fsdp" else 1  # messages of their own
    times = {"ddp": 1, "fsdp": 1.5, "tp": 4 * g["BLOCKS"]}[mode]  # all-reduces
    return times * (ring(size, g["GPUS_PER_NODE"], inside, parts * INSIDE_LATENCY)
                    + ring(size, g["NODES"], network, parts * LATENCY))  # fmt: skip


def step(given, batch):
    """Return the seconds of a step of `batch` images on all GPUs of `given`.

    That is computing, the exchange that is not hidden, and waiting in a pipeline.
    """
    gpus, scale = given["NODES"] * given["GPUS_PER_NODE"], batch / given["BATCH"]
    seconds, moving = given["STEP"] * scale / gpus, exchange(given, scale)
    took = seconds + moving - min(given["OVERLAP"] * moving, BACKWARD * seconds)
    waits = bubble(gpus, given["MICRO"]) if given["MODE"] == "pp" else 0
    return took / (1 - waits)


def hours(given, batch, seconds):
    """Return the hours of the training in `given`, by steps of `batch` images in all."""
    return -(-given["IMAGES"] // batch) * given["EPOCHS"] * seconds / 3600


def hours_on_one_gpu(given):
    """Return the hours of the training in `given`, on one GPU."""
    return hours(given, given["BATCH"], given["STEP"])


def trainings(given):
    """Return that training on all GPUs, by weak and by strong scaling.

    `given` has the keys of DEFAULTS. Each of the two is (name, batch of all GPUs,
    seconds a step, hours).
    """
    gpus, batch = given["NODES"] * given["GPUS_PER_NODE"], given["BATCH"]
    found = []
    for scaling, total in ("weak", batch * gpus), ("strong", batch):
        took = step(given, total)
        found.append((scaling, total, took, hours(given, total, took)))
    return found


def read(settings):
    """Return make's variables as numbers; refuses what is none, or out of range."""
    found = {}
    for name, default in DEFAULTS.items():
        text, whole = settings.get(name) or str(default), name in INTEGERS
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if name == "MODE":
            kind, good = f"one of {', '.join(MODES)}", text in MODES
        elif name == "OVERLAP":
            kind, good = "a share, from 0 to 1", 0 <= number <= 1
        else:
            kind = f"a {'whole ' * whole}number above 0"
            good = 0 < number < math.inf and (number.is_integer() or not whole)
        if not good:
            refuse(f"{name}={text} must be {kind}, such as {name}={default}")
        found[name] = text if name == "MODE" else int(number) if whole else number
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
        "exchange is hidden\n"
        f"{MODES[g['MODE']][0]}: {kept(g['MODE'], gpus, g['MB']):,.0f} MB of weights, "
        "gradients and Adam's state on each GPU\n\n"
        f"{'':30}{'sent, MB':>12}{'step, s':>10}{'hours':>10}{'ideal':>10}"
        f"{'efficiency':>12}\n"
    )
    for scaling, batch, took, total in trainings(g):
        ideal, name = alone / gpus, f"{scaling}: batch of {batch} in all"
        sent = moved(g["MODE"], gpus, g["MB"],
                     g["ACTIVATIONS"] * batch / g["BATCH"], g["BLOCKS"])  # fmt: skip
        text += f"{name:30}{sent:>12,.0f}{took:>10.4f}{total:>10.1f}{ideal:>10.1f}"
        text += f"{ideal / total:>12.0%}\n"
    if g["MODE"] == "pp":
        waits = f"{bubble(gpus, g['MICRO']):.0%} of the time a GPU waits for others"
        text += f"\n{g['MICRO']} micro-batches: {waits}.\n"
    images = f"gets {g['BATCH'] / gpus:g} images a step"
    if g["MODE"] in ("tp", "pp"):
        images = f"has all images, and 1/{gpus} of the model to compute"
    return text + (
        f"\nWeak scaling makes steps of {g['BATCH'] * gpus} images: the learning rate "
        f"has to grow with it, up to {gpus} times, after a warm-up.\n"
        "Strong scaling keeps the batch, and with it the learning rate; each GPU "
        f"{images}."
    )


def solve(rows, values):
    """Return non-negative coefficients that fit rows · x = values, by relative error.

    Least squares, again and again without the most negative coefficient: close to
    scipy.optimize.nnls, for which scipy would be a large package.
    """
    scaled = np.array(rows, float) / np.array(values, float)[:, None]
    keep, result = list(range(scaled.shape[1])), np.zeros(scaled.shape[1])
    found, *_ = np.linalg.lstsq(scaled, np.ones(len(values)), rcond=None)
    while found.min() < 0 and len(keep) > 1:
        keep.pop(int(found.argmin()))
        found, *_ = np.linalg.lstsq(scaled[:, keep], np.ones(len(values)), rcond=None)
    result[keep] = np.maximum(found, 0)
    return result


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


def fitted():
    """Return what the model of a step predicts beside what was measured, in Markdown."""
    parameters, cases = fit(published())
    rows = [
        [hidden, batch, f"{1000 * measured:.2f}", f"{1000 * predicted:.2f}",
         f"{predicted / measured - 1:+.1%}", "fitted" if fitted else "predicted"]
        for hidden, batch, fitted, measured, predicted in cases
    ]  # fmt: skip
    off = [abs(said / was - 1) for *_, fitted, was, said in cases if not fitted]
    headings = ["hidden", "batch", "measured, ms", "model, ms", "error", ""]
    return (
        f"Fitted: {parameters['bandwidth'] / 1e9:.2f} GB/s, "
        f"{1000 * parameters['latency']:.2f} ms a message; computing beside another "
        f"process takes {parameters['slower']:.2f} times as long as alone.\n\n"
        f"{table('rrrrrl', headings, rows)}\n\n"
        f"The {len(off)} predicted rows are off by {median(off):.0%} in the median, and "
        f"by {max(off):.0%} at most."
    )


def forecast():
    """Return the table of the example on 32 GPUs, over networks and steps."""
    gpus = DEFAULTS["NODES"] * DEFAULTS["GPUS_PER_NODE"]
    networks = {
        "10 Gbit/s Ethernet": {"NETWORK": 10}, "100 Gbit/s": {"NETWORK": 100},
        f"all {gpus} in one NVLink domain": {"NODES": 1, "GPUS_PER_NODE": gpus},
    }  # fmt: skip
    rows = []
    for seconds in 7.2, 0.1:
        for name, network in networks.items():
            given = {**DEFAULTS, "STEP": seconds, **network}
            none, half = (trainings({**given, "OVERLAP": o}) for o in (0, 0.5))
            took = [one[-1] for pair in zip(none, half, strict=True) for one in pair]
            ideal = hours_on_one_gpu(given) / gpus
            rows.append([f"{seconds} s", name, *(f"{h:.2f}" for h in [ideal, *took])])
    headings = ["a step on one GPU", "network between nodes", "ideal, hours",
                "weak, hours", "half hidden",
                "strong, hours", "half hidden"]  # fmt: skip
    return table("rlrrrrr", headings, rows)


def modes():
    """Return the table of what a model of 8.3 billion weights takes on 8 GPUs.

    Megatron-LM's largest, which was trained eight by eight (its section 5): 72 blocks,
    3072 wide; here 8 sequences of 1024 tokens a step, each a micro-batch; in float32.
    """
    gpus, size, activations = 8, 4 * 8.3e9, 4 * 8 * 1024 * 3072
    rows = [
        [name, held, f"{kept(mode, gpus, size) / 1e9:.1f}", sends,
         f"{moved(mode, gpus, size, activations, 72) / 1e9:.1f}",
         f"{bubble(gpus, 8):.0%}" if mode == "pp" else "–"]
        for mode, (name, held, sends) in MODES.items()
    ]  # fmt: skip
    headings = ["", "bytes on a GPU", "GB", "bytes it sends in a step", "GB", "idle"]
    return table("llrlrr", headings, rows)


def arithmetic():
    """Return the table of ideal training times, of ImageNet on 1 to 32 GPUs."""
    images, batch, epochs = (DEFAULTS[name] for name in ("IMAGES", "BATCH", "EPOCHS"))
    total = hours_on_one_gpu(DEFAULTS)
    rows = [
        [gpus, f"{total / epochs / gpus:.4g}", f"{total / gpus:,.1f}",
         f"{total / gpus / 24:.1f}"] for gpus in (1, 2, 4, 8, 16, 32)
    ]  # fmt: skip
    headings = ["GPUs", "an epoch, hours", f"{epochs} epochs, hours",
                f"{epochs} epochs, days"]  # fmt: skip
    return (
        f"{images:,} images, {batch} a batch: {images // batch:,} steps an epoch. At "
        f"{DEFAULTS['STEP']} s a step that is {total / epochs:g} hours an epoch and "
        f"{total:,g} hours for {epochs} epochs.\n\n{table('rrrr', headings, rows)}"
    )


if __name__ == "__main__":
    print(report(read(os.environ)))
