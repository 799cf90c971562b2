"""A benchmark's results as Markdown tables, for the terminal and for the pages."""

import json
from statistics import median

from tools.run.stages import ROOT


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


def communication(samples):
    """Return the share of a step that it takes longer than without the exchange."""
    share = 1 - median(samples["compute"]) / median(samples["step"])
    return max(0.0, share)  # a busy machine may compute longer than a whole step takes


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


def steps_table(result):
    """Return the table of steps, over networks, batches and processes."""
    rows = []
    for (hidden, batch), group in by_case(result).items():
        for processes, samples in sorted(group.items()):
            milliseconds = [1000 * seconds for seconds in samples["step"]]
            row = [hidden, batch, processes, spread(milliseconds)]
            if processes == 1:
                row += [1, "100%", "–"]
            else:
                faster = speedup(group, processes)[0]
                row += [f"{faster:.2f}", f"{faster / processes:.0%}"]
                row.append(f"{communication(samples):.0%}")
            rows.append(row)
    headings = ["hidden", "batch", "processes", "ms per step", "speed-up"]
    headings += ["efficiency", "communication"]
    return table("r" * len(headings), headings, rows)


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
    steps = steps_table(result)
    if picture:
        count = len(result["scaling"])
        fold = f"<details>\n<summary>The picture's {count} rows</summary>"
        steps = f"{picture}\n\n{fold}\n\n{steps}\n\n</details>"
    return f"{measured}\n\n{steps}"
