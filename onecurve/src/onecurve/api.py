"""Export what other projects may import from onecurve. Anything else may change.

    from onecurve import api

    result = api.run(["train.py", "--epochs", "2"], processes=2)

Names are imported on first use, so a process can start ranks without importing PyTorch.
"""

from importlib import import_module

NAMES = {
    # start ranks, and end the processes they started
    "run": "ranks",
    "call": "ranks",
    "start_server": "ranks",
    "STOPPED": "supervisor",
    "adopt_orphans": "processes",
    "children": "processes",
    "end_children": "processes",
    "end_with_parent": "processes",
    # record them, from within a rank
    "Hooks": "hooks",
    "Log": "events",
    "Files": "files",
    "InDouble": "exact",
    "load": "exact",
    "Done": "pretend",
    "CLOCKS": "replace",
    "replace": "replace",
    "digest": "events",
    "local_part": "events",
    "tensors_in": "events",
    "is_replicated": "networks",
    # read the records
    "Seen": "seen",
    "read_ranks": "seen",
    # inspect and report
    "inspect": "runs",
    "findings": "rules",
    "TABLE": "findings",
    "text": "report",
    # describe failures
    "NOISE": "failures",
    "at": "failures",
    "error": "failures",
    "is_of_others_end": "failures",
    "line_number": "failures",
    "syntax_error": "failures",
    "whereabouts": "failures",
}
__all__ = list(NAMES)


def __getattr__(name):
    if name not in NAMES:
        raise AttributeError(f"onecurve.api has no {name}")
    return getattr(import_module(f"onecurve.{NAMES[name]}"), name)
