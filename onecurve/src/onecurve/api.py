"""Export what other projects may import from onecurve. Anything else may change.

    from onecurve import api

    result = api.run(["train.py", "--epochs", "2"], processes=2)

Names are imported on first use, so a process can start ranks without importing PyTorch.
"""

from importlib import import_module

NAMES = {
    # start ranks, and end the processes they started
    "run": "start.ranks",
    "call": "start.ranks",
    "start_server": "start.ranks",
    "STOPPED": "start.patience",
    "adopt_orphans": "start.processes",
    "children": "start.processes",
    "end_children": "start.processes",
    "end_with_parent": "start.processes",
    # record them, from within a rank
    "Script": "watch.script",
    "listen": "watch.listeners",
    "Log": "watch.events",
    "OutputFiles": "watch.output_files",
    "InDouble": "set_up.float64",
    "load": "set_up.float64",
    "Done": "set_up.cpu_for_cuda",
    "CLOCKS": "set_up.replace",
    "replace": "set_up.replace",
    "digest": "watch.events",
    "local_part": "watch.events",
    "tensors_in": "watch.events",
    "is_replicated": "watch.networks",
    # read the records
    "Seen": "rules.seen",
    "read_ranks": "rules.seen",
    # inspect and report
    "inspect": "inspection",
    "findings": "inspection",
    "TABLE": "rules.findings",
    "text": "report.formats",
    # describe failures
    "NOISE": "start.failures",
    "at": "start.failures",
    "error": "start.failures",
    "is_of_others_end": "start.failures",
    "line_number": "start.failures",
    "syntax_error": "start.failures",
    "whereabouts": "start.failures",
}
__all__ = list(NAMES)


def __getattr__(name):
    if name not in NAMES:
        raise AttributeError(f"onecurve.api has no {name}")
    return getattr(import_module(f"onecurve.{NAMES[name]}"), name)
