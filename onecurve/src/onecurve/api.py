"""Export what other projects may import from onecurve. Anything else may change.

    from onecurve import api

    result = api.run(["train.py", "--epochs", "2"], processes=2)

Names are imported on first use, so a process can start ranks without importing PyTorch.
"""

from importlib import import_module

MODULES = {
    # start ranks, and end the processes they started
    "start.ranks": "Run run call start_server",
    "start.patience": "STOPPED",
    "start.processes": "adopt_orphans children end_children end_with_parent",
    # record them, from within a rank
    "watch.script": "Script",
    "watch.listeners": "listen",
    "watch.events": "Log digest local_part tensors_in",
    "watch.output_files": "OutputFiles",
    "watch.networks": "is_replicated",
    "set_up.float64": "InDouble load",
    "set_up.cpu_for_cuda": "Done",
    "set_up.replace": "CLOCKS replace",
    # read the records
    "evidence.seen": "Seen read_ranks",
    # inspect and report
    "inspection": "inspect findings",
    "rules": "RULES",
    "report.formats": "text",
    # describe failures
    "start.failures": "NOISE at error is_of_others_end line_number syntax_error "
    "whereabouts",
}
NAMES = {name: module for module, names in MODULES.items() for name in names.split()}
__all__ = list(NAMES)


def __getattr__(name):
    if name not in NAMES:
        raise AttributeError(f"onecurve.api has no {name}")
    return getattr(import_module(f"onecurve.{NAMES[name]}"), name)
