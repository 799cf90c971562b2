"""The findings of an inspection, as text."""

import re

LEVELS = "ERROR", "SLOW", "LOOK"
NOT_CHECKED = "resuming, the end of an epoch, GPUs and NCCL, means of ranks' metrics"


def headline(name, ranks, seen, seconds):
    """Return the first line: what ran."""
    told = [
        counted(len(seen.of("step")), "step"),
        counted(len(seen.readings(0, True)), "epoch"),
        counted(len(seen.readings(0, False)), "evaluation"),
    ]
    return f"{name} on {ranks} CPU ranks: {', '.join(told)}   {seconds:.1f} s"


def counted(number, word):
    """Return a number of things, such as "1 step" or "2 steps"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def finding_lines(finding):
    """Return a finding as lines."""
    first = f"{finding.level:6} {finding.what}"
    if finding.line:
        first = f"{first:60}  {finding.line}"
    lines = [first]
    lines += [f"         {detail}" for detail in finding.details]
    if finding.see:
        lines.append(f"         -> {finding.see}")
    return lines


def fine(seen, found, compared):
    """Return a line for each thing that was looked at and is right."""
    wrong = " ".join(one.what for one in found)
    if "never meet" in wrong:
        return []
    lines = []
    steps = len(seen.of("step"))
    if steps and "weights differ" not in wrong and "learning rates" not in wrong:
        told = "weights and learning rates are equal"
        lines.append(f"{told} after each of {counted(steps, 'step')}")
    epochs = [epoch for epoch in seen.readings(0, True) if epoch["indices"]]
    shared = seen.of("split") or re.search("samples|shares", wrong)
    if epochs and not shared:
        counts = [len(indices["indices"]) for indices in first_epochs(seen)]
        lines.append(f"{sum(counts)} samples an epoch, none on two ranks")
    if len(epochs) > 1 and "same order" not in wrong and "shuffled" not in wrong:
        lines.append("a new order in each epoch")
    calls = len(seen.of("collective"))
    if calls and "collective" not in wrong:
        lines.append(f"{calls} collective calls, the same on every rank")
    if compared:
        lines.append(
            f"the gradients of {counted(compared, 'step')} are those of one process"
        )
    return [f"ok     {line}" for line in lines]


def first_epochs(seen):
    """Return the indices of each rank's first epoch of training, events."""
    readings = [seen.readings(rank, True) for rank in seen.ranks]
    indices = [epochs[0]["indices"] for epochs in readings if epochs]
    return [one for one in indices if one]


def information(seen):
    """Return what is neither right nor wrong."""
    ranks = len(seen.ranks)
    for epoch in seen.readings(0, True):
        if epoch["indices"] and epoch["indices"]["sizes"]:
            size = epoch["indices"]["sizes"][0]
            told = f"one batch is {ranks} x {size} samples"
            return [f"info   {told}: compare with your one-GPU batch and learning rate"]
    return []


def text(name, inspection, seconds, folder):
    """Return the whole report on a script of that name."""
    seen = inspection.seen
    found = inspection.findings
    lines = [headline(name, len(seen.ranks), seen, seconds), ""]
    for finding in sorted(found, key=lambda one: LEVELS.index(one.level)):
        lines += finding_lines(finding)
    if found:
        lines.append("")
    lines += fine(seen, found, inspection.compared)
    lines += information(seen)
    unchecked = [NOT_CHECKED, *inspection.not_told]
    lines.append(f"not checked: {'; '.join(unchecked)}")
    errors = sum(finding.level == "ERROR" for finding in found)
    told = counted(errors, "error") if errors else "No errors"
    lines.append(f"{told}. Whole log: {folder}/")
    return "\n".join(lines)
