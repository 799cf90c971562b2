"""Read benchmark results and format them as tables."""

import json
from collections import defaultdict
from statistics import median

from tools.bench.scaling import PEAK, SEVEN, kept
from tools.run.stages import ROOT

# The benchmark's (width, batch) to show next to a GPU's.
SIZES = [(128, 64), (128, 4096), (2048, 64), (2048, 1024), (2048, 4096), (4096, 1024)]


def published(name="measured"):
    """Return a copy of runs/bench.json, one_gpu.json or trace_04_ddp.json (traced)."""
    return json.loads((ROOT / f"tools/bench/{name}.json").read_text())


def by_case(result):
    """Return {(hidden, batch): {processes: {work: samples}}}, in seconds per step."""
    found = {}
    for case in result["scaling"]:
        group = found.setdefault((case["hidden"], case["batch"]), {})
        of_case = group.setdefault(case["processes"], defaultdict(list))
        for work, samples in case["samples"].items():
            of_case[work] += samples  # each case is measured twice
    return found


def communication(samples):
    """Return the share of a step's time that the exchange adds."""
    share = 1 - median(samples["compute"]) / median(samples["step"])
    return max(0.0, share)  # on a busy machine, compute may take longer than step


def measured_on(machine):
    """Return a line about a benchmark's machine."""
    return (
        f"Measured on {machine['cpus']} CPUs ({machine['processor']}), "
        f"{', '.join(machine['gpus']) or 'no GPU'}; Python {machine['python']}, "
        f"PyTorch {machine['torch']}. "
        "Medians, with the smallest and largest in brackets."
    )


def steps(result):
    """Return the rows of a table of steps, headings first."""
    rows = [["hidden", "batch", "processes", "ms per step", "speedup"]]
    rows[0] += ["efficiency", "communication"]
    for (hidden, batch), group in by_case(result).items():
        for processes, samples in sorted(group.items()):
            times = [1000 * seconds for seconds in samples["step"]]
            spread = f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"
            shares = [1, "100%", "–"]
            if processes > 1:
                faster = median(group[1]["step"]) / median(samples["step"])
                shares = [f"{faster:.2f}", f"{faster / processes:.0%}"]
                shares.append(f"{communication(samples):.0%}")
            rows.append([hidden, batch, processes, spread, *shares])
    return rows


def step_rows():
    """Return the rows of a table of steps on a CPU and on the GPU, headings first."""
    on_cpu = by_case(published())
    on_gpu = by_case(published("one_gpu"))
    rows = [["hidden", "batch", "one CPU core, ms", "with the GPU, ms"]]
    for size in SIZES:
        times = [median(found[size][1]["step"]) for found in (on_cpu, on_gpu)]
        rows.append([*size, *[f"{1000 * seconds:.2f}" for seconds in times]])
    return rows


def queue_rows():
    """Return the rows of a table of when steps are queued and done, headings first."""
    rows = [["hidden", "batch", "Python has queued it, ms", "the GPU is done, ms"]]
    for case in published("one_gpu")["queue"]:
        times = [f"{median(case[name]):.2f}" for name in ("asked", "done")]
        rows.append([case["hidden"], case["batch"], *times])
    return rows


def block_rows():
    """Return the rows of a table of blocks and formulas, headings first."""
    rows = [["blocks", "sequences", "kept, GB", "by formula, GB", "both passes, ms"]]
    rows[0].append("of the peak")
    for case in published("one_gpu")["blocks"]:
        tokens = case["sequences"] * SEVEN.length
        by_formula = case["blocks"] * kept(SEVEN, tokens)
        seconds = median(case["ms"]) / 1000
        share = 6 * case["weights"] * tokens / seconds / PEAK
        sizes = [f"{size / 1e9:.2f}" for size in (case["kept"], by_formula)]
        times = f"{1000 * seconds:.1f}", f"{share:.0%}"
        rows.append([case["blocks"], case["sequences"], *sizes, *times])
    return rows


ON_A_GPU = {"steps": step_rows, "queue": queue_rows, "blocks": block_rows}


def aligned(rows):
    """Return rows of cells as a right-aligned table for a terminal."""
    texts = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def table(alignment, headings, rows):
    """Return a Markdown table; `alignment` contains l or r for each column."""
    rules = {"l": "---|", "r": "---:|"}
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [headings, *rows]]
    lines.insert(1, "|" + "".join(rules[letter] for letter in alignment))
    return "\n".join(lines)
