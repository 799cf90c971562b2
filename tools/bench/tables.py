"""A benchmark's results as Markdown tables, for the terminal and for the pages."""

import json
from statistics import median

from tools.run.stages import ROOT

LOOPS = {  # key in a benchmark -> its name in the table
    "stage 1": "stage 1",
    "stage 2": "stage 2, on a GPU",
    "plain": "the plain loop: `ToTensor`, two workers",
    "bare": "a bare loop over tensors",
}


def published():
    """Return the benchmark that the pages show: a copy of a runs/bench.json."""
    return json.loads((ROOT / "tools/bench/measured.json").read_text())


def by_case(result):
    """Return {(hidden, batch): {processes: {name: samples}}}, in seconds per step."""
    found = {}
    for case in result["scaling"]:
        group = found.setdefault((case["hidden"], case["batch"]), {})
        group[case["processes"]] = case["samples"]
    return found


def most_processes(result):
    """Return the largest number of processes that was measured."""
    return max(case["processes"] for case in result["scaling"])


def step_parts(samples):
    """Return a step's computing, waiting and communicating, in seconds (medians).

    They add up to the step, also if computing alone was measured to take longer.
    """
    step = median(samples["step"])
    compute = min(median(samples["compute"]), step)
    slowest = min(median(samples["slowest"]), step)
    return compute, max(0.0, slowest - compute), step - max(compute, slowest)


def speedup(group, processes):
    """Return how much faster so many processes are than one: median, least and most.

    Least and most are of any two samples: if least is above 1, no sample of the
    processes is slower than any of the one process.
    """
    one = group[1]["step"]
    several = group[processes]["step"]
    middle = median(one) / median(several)
    return middle, min(one) / max(several), max(one) / min(several)


def table(alignment, headings, rows):
    """Return a Markdown table; `alignment` has l or r for each column."""
    rules = {"l": "---|", "r": "---:|"}
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [headings, *rows]]
    lines.insert(1, "|" + "".join(rules[letter] for letter in alignment))
    return "\n".join(lines)


def spread(samples):
    """Return a median, and in brackets the smallest and the largest sample, as text."""
    return f"{median(samples):.2f} ({min(samples):.2f} to {max(samples):.2f})"


def epochs_table(candidates, images):
    """Return a table of {loop: seconds of its epochs}, compared with the stage's own.

    The first loop is the stage's. Samples of one round are divided by each other.
    """
    first = next(name for name in LOOPS if name in candidates)
    rows = []
    for key, name in LOOPS.items():
        if key in candidates:
            pairs = zip(candidates[key], candidates[first], strict=True)
            ratios = [seconds / stage for seconds, stage in pairs]
            rows.append([name, spread(candidates[key]), spread(ratios)])
    headings = [f"an epoch of {images:,} images, one process", "seconds"]
    return table("lrr", [*headings, f"times {first}"], rows)


def steps_table(result):
    """Return the table of steps, over networks, batches and processes."""
    rows = []
    for (hidden, batch), group in by_case(result).items():
        for processes, samples in sorted(group.items()):
            milliseconds = [1000 * seconds for seconds in samples["step"]]
            row = [hidden, batch, processes, spread(milliseconds)]
            if processes == 1:
                row += [1, "100%", "–", "–", "–"]
            else:
                row += against_one_process(group, processes)
            rows.append(row)
    headings = ["hidden", "batch", "processes", "ms per step", "speed-up"]
    headings += ["efficiency", "communication", "waiting", "bare `all_reduce`, ms"]
    return table("r" * len(headings), headings, rows)


def against_one_process(group, processes):
    """Return the cells of `steps_table` that compare a number of processes with one."""
    samples = group[processes]
    step = median(samples["step"])
    faster = speedup(group, processes)[0]
    _, waiting, communicating = step_parts(samples)
    return [
        f"{faster:.2f}",
        f"{faster / processes:.0%}",
        f"{communicating / step:.0%}",
        f"{waiting / step:.0%}",
        f"{1000 * median(samples['reduce']):.2f}",
    ]


def report(result, picture=""):
    """Return a benchmark as Markdown.

    Where a page has a `picture` of the steps, their table is folded below the picture.
    """
    machine = result["machine"]
    measured = (
        f"Measured on {machine['cpus']} CPUs ({machine['processor']}), "
        f"{', '.join(machine['gpus']) or 'no GPU'}; Python {machine['python']}, "
        f"PyTorch {machine['torch']}. "
        "Medians, and in brackets the smallest and largest."
    )
    parts = [measured, epochs_table(result["epochs"], result["images"])]
    if "gpu" in result:
        parts.append(epochs_table(result["gpu"], result["images"]))
    steps = steps_table(result)
    if picture:
        count = len(result["scaling"])
        fold = f"<details>\n<summary>The picture's {count} rows</summary>"
        steps = f"{picture}\n\n{fold}\n\n{steps}\n\n</details>"
    return "\n\n".join([*parts, steps])
