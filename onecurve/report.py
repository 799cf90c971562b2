"""The findings of an inspection, as text."""

from textwrap import wrap

LEVELS = "ERROR", "SLOW", "LOOK"
NOT_CHECKED = (
    "resuming, the end of an epoch, GPUs and NCCL, means of ranks' metrics, "
    "random numbers between batch and loss, batches without a DataLoader"
)


def counted(number, word):
    """Return a number of things, such as "1 step" or "2 steps"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def headline(name, seen, seconds):
    """Return the first line: what ran."""
    told = [
        counted(len(seen.of("step")), "step"),
        counted(len(seen.readings(0, True)), "epoch"),
        counted(len(seen.readings(0, False)), "evaluation"),
    ]
    ranks = len(seen.ranks)
    return f"{name} on {ranks} CPU ranks: {', '.join(told)}   {seconds:.1f} s"


def finding_lines(finding, pages):
    """Return a finding as lines; its pages are below `pages`, None: nowhere."""
    first = f"{finding.level:6} {finding.what}"
    if finding.line:
        first = f"{first:60}  {finding.line}"
    lines = [first]
    lines += [f"         {detail}" for detail in finding.details]
    if finding.repair:
        lines.append(f"         -> {finding.repair}")
    if pages is not None:
        shown = [f"{pages}{page}" for page in finding.pages]
        lines.append(f"         see {', '.join(shown)}")
    return lines


def fine(seen, found, compared):
    """Return a line for each thing that was looked at and is right."""
    names = {finding.name for finding in found}
    lines = []
    steps = counted(len(seen.of("step")), "step")
    if seen.of("step") and not names & {"weights", "apart"}:
        lines.append(f"weights are equal on all ranks, in {steps}")
    epochs = seen.first_epochs()
    if epochs and not names & {"samples", "overlap"}:
        taken = sum(len(epoch["indices"]) for epoch in epochs)
        count = len(set().union(*(epoch["indices"] for epoch in epochs)))
        twice = taken - count or "none"
        lines.append(f"{count} samples an epoch, {twice} of them twice")
    if epochs and len(seen.readings(0, True)) > 1 and "order" not in names:
        lines.append("a new order in each epoch")
    calls = len(seen.collective_calls()[0])
    if calls and "parted" not in names:
        lines.append(f"{calls} collective calls, the same on every rank")
    if compared and not names & {"apart", "no_gradient"}:
        steps = counted(compared, "step")
        lines.append(f"the gradients of {steps} are those of one process")
    lines = [f"ok     {line}" for line in lines]
    if epochs:
        told = f"one batch is {len(epochs)} x {epochs[0]['sizes'][0]} samples"
        told += ": compare with your one-GPU batch and learning rate"
        lines.append(f"info   {told}")
    return lines


def text(name, inspection, seconds, folder, pages=None):
    """Return the whole report on a script of that name.

    `folder` has its log; `pages` is what to put before the path of a page.
    """
    seen = inspection.seen
    found = inspection.findings
    lines = [headline(name, seen, seconds), ""]
    for finding in sorted(found, key=lambda one: LEVELS.index(one.level)):
        lines += finding_lines(finding, pages)
    if found:
        lines.append("")
    lines += fine(seen, found, inspection.compared)
    for unchecked in NOT_CHECKED, *inspection.not_told:
        lines += wrap(f"not checked: {unchecked}", 80, subsequent_indent="  ")
    errors = sum(finding.level == "ERROR" for finding in found)
    told = counted(errors, "error") if errors else "No errors"
    lines.append(f"{told}. Whole log: {folder}/")
    return "\n".join(lines)
