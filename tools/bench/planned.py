"""Print SCALING.md's tables from formulas: `python -m tools.bench.planned`."""

from functools import partial

from tools.bench import scaling
from tools.bench.scaling import CLUSTERS, GPUS, MEMORY, SEVEN
from tools.bench.tables import aligned

SEQUENCES = 64  # in the tables' global batch


UNITS = {  # of thresholds that are not tokens per GPU per step
    "tensor": "the model's width",
    "context": "tokens of each sequence per GPU",
    "experts": "an expert's hidden width",
}


def threshold_rows(*cuts):
    """Return the rows of a table of some cuts' thresholds, headings first."""
    found = [scaling.thresholds(SEVEN, cluster) for cluster in CLUSTERS.values()]
    rows = [["method", *CLUSTERS]]
    for cut in cuts:
        name = f"{cut}: {UNITS[cut]}" if cut in UNITS else cut
        rows.append([name, *[f"{one[cut]:,.0f}" for one in found]])
    return rows


def memory(sequences, ranks, again=False):
    """Return {part: bytes} in a GPU under FSDP; `again` means with checkpointing."""
    tokens = sequences * SEVEN.length
    logits = 4 * tokens * SEVEN.vocabulary
    saved = scaling.saved(SEVEN, tokens, checkpointing=again)
    return {
        "weights in float32": 4 * SEVEN.parameters / ranks,
        "gradients in float32": 4 * SEVEN.parameters / ranks,
        "Adam's averages": 8 * SEVEN.parameters / ranks,
        "two gathered blocks, one whole gradient": 3 * 2 * 12 * SEVEN.width**2,
        "log-probabilities and their gradient": 2 * logits,
        "other activations": saved - logits,
    }


def memory_rows():
    """Return the rows of FSDP's memory on one machine in GB, headings first."""
    kinds = [memory(SEQUENCES // GPUS, GPUS, again) for again in (False, True)]
    rows = [["", "all kept", "checkpointed"]]
    for name in kinds[0]:
        rows.append([name, *[f"{parts[name] / 1e9:.1f}" for parts in kinds]])
    rows.append(["total", *[f"{sum(parts.values()) / 1e9:.1f}" for parts in kinds]])
    fit = []
    for again in False, True:
        fixed, one = [sum(memory(n, GPUS, again).values()) for n in (0, 1)]
        fit.append(str(int((MEMORY - fixed) / (one - fixed))))
    rows.append([f"sequences that fit into {MEMORY / 1e9:.0f} GB, at most", *fit])
    return rows


def cut_rows(*cuts):
    """Return the rows of a table of cuts, by default all, headings first."""
    tokens = SEQUENCES * SEVEN.length
    rows = [["method", "state, GB", "sent, GB"]]
    rows[0] += [f"{name}, s" for name in CLUSTERS]
    for cut in cuts or scaling.thresholds(SEVEN, CLUSTERS["one machine"]):
        size = sum(scaling.sent(SEVEN, cut, GPUS, tokens).values())
        row = [cut, f"{scaling.state(SEVEN, cut, GPUS) / 1e9:.1f}", f"{size / 1e9:.1f}"]
        for cluster in CLUSTERS.values():
            _, best, worst = scaling.step(SEVEN, cut, cluster, tokens)
            row.append(f"{best:.2f} to {worst:.2f}")
        rows.append(row)
    return rows


def grid_rows():
    """Return the rows of what a GPU of two machines has and sends, headings first."""
    ranks = CLUSTERS["two machines"].ranks
    *state, gathered, head, others = memory(SEQUENCES // ranks, ranks).values()
    rows = [["method", "state", "gathered", "activations", "NVLink", "card"]]
    for cut, share in ("FSDP", 1), ("tensor", 0), ("grid", 1 / GPUS):
        links = scaling.sent(SEVEN, cut, ranks, SEQUENCES * SEVEN.length)
        card = links.get("cards", links.get("ring", 0) / GPUS)
        sizes = [sum(state), share * gathered, head + others]
        sizes += [sum(links.values()) - card, card]
        rows.append([cut, *[f"{size / 1e9:.1f}" for size in sizes]])
    return rows


TABLES = {
    "thresholds": partial(threshold_rows, "DDP", "FSDP", "HSDP"),
    "other_thresholds": partial(threshold_rows, *UNITS),
    "filled": memory_rows,
    "cuts": partial(cut_rows, "DDP", "FSDP", "HSDP", "tensor", "grid", "pipeline"),
    "grid": grid_rows,
    "other_cuts": partial(cut_rows, "context", "experts"),
}


if __name__ == "__main__":
    print("\n\n".join(aligned(rows()) for rows in TABLES.values()))
