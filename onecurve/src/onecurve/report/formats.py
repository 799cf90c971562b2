"""Format an inspection's findings."""

import math
from dataclasses import asdict
from textwrap import wrap

from onecurve.evidence.samples import are_known, first_orders
from onecurve.report.sources import USE

LEVELS = "ERROR", "SLOW", "LOOK"
NOT_COMPARED = "GRADIENTS NOT COMPARED"
NOT_CHECKED = (
    "resuming, schedules, clocks, time limits, later steps of an epoch, GPUs and NCCL, "
    "values that all ranks print, and values that one rank prints after compared steps"
)
MADE_OF = {
    False: "the mean of gradients recomputed on each rank",
    True: "the mean of gradients recomputed on each rank with a whole model",
}


def but_for(gradients):
    """Return what the gradient comparison excludes, as the end of a line."""
    held = gradients.several.of("batch_norm")
    return ", except for BatchNorm statistics" if held else ""


def counted(number, word):
    """Return a count with its noun, such as "1 step" or "2 steps"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def verdict(name, inspection):
    """Return the first line: the number of errors, and whether gradients match."""
    errors = sum(finding.level == "ERROR" for finding in inspection.findings)
    if errors:
        return f"{counted(errors, 'error')} in {name}"
    if inspection.stopped:
        return f"{name} COULD NOT BE INSPECTED: {inspection.stopped}"
    told = f"no errors found in {name}"
    if inspection.partial:
        steps = counted(len(inspection.seen.of("step")), "step")
        told = f"no errors found in the first {steps} of {name}"
    gradients = inspection.gradients
    if gradients.equal:
        made_of = "one process"
    elif gradients.alone:
        made_of = MADE_OF[gradients.of_whole]
    else:
        why = gradients.why or "they were not requested"
        return f"{told}; {NOT_COMPARED} with one process because {why}"
    return f"{told}; gradients match {made_of}{but_for(gradients)}"


def headline(seen, seconds):
    """Return the second line: the ranks, and how many steps and epochs ran."""
    counts = {
        "step": len(seen.of("step")),
        "epoch": len(seen.readings(0, True)),
        "evaluation": len(seen.readings(0, False)),
    }
    told = [counted(count, word) for word, count in counts.items() if count]
    what = ", ".join(told) or "no steps"
    return f"{len(seen.ranks)} CPU ranks: {what}   {seconds:.1f} s"


def pages_about(finding, pages):
    """Return the pages about a finding from {name: paths}, or by default RULES.md."""
    return (pages or {}).get(finding.name, [f"RULES.md#{finding.name}"])


def finding_lines(finding, pages):
    """Format a finding as lines; `pages` as in `pages_about`."""
    first = f"{finding.level:6} {finding.what}"
    if finding.line:
        first = f"{first:60}  {finding.line}"
    lines = [first]
    lines += [f"         {detail}" for detail in finding.details]
    if finding.fix:
        lines.append(f"         -> {finding.fix}")
    shown = pages_about(finding, pages)
    if shown:
        lines.append(f"         see {', '.join(shown)}")
    return lines


def fine(inspection):
    """Return a line for each comparison that found no problem."""
    seen = inspection.seen
    own = seen.own_parts()
    names = {finding.name for finding in inspection.findings}
    gradients = inspection.gradients
    lines = []
    lost = USE in [one.fix for one in inspection.findings]  # exact runs copy less
    learns = "no_gradient" not in names and not lost
    match = f"gradients of {{}} match {{}}{but_for(gradients)}"
    if learns and gradients.exchanged and "exchange" not in names:
        steps = counted(gradients.exchanged, "step")
        lines.append(f"gradients are averaged across ranks in {steps}")
    if learns and gradients.equal and "gradient" not in names:
        lines.append(match.format(counted(gradients.equal, "step"), "one process"))
    if learns and gradients.alone and "gradient" not in names:
        made_of = MADE_OF[gradients.of_whole]
        lines.append(match.format(counted(gradients.alone, "step"), made_of))
    whole = [event["weights"] for event in seen.of("weights") if event["weights"]]
    count = len(set(whole[0]) - own) if whole and seen.of("step") else 0
    if count and learns and not names & {"weights", "exchange", "other_batches"}:
        verb = "is" if count == 1 else "are"
        tensors = f"{counted(count, 'weight tensor')} {verb}"
        steps = counted(len(seen.of("step")), "step")
        lines.append(f"{tensors} equal on all ranks in {steps}")
    if own:
        tensors = counted(len(own), "weight tensor")
        lines.append(f"{tensors} may differ by rank: experts or shards")
    lines += samples(seen, names)
    calls = len(seen.collective_calls()[0])
    if calls and "different_collectives" not in names:
        lines.append(f"{calls} collective calls, the same on every rank")
    return lines


def samples(seen, names):
    """Return lines about the samples that ranks use, if they are known."""
    epochs = seen.takers().first_epochs()
    lines = []
    wrong = names & {"samples", "overlap", "datasets"}
    data = {epoch["identity"] for epoch in epochs}
    if not wrong and len(data) == 1 and None not in data:
        taken = sum(len(epoch["indices"]) for epoch in epochs)
        count = len(set().union(*(epoch["indices"] for epoch in epochs)))
        twice = taken - count or "none"
        size = epochs[0]["size"]
        some = f"{count} of {size}" if count < size else count
        if taken < size + len(epochs):  # else each rank may draw a whole epoch
            lines.append(f"{some} samples per epoch, {twice} used twice")
    several = [lists for _, lists in first_orders(seen) if len(lists) > 1]
    anew = all(len({tuple(one) for one in each}) == len(each) for each in several)
    if epochs and several and anew and "order" not in names:
        lines.append("each epoch uses a new sample order")
    return lines


def unsure(inspection):
    """Return what was not compared."""
    told = [NOT_CHECKED]
    gradients = inspection.gradients
    if inspection.partial:
        told.append("later steps, evaluations and files, and gradients in float64")
    if gradients.rough:
        told.append(f"gradients to more than 4 digits because {gradients.rough}")
    compared = gradients.exchanged or gradients.equal or gradients.alone
    if not compared and not inspection.findings:
        told.append("whether gradients are averaged across ranks")
    if not are_known(inspection.seen.takers().first_epochs()):
        told.append("samples because what the ranks' datasets contain is unknown")
    if gradients.alone:
        told.append(f"merged batches in one process because {gradients.why}")
    elif gradients.equal and gradients.why:
        told.append(f"gradients of later steps because {gradients.why}")
    elif gradients.why and "ERROR" in [one.level for one in inspection.findings]:
        told.append(f"gradients against one process because {gradients.why}")
    if gradients.values is None:
        told.append("values that may depend on len(loader) against one process")
    return told


def batch(inspection):
    """Return at most one line: the batch size to compare by hand."""
    seen = inspection.seen.takers()
    epochs = seen.first_epochs()
    if len({epoch["line"] for epoch in seen.readings(0, True)}) != 1 or not epochs:
        return []  # a step may use several loaders
    size = epochs[0]["sizes"][0]
    own = len({tuple(epoch["indices"]) for epoch in epochs})  # ranks may share a batch
    factors = {"ranks": own, "batches": seen.batches_of_step(), "": size}
    parts = [f"{one} {word}".strip() for word, one in factors.items() if one > 1]
    whole = math.prod(factors.values())
    told = f"each step uses {counted(whole, 'sample')}"
    told += f", {' x '.join(parts)}" if len(parts) > 1 else ""
    return [f"{told}: compare with your single-GPU batch size and learning rate"]


def facts(name, inspection, seconds, folder, pages=None):
    """Return the contents of `text` as a dict for JSON."""
    looked = not inspection.stopped
    found = []
    for finding in by_level(inspection.findings):
        shown = asdict(finding) | {"pages": pages_about(finding, pages)}
        del shown["facts"], shown["cause"], shown["consequences"]
        found.append(shown)
    return {
        "verdict": verdict(name, inspection),
        "status": inspection.status,
        "findings": found,
        "compared": fine(inspection) if looked else [],
        "not compared": unsure(inspection) if looked else [],
        "to compare": batch(inspection) if looked else [],
        "ranks": len(inspection.seen.ranks),
        "seconds": round(seconds, 1),
        "log": str(folder),
    }


def by_level(findings):
    """Return findings sorted by level, worst first."""
    return sorted(findings, key=lambda one: LEVELS.index(one.level))


def text(name, inspection, seconds, folder, pages=None):
    """Return the full report on a script; `folder` contains its log."""
    found = inspection.findings
    lines = wrap(verdict(name, inspection), 80, subsequent_indent="  ")
    lines += [headline(inspection.seen, seconds), ""]
    for finding in by_level(found):
        lines += finding_lines(finding, pages)
    if found:
        lines.append("")
    if not inspection.stopped:
        lines += [f"ok     {line}" for line in fine(inspection)]
        told = [f"not checked: {what}" for what in unsure(inspection)]
        told += [f"info   {what}" for what in batch(inspection)]
        for line in told:
            lines += wrap(line, 80, subsequent_indent="  ")
    lines.append(f"full log: {folder}/")
    return "\n".join(lines)
