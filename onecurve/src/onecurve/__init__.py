"""Does a script compute on several ranks what it computes on one?

It depends on PyTorch alone, and knows nothing of the scripts that it judges.

__main__   the command line: onecurve train.py
api        what other projects may import
ranks      runs a script as the ranks of one torchrun
supervisor  starts the ranks, watches them, and ends them
processes  ends what those have started
failures   how a failure is told: an error and its line, or where each rank was
recorder   what is written down of DDP and of collectives
events     where it is written
replace    puts a function around an attribute of PyTorch or Python
run        one run of the script, and how it may fail
runs       all runs of it, and what they show
rank       what a rank does before the script begins
files      what the script writes goes to a folder of the run's own
pretend    a script that asks for GPUs gets CPUs
branches   what of a script depends on the rank, by its source
origins    where it makes networks and samplers, and sets seeds
identities  what tells an object from those that are gone
apart      where one rank trains something for itself
loaders    what is written down of its loaders
sharded    what is written down of FSDP
hooks      what is written down of its network, optimizers and the rest
networks   what is written down of a network
saved      what a checkpoint that a script saves lacks
optimizers  what is written down of optimizers and schedulers
samples    digests of samples and random generators, which both use
numbers    what one rank prints, and what the others would
equal      what several ranks compute in each step, and keep
kept       names of the files in which they do
draws      the random numbers that they draw, put together for one process
losses     what a loss is the sum of, and the mean
merged     what one computes of their batches, merged
replay     what one computes that does again the work of one of them
plain      one process without what splits a model
divided    whether a loss goes by the number of ranks
rounding   whether two tensors are equal but for rounding
exact      float64, no dropout, fixed statistics: for `equal`
exchange   whether what each rank computed alone was exchanged
gradients  whether several ranks and one have the same gradients
alone      whether their gradients are made of what each would compute alone
seen       what was written down, for the rules
shares     rules: which samples a rank takes
streams    rules: those of a stream, or that the script draws itself
steps      rules: weights, schedules, learning rates
evaluation  rules: which samples and weights the ranks evaluate
computed   rules: what backward passes compute, and what is exchanged
printed    rules: numbers that are printed, that decide, or that are averaged
rules      rules: all others, and the list of all
consequences  which findings have none: the ranks do what one process does
findings   what a rule finds, by the table findings.csv
sources    the lines of a script that make what is seen at another
report     the findings, as text
"""

import tempfile
import warnings
from pathlib import Path


class CouldNotLook(Exception):
    """A script could not be looked at: says why."""


def inspect(script, *flags, ranks=2):
    """Return the Findings on a script, given its path; none is good.

    `flags` are the script's own, `ranks` at least 2. Warns where its gradients could
    not be compared with those of one process. Raises CouldNotLook where there is no
    such script, or the script could not be looked at to its end.
    """
    from onecurve import report, runs  # not needed by who needs another module

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
