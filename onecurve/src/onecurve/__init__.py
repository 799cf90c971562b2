"""Check that a script computes the same on several ranks as on one.

The package depends only on PyTorch and psutil. It has no code for particular scripts.

__main__   the command line: onecurve train.py
api        the names that other projects may import
ranks      runs a script as the ranks of one torchrun
supervisor  starts the ranks, watches them and ends them
processes  ends the processes that ranks started
failures   describes a failure by an error and its line, or where each rank was
recorder   records DDP and collectives
events     writes the log
replace    wraps attributes of PyTorch and Python
run        one run of the script, and how it can fail
runs       all of its runs, and what they show
comparison  the runs in float64, and whether their gradients agree
rank       prepares a rank before the script begins
files      redirects the script's output files to the run's own folder
pretend    gives CPUs to a script that asks for GPUs
branches   finds code that depends on the rank
origins    where the script creates networks and samplers and sets seeds
identities  numbers objects and never reuses a number
apart      recognizes training by one rank alone
loaders    records data loaders
sharded    records FSDP
hooks      records networks, backward passes and the rest
networks   describes a network
saved      finds what a saved checkpoint lacks
optimizers  records optimizers and schedulers
samples    digests of samples and random generators
numbers    values that one rank prints, and the other ranks' values
equal      keeps each step's batches, gradients and weights
kept       names of these files
draws      combines the ranks' random numbers for one process
losses     sums and means that a loss consists of
merged     one process that gets the ranks' merged batches
replay     one process that repeats one rank's work
plain      one process without FSDP and tensor parallelism
divided    whether a loss scales with the number of ranks
rounding   whether two tensors are equal up to rounding
exact      float64, no dropout, fixed statistics: for `equal`
exchange   whether each rank's own gradients were exchanged
gradients  whether several ranks and one have the same gradients
alone      whether gradients are a weighted sum of each rank's own
seen       reads the logs for the rules
shares     rules on the samples each rank uses
streams    rules on samples of streams, or drawn by the script itself
steps      rules on weights, schedules, learning rates
evaluation  rules on the samples and weights that ranks evaluate
computed   rules on what backward passes compute and exchange
printed    rules on numbers that are printed, averaged or compared
rules      all other rules, and the list of all
consequences  drops findings without consequences
findings   fills in findings.csv
sources    follows a value back to the lines that set it
report     the findings as a string
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
    from onecurve import report, runs  # other modules need neither

    path = Path(script).resolve()
    if not path.is_file():
        raise CouldNotLook(f"no such script: {script}")
    words = [str(flag) for flag in flags]
    with tempfile.TemporaryDirectory() as logs:
        inspection = runs.inspect((path, words, ranks), Path(logs, path.stem))
    told = report.verdict(path.name, inspection)
    if inspection.status == 2:
        raise CouldNotLook(told)
    if report.NOT_COMPARED in told:
        warnings.warn(told, stacklevel=2)
    return inspection.findings
