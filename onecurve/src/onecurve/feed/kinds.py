"""The kinds of run, in the order in which they are made."""

from typing import NamedTuple


class Kind(NamedTuple):
    """How a script is run."""

    ranks: str  # "all" that were asked for, or "one"
    feed: str  # "unchanged", or in float64: its "own", "merged" or "replayed" batches
    is_sharded: bool  # whether FSDP and tensor parallelism shard the model
    told: str  # in messages

    @property
    def in_float64(self):
        return self.feed != "unchanged"


KINDS = {
    # for the rules
    "watch": Kind("all", "unchanged", True, "unchanged"),
    # keeps each step's batches and gradients for the runs below
    "several": Kind("all", "own", True, "in float64"),
    # compared with the gradients of several
    "one": Kind("one", "merged", False, "on one rank"),
    # one process per rank, if "one" can't be compared; a number follows the name
    "alone": Kind("one", "replayed", False, "on one rank"),
    # the same, if a script can't run without shards
    "split": Kind("one", "replayed", True, "on one rank"),
    # all of them at once, if a rank can't run alone
    "whole": Kind("all", "replayed", False, "on one rank"),
}


def kind_of(name):
    """Return the Kind of a run such as "alone1", and its number or None."""
    base = name.rstrip("0123456789")
    number = name[len(base) :]
    return KINDS[base], int(number) if number else None
