"""What a benchmark holds, and its tables as Markdown, for terminal and pages."""

import json
from statistics import median

from tools.run.stages import ROOT

TUTORIAL = 128, 64  # hidden units and images a batch, as the stages have them
ENOUGH = 5  # samples: ranges of fewer are apart by chance too often
LOOPS = {  # in the order of the table
    "stage 1": "stage 1",
    "plain": "the plain loop: `ToTensor`, two workers",
    "typed": "the same with PyTorch's default threads",
    "bare": "a bare loop over tensors",
}


def published():
    """Return the benchmark that the pages show: a copy of a runs/bench.json."""
    return json.loads((ROOT / "tools/bench/measured.json").read_text())


def by_case(result):
    """Return {(hidden, batch): {processes: {name: samples}}}, in seconds a step."""
    found = {}
    for case in result["scaling"]:
        group = found.setdefault((case["hidden"], case["batch"]), {})
        group[case["processes"]] = case["samples"]
    return found


def step_parts(samples):
    """Return a step's computing, waiting and communicating, in seconds (medians).

    They add up to the step, also where computing alone was measured to take longer.
    """
    names = "compute", "slowest", "step"
    compute, slowest, step = (median(samples[name]) for name in names)
    compute, slowest = min(compute, step), min(slowest, step)
    return compute, max(0.0, slowest - compute), step - max(compute, slowest)


def speedup(group, processes):
    """Return how much faster so many processes are than one: median, least and most.

    Least and most are of any two samples: where least is above 1, the ranges are apart.
    """
    one, several = group[1]["step"], group[processes]["step"]
    return (median(one) / median(several), min(one) / max(several),
            max(one) / min(several))  # fmt: skip


def table(alignment, headings, rows):
    """Return a Markdown table; `alignment` has l or r for each column."""
    rule = "".join({"l": "---|", "r": "---:|"}[letter] for letter in alignment)
    first, *others = (f"| {' | '.join(map(str, row))} |" for row in [headings, *rows])
    return "\n".join([first, f"|{rule}", *others])


def spread(samples, form="{:.2f}"):
    """Return a median, and in brackets the smallest and largest, as text."""
    numbers = median(samples), min(samples), max(samples)
    return "{} ({} to {})".format(*map(form.format, numbers))


def ratios(a, b):
    """Return the ratios of two lists of samples, which were measured alternately."""
    return [x / y for x, y in zip(a, b, strict=True)]


def milliseconds(samples):
    """Return samples given in seconds."""
    return [1000 * seconds for seconds in samples]


def compared(what, candidates):
    """Return a table of {name: seconds}, beside those of stage 1."""
    first = candidates["stage 1"]
    return table("lrr", [what, "seconds", "times stage 1"], [
        [name, spread(samples), spread(ratios(samples, first))]
        for name, samples in candidates.items()
    ])  # fmt: skip


def report(result, picture=""):
    """Return a benchmark as Markdown: its tables, and what follows from them.

    Where a page has a `picture` of its steps, their table is folded below that.
    """
    machine = result["machine"]
    names = {"python": "Python", "torch": "PyTorch",
             "lightning": "Lightning", "accelerate": "Accelerate"}  # fmt: skip
    software = [f"{name} {machine[k]}" for k, name in names.items() if k in machine]
    loops = {name: result["epochs"][key] for key, name in LOOPS.items()}
    measured = (
        f"Measured on {machine['cpus']} CPUs ({machine['processor']}), "
        f"{', '.join(machine['gpus']) or 'no GPU'}; {', '.join(software)}. "
        "Medians, and in brackets the smallest and largest."
    )
    epoch = f"an epoch of {result['images']:,} images, one process"
    parts = [measured, compared(epoch, loops)]
    if "peers" in result:
        parts.append(compared("three epochs, the whole process", result["peers"]))
    if "gpu" in result:
        parts.append(one_gpu(result["gpu"], result["images"]))
    headings = ["stage", "images a second, evaluation included"]
    columns = [result["stages"]]
    if "wide" in result:
        headings.append("2048 wide, batch 1024")
        columns.append(result["wide"])
    rows = [[f"`{stage}`", *(spread(column[stage], "{:,.0f}") for column in columns)]
            for stage in result["stages"]]  # fmt: skip
    parts.append(table("lrr"[: len(headings)], headings, rows))
    steps = scaling(result)
    if picture:
        fold = (
            f"<details>\n<summary>The picture's {len(result['scaling'])} rows</summary>"
        )
        steps = f"{picture}\n\n{fold}\n\n{steps}\n\n</details>"
    return "\n\n".join([*parts, steps, conclusions(result)])


def one_gpu(cases, images):
    """Return the table of stage 2 on a GPU beside other loops, each the same epoch."""
    rows = [
        [case["hidden"], case["batch"],
         spread([images / seconds for seconds in case["stage 2"]], "{:,.0f}"),
         spread(ratios(case["bare"], case["stage 2"])),
         spread(ratios(case["plain"], case["stage 2"]))] for case in cases
    ]  # fmt: skip
    headings = ["hidden", "batch", "stage 2 on a GPU, images a second",
                "time of a bare loop, all on the GPU", "time of the plain loop, pinned"]  # fmt: skip
    return table("rrrrr", headings, rows)


def scaling(result):
    """Return the table of steps, over networks, batches and processes."""
    headings = ["hidden", "batch", "processes", "ms a step", "speed-up", "efficiency",
                "communication", "waiting", "bare `all_reduce`, ms"]  # fmt: skip
    rows = []
    for (hidden, batch), group in by_case(result).items():
        for processes, samples in sorted(group.items()):
            row = [hidden, batch, processes, spread(milliseconds(samples["step"]))]
            if processes == 1:
                row += [1, "100%", "–", "–", "–"]
            else:
                step = median(samples["step"])
                faster, _, _ = speedup(group, processes)
                _, waiting, communicating = step_parts(samples)
                row += [f"{faster:.2f}", f"{faster / processes:.0%}"]
                row += [f"{communicating / step:.0%}", f"{waiting / step:.0%}"]
                row += [f"{1000 * median(samples['reduce']):.2f}"]
            rows.append(row)
    return table("r" * len(headings), headings, rows)


def conclusions(result):
    """Return sentences: where DDP overtakes one process, what an exchange costs.

    Where ranges overlap they say so, and nothing of fewer than ENOUGH samples.
    """
    groups = by_case(result)
    most = max(max(group) for group in groups.values())
    if most == 1:
        return "One process is all that this machine has room for: nothing to compare."
    samples = groups[TUTORIAL][most]
    if len(samples["step"]) < ENOUGH:
        return "Too few rounds to conclude anything from: leave out QUICK=1 for that."
    verdicts = {}
    for (hidden, batch), group in sorted(groups.items()):
        _, least, greatest = speedup(group, most)
        said = (
            "faster" if least > 1 else "slower" if greatest < 1 else "too close to tell"
        )
        verdicts.setdefault(hidden, {}).setdefault(said, []).append(str(batch))
    lines = [
        f"- {hidden} wide, {most} processes against one: "
        + "; ".join(f"{said} with batches of {', '.join(batches)}"
                    for said, batches in found.items()) + "."
        for hidden, found in verdicts.items()
    ]  # fmt: skip
    apart = [
        sum(pair) for pair in zip(samples["slowest"], samples["reduce"], strict=True)
    ]
    lines.append(
        f"- DDP's step on the tutorial's network takes "
        f"{spread(ratios(samples['step'], apart), '{:.2f}')} times its computing and a "
        f"bare `all_reduce` of its gradients, which takes "
        f"{spread(milliseconds(samples['reduce']))} ms; one of a single number takes "
        f"{spread(milliseconds(samples['tiny']))} ms."
    )
    return "\n".join(lines)
