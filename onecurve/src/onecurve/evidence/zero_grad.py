"""Calls of zero_grad() that delete gradients before the optimizer uses them."""

from onecurve.evidence.found import found

LATE = ["zero_grad() is called between backward() and step()"]
EARLY = "call zero_grad() before backward() or after step()"


def zeroed_late(seen):
    """Return what is `found` if zero_grad() runs between backward() and a step."""
    computed = False
    late = None
    for event in seen.events[0]:
        if event["kind"] == "backward":
            computed = True
            late = None
        elif event["kind"] == "zero_grad" and computed:
            late = event["line"]
        elif event["kind"] == "before_step":
            break
    return found(late, LATE, fix=EARLY) if late else None
