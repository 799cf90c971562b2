"""Whether several ranks and one, which `equal` watched, have the same gradients."""

import torch

from onecurve.findings import finding

CLOSE = 1e-6  # relative; right scripts are 1e-14 apart
PARALLEL = 1e-6  # of 1 - cosine


def compare(several, one, ranks):
    """Compare the steps of several ranks and of one in two folders.

    Returns (number of steps that are equal, Finding or None, why the next step cannot
    be compared or None).
    """
    count = 0
    while True:
        paths = [folder / f"gradients{count}.pt" for folder in (several, one)]
        if not all(path.exists() for path in paths):
            return count, None, None if count else "on one rank, it takes no step"
        ours, theirs = (torch.load(path, weights_only=False) for path in paths)
        leave_out_others(ours, theirs)
        names = differing(ours["gradients"], theirs["gradients"])
        if names:
            why = why_not(ours, theirs)
            if why:
                return count, None, why
            details = difference(ours["gradients"], theirs["gradients"], names, ranks)
            return 0, finding("gradient", ours["line"], details, ranks=ranks), None
        count += 1


def leave_out_others(ours, theirs):
    """Leave out of one rank's facts what an optimizer in shares lacks on rank 0."""
    for name in set(theirs["weights"]) - set(ours["weights"]):
        for facts in theirs["weights"], theirs["gradients"]:
            facts.pop(name, None)
        theirs["gradients"].pop(f"{name} before clipping", None)


def why_not(ours, theirs):
    """Return why a step of several ranks and of one cannot be compared, or None."""
    if not ours["taken"]:
        return "it takes its samples without a DataLoader"
    if ours["taken"] != theirs["taken"]:
        numbers = f"{ours['taken']} on several ranks, {theirs['taken']} on one"
        return f"a step takes another number of batches: {numbers}"
    if ours["lost"] or theirs["lost"]:
        return "it draws random numbers between batch and step"
    if differing(ours["weights"], theirs["weights"]):
        return "its weights depend on the number of ranks"
    return None


def differing(ours, theirs):
    """Return the names of the tensors that differ, or that one of two dicts lacks."""
    names = sorted(set(ours) ^ set(theirs))
    for name in ours:
        if name in theirs and not close(ours[name], theirs[name]):
            names.append(name)
    return names


def close(ours, theirs):
    """Return whether two tensors are equal but for rounding."""
    if ours.shape != theirs.shape:
        return False
    return (ours - theirs).norm() <= CLOSE * theirs.norm() + 1e-12


def difference(ours, theirs, names, ranks):
    """Return in lines how the gradients of some names differ."""
    both = [name for name in names if name in ours and name in theirs]
    if both != names or any(ours[name].shape != theirs[name].shape for name in names):
        return [f"a gradient is missing in one of them: {names[0]}"]
    a = torch.cat([ours[name] for name in names])
    b = torch.cat([theirs[name] for name in names])
    cosine = float(a @ b / (a.norm() * b.norm() + 1e-300))
    ratio = float(a.norm() / (b.norm() + 1e-300))
    told = f"cosine {cosine:.6f}, length {ratio:.6f}"
    if 1 - cosine < PARALLEL:
        told = f"direction equal, length {ratio:.6f}"
        if abs(ratio * ranks - 1) < 1e-3:
            told += f": a factor of {ranks}, the world size, is missing"
        elif abs(ratio / ranks - 1) < 1e-3:
            told += ": they are added up, not averaged"
    details = [told]
    if len(names) < len(ours):
        details.append(f"{len(names)} of {len(ours)} parameters: {names[0]} ...")
    return details
