"""Check that a script computes the same on several ranks as on one.

The package depends only on PyTorch and psutil. It has no code for particular scripts.

Packages, in the order in which things happen:

start     starts a run's ranks, watches them and ends them
set_up    lets a script run here: on CPUs, in float64, without FSDP
watch     records what a rank does as events
feed      gives a rank batches: its own, all ranks' merged, or another rank's
evidence  reads the events, for several rules
rules     what is wrong, one module per finding
compare   runs a script in several ways and compares the runs
report    drops harmless findings, points to causes, prints

inspection  does all of it, for __main__ (the command) and for api (other projects)
"""

import tempfile
import warnings
from pathlib import Path


class CouldNotLook(Exception):
    """The script could not be inspected; the message says why."""


def inspect(script, *flags, ranks=2):
    """Return the list of Findings on the script at a path, empty if it is good.

    `flags` are the script's; `ranks` is at least 2. Warns if its gradients could not be
    compared with one process's. Raises CouldNotLook if there is no such script or it
    could not be inspected to its end.
    """
    # Other modules need neither.
    from onecurve import inspection
    from onecurve.report import formats

    path = Path(script).resolve()
    if not path.is_file():
        raise CouldNotLook(f"no such script: {script}")
    words = [str(flag) for flag in flags]
    with tempfile.TemporaryDirectory() as logs:
        found = inspection.inspect((path, words, ranks), Path(logs, path.stem))
    told = formats.verdict(path.name, found)
    if found.status == 2:
        raise CouldNotLook(told)
    if formats.NOT_COMPARED in told:
        warnings.warn(told, stacklevel=2)
    return found.findings
