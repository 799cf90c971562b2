"""Has a fault a consequence? If several ranks do what one process does, it is no error.

Some rules infer a fault from how a script does something. These findings go if the
ranks' weights stay equal, their gradients match one process's, and the numbers that are
printed do as well.
"""

from onecurve import printed


def weights_agree(found, seen):
    """Return whether the ranks' weights were equal after each of several steps."""
    names = {one.name for one in found}
    return len(seen.of("step")) > 1 and not names & {"weights", "parts"}


def with_consequence(found, seen, told):
    """Return the findings that are left, given the run as it is and the Comparison.

    `told` says how many steps have one process's gradients.
    """
    if not (told.equal or told.alone) or not weights_agree(found, seen):
        return found
    several = told.runs["several"]
    one = told.runs.get("one" if told.equal else "alone0")
    if one is None:  # of several, each with a part of the model
        return found
    kept = []
    for finding in found:
        if finding.name in ("exchange", "clip") and told.equal:
            continue
        if finding.name == "twice" and printed.evaluations_agree(several, one):
            continue
        if finding.name == "printed" and printed.agrees(
            finding.what.rpartition(": ")[2], several, one
        ):
            continue
        kept.append(finding)
    return kept
