"""What other projects may import from onecurve. Nothing else is promised to stay.

    from onecurve import api

    result = api.run(["train.py", "--epochs", "2"], processes=2)

A name is imported when it is first used, so that starting ranks needs no PyTorch in the
process that starts them. The docstring of each function says what it takes.
"""

from importlib import import_module

NAMES = {
    # start ranks, and end what they have started
    "run": "ranks",
    "call": "ranks",
    "start_server": "ranks",
    "STOPPED": "supervisor",
    "adopt_orphans": "processes",
    "children": "processes",
    "end_children": "processes",
    "end_with_parent": "processes",
    # watch them, from within a rank
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
    # what was seen
    "Seen": "seen",
    "read_ranks": "seen",
    # what was found
    "inspect": "runs",
    "findings": "rules",
    "TABLE": "findings",
    "text": "report",
    # how a failure is reported
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
