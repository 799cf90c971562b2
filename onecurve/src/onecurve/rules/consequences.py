"""Drop findings without consequences.

Some rules infer a bug from how a script does something. Their findings are dropped if
the ranks' weights stay equal and gradients and printed numbers match one process's.
"""

from onecurve.rules import printed


def weights_agree(found, seen):
    """Return whether the ranks' weights were equal after each of several steps."""
    names = {one.name for one in found}
    return len(seen.of("step")) > 1 and not names & {"weights", "parts"}


def with_consequence(found, seen, told):
    """Return the findings to keep; `told` is the Comparison with one process."""
    if not weights_agree(found, seen):
        return found
    several = told.runs.get("several")
    one = told.runs.get("one" if told.equal else "alone0")
    is_compared = bool(one) and bool(told.equal or told.alone)
    levels = {(finding.name, finding.level) for finding in found}
    # each rank evaluates all samples, by its own statistics, and one rank's count
    same = {("evaluated", "SLOW"), ("buffers", "LOOK")} <= levels

    def is_harmless(finding):
        if finding.name in ("exchange", "clip"):
            return is_compared and told.equal
        if finding.name == "twice":
            return is_compared and printed.evaluations_agree(several, one)
        if finding.name == "printed":
            known = is_compared and printed.agrees(finding.subject, several, one)
            return same or known
        return False

    return [finding for finding in found if not is_harmless(finding)]
