"""The tables of the benchmark and of the model, as Markdown, for terminal and pages."""

from statistics import median

from tools.bench import predict
from tools.bench.results import TUTORIAL, by_case, published, step_parts

LOOPS = {  # in the order of the table
    "stage 1": "stage 1",
    "plain": "the plain loop: `ToTensor`, two workers",
    "typed": "the same with PyTorch's default threads",
    "bare": "a bare loop over tensors",
}
NETWORKS = {  # name -> Gbit/s between the nodes, or None: there is one node
    "10 Gbit/s Ethernet": 10,
    "100 Gbit/s": 100,
    "all 32 in one NVLink domain": None,
}


def table(alignment, headings, rows):
    """Return the lines of a Markdown table; `alignment` has l or r for each column."""
    lines = [
        "|" + "".join(f" {cell} |" if cell != "" else " |" for cell in row)
        for row in [headings, *rows]
    ]
    rule = "".join({"l": "---|", "r": "---:|"}[letter] for letter in alignment)
    return [lines[0], f"|{rule}", *lines[1:]]


def spread(samples):
    """Return the median, and the smallest and largest, of a list of numbers."""
    return median(samples), min(samples), max(samples)


def ratios(a, b):
    """Return the ratios of two lists of samples, which were measured alternately."""
    return [x / y for x, y in zip(a, b, strict=True)]


def with_spread(samples, unit=""):
    """Return a median with its spread, as text."""
    middle, low, high = spread(samples)
    return f"{middle:.2f} {unit} ({low:.2f} to {high:.2f})"


def milliseconds(samples):
    """Return samples given in seconds."""
    return [1000 * seconds for seconds in samples]


def compared(what, candidates):
    """Return the lines of a table of {name: seconds}, beside those of stage 1."""
    first = candidates["stage 1"]
    return table("lrr", [what, "seconds", "times stage 1"], [
        [name, with_spread(samples), with_spread(ratios(samples, first))]
        for name, samples in candidates.items()
    ])  # fmt: skip


def report(result):
    """Return a benchmark as Markdown: its tables, and what follows from them."""
    machine = result["machine"]
    names = {"python": "Python", "torch": "PyTorch",
             "lightning": "Lightning", "accelerate": "Accelerate"}  # fmt: skip
    software = [f"{name} {machine[k]}" for k, name in names.items() if k in machine]
    measured = (
        f"Measured on {machine['cpus']} CPUs ({machine['processor']}), "
        f"{', '.join(machine['gpus']) or 'no GPU'}; {', '.join(software)}. "
        "Medians, and in brackets the smallest and largest.\n"
    )
    loops = {name: result["epochs"][key] for key, name in LOOPS.items()}
    epoch = f"an epoch of {result['images']:,} images, one process"
    lines = [measured, *compared(epoch, loops)]
    if result.get("peers"):
        lines += ["", *compared("three epochs, the whole process", result["peers"])]
    throughput = []
    for stage, samples in result["stages"].items():
        middle, low, high = (f"{value:,.0f}" for value in spread(samples))
        throughput.append([f"`{stage}`", f"{middle} ({low} to {high})"])
    headings = ["stage", "images a second, evaluation included"]
    lines += ["", *table("lr", headings, throughput)]
    lines += ["", *scaling(result), "", *conclusions(result)]
    return "\n".join(lines)


def scaling(result):
    """Return the lines of the table of steps, over networks, batches and processes."""
    headings = ["hidden", "batch", "processes", "ms a step", "speed-up", "efficiency",
                "communication", "waiting", "bare `all_reduce`, ms"]  # fmt: skip
    rows = []
    for (hidden, batch), group in by_case(result).items():
        for processes, samples in sorted(group.items()):
            row = [hidden, batch, processes, with_spread(milliseconds(samples["step"]))]
            if processes == 1:
                row += [1, "100%", "–", "–", "–"]
            else:
                step = median(samples["step"])
                speedup = median(group[1]["step"]) / step
                _, waiting, communicating = step_parts(samples)
                row += [f"{speedup:.2f}", f"{speedup / processes:.0%}"]
                row += [f"{communicating / step:.0%}", f"{waiting / step:.0%}"]
                row += [f"{1000 * median(samples['reduce']):.2f}"]
            rows.append(row)
    return table("r" * len(headings), headings, rows)


def conclusions(result):
    """Return sentences: where DDP overtakes one process, what an exchange costs."""
    groups = by_case(result)
    most = max(max(group) for group in groups.values())
    if most == 1:
        return [
            "One process is all that this machine has room for: nothing to compare."
        ]
    lines = []
    for hidden in sorted({hidden for hidden, _ in groups}):
        faster = [
            batch for (width, batch), group in groups.items() if width == hidden
            and median(group[1]["step"]) > median(group[most]["step"])
        ]  # fmt: skip
        where = (
            f"from batches of {min(faster)} on" if faster else "at no batch size tried"
        )
        lines.append(f"- {hidden} wide: {most} processes are faster than one {where}.")
    samples = groups[TUTORIAL][most]
    apart = map(sum, zip(samples["slowest"], samples["reduce"], strict=True))
    step = with_spread(ratios(samples["step"], list(apart)), "times")
    reduce = with_spread(milliseconds(samples["reduce"]), "ms")
    tiny = with_spread(milliseconds(samples["tiny"]), "ms")
    lines.append(
        f"- DDP's step on the tutorial's network takes {step} its computing and a bare "
        f"`all_reduce` of its gradients, which takes {reduce}; one of a single number "
        f"takes {tiny}."
    )
    return lines


def bench():
    """Return the tables of the benchmark in tools/bench/measured.json."""
    return report(published())


def model():
    """Return what the model of a step predicts, beside what was measured."""
    parameters, cases = predict.fit(published())
    rows, errors = [], []
    for hidden, batch, fitted, measured, predicted in cases:
        error = predicted / measured - 1
        errors += [] if fitted else [abs(error)]
        rows.append([
            hidden, batch, f"{1000 * measured:.2f}", f"{1000 * predicted:.2f}",
            f"{error:+.1%}", "fitted" if fitted else "predicted",
        ])  # fmt: skip
    headings = ["hidden", "batch", "measured, ms", "model, ms", "error", ""]
    fitted = (
        f"Fitted: {parameters['bandwidth'] / 1e9:.2f} GB/s, "
        f"{1000 * parameters['latency']:.2f} ms a message; computing beside another "
        f"process takes {parameters['slower']:.2f} times as long as alone.\n"
    )
    off = (
        f"\nThe {len(errors)} predicted rows are off by {median(errors):.0%} in the "
        f"median, and by {max(errors):.0%} at most."
    )
    return "\n".join([fitted, *table("rrrrrl", headings, rows), off])


def forecast():
    """Return the table of the example on 32 GPUs, over networks and steps."""
    given, rows = dict(predict.DEFAULTS), []
    gpus = given["NODES"] * given["GPUS_PER_NODE"]
    for seconds in 7.2, 0.1:
        given["STEP"] = seconds
        for name, network in NETWORKS.items():
            layout = (
                {"NETWORK": network} if network else {"NODES": 1, "GPUS_PER_NODE": gpus}
            )
            none = predict.trainings({**given, **layout, "OVERLAP": 0.0})
            half = predict.trainings({**given, **layout, "OVERLAP": 0.5})
            took = [
                one["hours"] for pair in zip(none, half, strict=True) for one in pair
            ]
            ideal = predict.hours_on_one_gpu(given) / gpus
            rows.append([f"{seconds} s", name, *(f"{h:.2f}" for h in [ideal, *took])])
    headings = ["a step on one GPU", "network between nodes", "ideal, hours",
                "weak, hours", "half hidden",
                "strong, hours", "half hidden"]  # fmt: skip
    return "\n".join(table("rlrrrrr", headings, rows))


def arithmetic():
    """Return the table of ideal training times, of ImageNet on 1 to 32 GPUs."""
    given = predict.DEFAULTS
    images, batch, epochs = given["IMAGES"], given["BATCH"], given["EPOCHS"]
    total = predict.hours_on_one_gpu(given)
    rows = [
        [gpus, f"{total / epochs / gpus:.4g}", f"{total / gpus:,.1f}",
         f"{total / gpus / 24:.1f}"] for gpus in (1, 2, 4, 8, 16, 32)
    ]  # fmt: skip
    headings = ["GPUs", "an epoch, hours", f"{epochs} epochs, hours",
                f"{epochs} epochs, days"]  # fmt: skip
    steps = (
        f"{images:,} images, {batch} a batch: {images // batch:,} steps an epoch. At "
        f"{given['STEP']} s a step that is {total / epochs:g} hours an epoch and "
        f"{total:,g} hours for {epochs} epochs.\n"
    )
    return "\n".join([steps, *table("rrrr", headings, rows)])
