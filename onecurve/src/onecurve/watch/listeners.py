"""The listeners of every run, in their order."""

from onecurve.watch.budget import Budget
from onecurve.watch.collectives import Collectives
from onecurve.watch.fsdp import FSDP
from onecurve.watch.loaders import Loaders, Supply
from onecurve.watch.optimizers import Optimizers
from onecurve.watch.origins import Origins
from onecurve.watch.passes import Passes
from onecurve.watch.spawned import Spawned
from onecurve.watch.splits import Splits
from onecurve.watch.training import Training
from onecurve.watch.writes import Writes


def listen(script, supply=None, budget=None, more=()):
    """Add the listeners of every run to a script; `more` comes before the budget.

    Without a supply and a budget, the script gets its own batches, all of them.
    """
    supply = supply or Supply()
    budget = budget or Budget(script)
    collectives = Collectives(script)
    sharded = FSDP(script)
    writes = Writes(script)
    script.add(
        collectives,
        Passes(script, collectives),
        Origins(script.log),
        Loaders(script, supply, budget),
        sharded,
        Optimizers(script),
        writes,
        Training(script, sharded, writes),
        Splits(script),
        Spawned(script),
        *more,
        supply,
        budget,
    )
