"""Print SCALING.md's tables from formulas: `python -m tools.bench.planned`."""

from tools.bench import scaling
from tools.bench.scaling import CLUSTERS, GPUS, MEMORY, SEVEN
from tools.bench.tables import aligned

SEQUENCES = 64  # in the tables' global batch


def threshold_rows():
    """Return the rows of the table of `thresholds`, headings first."""
    found = [scaling.thresholds(SEVEN, cluster) for cluster in CLUSTERS.values()]
    units = {"tensor": "the model's width", "experts": "an expert's hidden width"}
    units["context"] = "tokens of each sequence per GPU"
    rows = [["cut", *CLUSTERS, "unit"]]
    for cut in found[0]:
        unit = units.get(cut, "tokens per GPU per step")
        rows.append([cut, *[f"{one[cut]:,.0f}" for one in found], unit])
    return rows


def memory_rows():
    """Return the rows of FSDP's memory on one machine in GB, headings first."""
    ranks = GPUS
    tokens = SEQUENCES * SEVEN.length / ranks
    block = 2 * 12 * SEVEN.width**2
    logits = 4 * tokens * SEVEN.vocabulary
    parts = {
        "weights in float32": 4 * SEVEN.parameters / ranks,
        "gradients in float32": 4 * SEVEN.parameters / ranks,
        "Adam's averages": 8 * SEVEN.parameters / ranks,
        "two gathered blocks, one whole gradient": 3 * block,
        "log-probabilities in float32": logits,
    }
    rows = [["", "every activation kept", "with checkpointing"]]
    for name, size in parts.items():
        rows.append([name, *[f"{size / 1e9:.1f}"] * 2])
    kinds = [
        scaling.saved(SEVEN, tokens, checkpointing=again) for again in (False, True)
    ]
    kept = [size - logits for size in kinds]
    rows.append(["other activations", *[f"{size / 1e9:.1f}" for size in kept]])
    totals = [sum(parts.values()) + size for size in kept]
    rows.append(["total", *[f"{size / 1e9:.1f}" for size in totals]])
    fixed = sum(parts.values()) - logits
    per_sequence = [GPUS * (logits + size) / SEQUENCES for size in kept]
    fit = [int((MEMORY - fixed) / size) for size in per_sequence]
    label = f"sequences per GPU that fit into {MEMORY / 1e9:.0f} GB"
    rows.append([label, *map(str, fit)])
    return rows


def cut_rows():
    """Return the rows of a table of all cuts of the same batch, headings first."""
    tokens = SEQUENCES * SEVEN.length
    rows = [["cut", "state, GB", "sent, GB"]]
    rows[0] += [f"{name}, s" for name in CLUSTERS]
    for cut in scaling.thresholds(SEVEN, CLUSTERS["one machine"]):
        size = sum(scaling.sent(SEVEN, cut, GPUS, tokens).values())
        row = [cut, f"{scaling.state(SEVEN, cut, GPUS) / 1e9:.1f}", f"{size / 1e9:.1f}"]
        for cluster in CLUSTERS.values():
            _, best, worst = scaling.step(SEVEN, cut, cluster, tokens)
            row.append(f"{best:.2f} to {worst:.2f}")
        rows.append(row)
    return rows


TABLES = {"thresholds": threshold_rows, "filled": memory_rows, "cuts": cut_rows}


if __name__ == "__main__":
    print("\n\n".join(aligned(rows()) for rows in TABLES.values()))
