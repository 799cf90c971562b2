"""Numbers that a script prints, or by which it decides, by rank and by run."""

import math
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from onecurve.wording import RETURNS

# Words in names of values that may differ by rank.
DIFFER = {"time", "seconds", "elapsed", "seed", "rank", "pid", "device", "gpu"}
DIFFER |= {"sec", "speed", "throughput", "memory", "mem", "eta", "fps", "data"}
DIFFER |= {"lr", "rate"}  # the rule `weights` compares them
SIZE = r"len\([^)]*\)"  # may be of a rank's part
SMALL = 1e-6  # relative tolerance
ROUNDED = 2e-3  # the same for printed numbers, which are rounded
QUOTED = '"'  # starts the name of a printed number


def numbers_of(seen, rank, kind="numbers", returned=False):
    """Return {place: event}, at level LOOK before an evaluation.

    They are printed, or else `returned` by functions that call collectives. A place is
    a branch, the steps before it, how often it is reached after so many, and which of
    these times it is: runs share it only if they reach it as often.
    After dist.reduce, until the next training pass, only one rank's number is defined.
    `loss` is the rank's latest training loss.
    """
    found = defaultdict(list)
    training = reduced = False
    steps = 0
    loss = None
    for event in seen.events[rank]:
        steps += event["kind"] == "step"
        if event["kind"] == "pass":
            training = event["grad"]
            reduced = reduced and not training
        reduced = reduced or event.get("name") == "reduce"
        loss = event["loss"] if event["kind"] == "backward" else loss
        if event["kind"] == kind and event["branch"].endswith(RETURNS) == returned:
            level = "LOOK" if training else None
            facts = {"level": level, "steps": steps, "reduced": reduced, "loss": loss}
            found[event["branch"], steps].append(event | facts)
    table = {}
    for place, events in found.items():
        table |= {(*place, len(events), n): one for n, one in enumerate(events)}
    return table


def differing_by_rank(seen, kind):
    """Yield (events of all ranks, name, values) of numbers that differ by rank."""
    tables = [numbers_of(seen, rank, kind) for rank in seen.ranks]
    for place in sorted(set.intersection(*map(set, tables))):
        events = [table[place] for table in tables]
        for text, values in differing(events):
            yield events, text, values


def printed_by_some(seen):
    """Yield (events of all ranks, name, values) of what only some ranks print."""
    takers = defaultdict(set)  # branch -> ranks that ever take it
    for rank in seen.ranks:
        for event in seen.of("numbers", rank):
            takers[event["branch"]].update([rank] * event["taken"])
    for events, text, values in differing_by_rank(seen, "numbers"):
        # taken by no rank, or by all, maybe in turn
        if len(takers[events[0]["branch"]]) not in (0, len(seen.ranks)):
            yield events, text, values


def differing(events):
    """Yield (source, values) of expressions whose numbers differ between events."""
    tables = [event["numbers"] for event in events]
    for text in tables[0]:
        words = set(re.findall("[a-z]+", re.sub(SIZE, "", text.lower())))
        values = [table.get(text) for table in tables]
        if None in values or words & DIFFER or not words:
            continue
        limit = ROUNDED if text.startswith(QUOTED) else SMALL
        low, high = min(values), max(values)
        if low < high and not math.isclose(low, high, rel_tol=limit):
            yield text, values


def pairs_of_numbers(several, one):
    """Yield (steps, name, the first printing rank's number, one process's)."""
    theirs = numbers_of(one, 0)
    printed = {}
    for rank in reversed(several.ranks):
        table = numbers_of(several, rank)
        printed |= {place: event for place, event in table.items() if event["taken"]}
    for place, ours in printed.items():
        if place not in theirs:
            continue
        other = theirs[place]
        for text, number in ours["numbers"].items():
            words = set(re.findall("[a-z]+", text.lower()))
            if text in other["numbers"] and words and not words & DIFFER:
                yield ours["steps"], text, number, other["numbers"][text]


def evaluations_agree(several, one):
    """Return whether numbers after evaluations match one process, not just 0 and 1."""
    evaluated = evaluations(several.events[0])
    found = pairs_of_numbers(several, one)
    pairs = [numbers for steps, _, *numbers in found if steps in evaluated]
    known = any(ours not in (0, 1) for ours, _ in pairs)
    return known and all(close(*pair) for pair in pairs)


def agrees(text, several, one):
    """Return whether the values rank 0 prints for an expression match one process."""
    pairs = [pair[2:] for pair in pairs_of_numbers(several, one) if pair[1] == text]
    return bool(pairs) and all(close(ours, theirs) for ours, theirs in pairs)


class Evaluation(NamedTuple):
    """Samples and random draws of the evaluations between two steps."""

    rows: Counter  # digests of samples
    draws: set  # "network" and "samples" if they draw random numbers


def evaluations(events):
    """Return {steps before: Evaluation} of a rank; empty ones are made when asked."""
    found = defaultdict(lambda: Evaluation(Counter(), set()))
    steps = 0
    fetched = {}  # generators that the latest batch used
    for event in events:
        steps += event["kind"] == "step"
        fetched = event["drawn"] if event["kind"] == "fetch" else fetched
        if event["kind"] == "pass" and not event["grad"]:
            one = found[steps]
            one.rows.update(event["rows"])
            one.draws.update(["network"] if event["drawn"] else [])
            one.draws.update(["samples"] if event["before"] or fetched else [])
        elif event["kind"] == "drawn_without":
            found[steps].draws.add("samples")
    return found


def close(ours, theirs):
    """Return whether two numbers are equal within rounding."""
    return math.isclose(ours, theirs, rel_tol=SMALL)


def are_losses(events, values):
    """Return whether each rank's number is its latest training loss."""
    pairs = zip([event["loss"] for event in events], values, strict=True)
    return all(loss is not None and close(loss, value) for loss, value in pairs)
