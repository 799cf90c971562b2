"""Rules for numbers that are printed, that decide, or that are averaged."""

import math
import re
from collections import Counter
from typing import NamedTuple

from onecurve.rules.findings import finding, of_each_rank

# Words in names of values that may differ by rank.
DIFFER = {"time", "seconds", "elapsed", "seed", "rank", "pid", "device", "gpu"}
DIFFER |= {"sec", "speed", "throughput", "memory", "mem", "eta", "fps", "data"}
DIFFER |= {"lr", "rate"}  # compared in steps.py
SIZE = r"len\([^)]*\)"  # may be of a rank's part
SMALL = 1e-6  # relative tolerance
ROUNDED = 2e-3  # the same for printed numbers, which are rounded
QUOTED = '"'  # starts the name of a printed number


def numbers_of(seen, rank, kind="numbers"):
    """Return {(branch, occurrence): event}, at level LOOK inside a training epoch."""
    table = {}
    training = False
    steps = 0
    for event in seen.events[rank]:
        steps += event["kind"] == "step"
        if event["kind"] in ("pass", "read"):
            training = event.get("grad", False)
        if event["kind"] == kind:
            place = event["branch"], event["times"]
            level = "LOOK" if training else None
            table[place] = {**event, "level": level, "steps": steps}
    return table


def differing_by_rank(seen, kind):
    """Yield (events of all ranks, name, values) of numbers that differ by rank."""
    tables = [numbers_of(seen, rank, kind) for rank in seen.ranks]
    for place in sorted(set.intersection(*map(set, tables))):
        events = [table[place] for table in tables]
        for text, values in differing(events):
            yield events, text, values


def numbers_of_rank_0(seen):
    """Find numbers that some ranks print and that differ on others."""
    calls = [call["name"] for call in seen.of("collective_call")]
    takers = seen.takers_of_branches()
    told = set()
    for events, text, values in differing_by_rank(seen, "numbers"):
        branch = events[0]["branch"]
        if len(takers[branch]) in (0, len(seen.ranks)):
            continue  # taken by no rank, or by all, maybe in turn
        line = events[0]["lines"][text]
        # an item of a list or dict only if the branch has no other finding
        held = "[" in text and branch in told
        if (line, text) not in told and not held:
            told |= {(line, text), branch}
            # after dist.reduce, only one rank has the sum and may print it
            unsure = "reduce" in calls or text.startswith(QUOTED)
            level = "LOOK" if unsure else events[0]["level"]
            yield finding("printed", line, each_told(values), level, text=text)


def numbers_by_world(several, others, steps):
    """Find numbers that rank 0 prints and that depend on the number of ranks.

    `others` are single processes whose work is the same for `steps` steps.
    """
    runs = [several, *others]
    lengths = [[one["length"] for one in seen.of("length")] for seen in runs]
    if any(one != lengths[0] for one in lengths):
        return  # averages over them rightly differ
    ranks = [numbers_of(several, rank) for rank in several.ranks]
    alone = [numbers_of(seen, 0) for seen in others]
    told = set()
    is_quiet = not any(numbers_of_rank_0(several))  # else one rank prints its own
    ours = [evaluations(events) for events in several.events]
    theirs = [evaluations(seen.events[0]) for seen in others]
    unlike = evaluated_unlike(ours, theirs)
    for place, first in ranks[0].items():
        if first["steps"] in unlike:
            continue
        of_one = [table.get(place) for table in alone]
        if None in of_one or first["steps"] > steps or not first["taken"]:
            continue
        of_ranks = [table[place] for table in ranks if place in table]
        if any(one["steps"] != first["steps"] for one in of_ranks + of_one):
            continue  # an epoch has other steps and so ends with other weights
        own = {text for text, _ in differing(of_ranks)}
        for text, values in differing([first, *of_one]):
            number, *others = values
            known = close(min(others), max(others)) and text not in own | told
            if text.startswith(QUOTED):
                known = known and is_quiet and not told
            if known and number != int(number) and not close(number, others[0]):
                told.add(text)
                details = told_of_numbers(number, others[0], len(ranks))
                details += told_of_samples(ours, theirs[0], first["steps"])
                yield finding("by_world", first["lines"][text], details, text=text)


def pairs_of_numbers(several, one):
    """Yield (steps, name, the first printing rank's number, one process's)."""
    theirs = numbers_of(one, 0)
    printed = {}
    for rank in reversed(several.ranks):
        table = numbers_of(several, rank)
        printed |= {place: event for place, event in table.items() if event["taken"]}
    for place, ours in printed.items():
        other = theirs.get(place)
        if other is None or ours["steps"] != other["steps"]:
            continue
        for text, number in ours["numbers"].items():
            words = set(re.findall("[a-z]+", text.lower()))
            if text in other["numbers"] and words and not words & DIFFER:
                yield ours["steps"], text, number, other["numbers"][text]


def evaluations_agree(several, one):
    """Return whether numbers after evaluations match one process, not just 0 and 1."""
    evaluated = evaluations(several.events[0])
    known = False
    for steps, _, ours, theirs in pairs_of_numbers(several, one):
        if steps in evaluated:
            if not close(ours, theirs):
                return False
            known = known or ours not in (0, 1)
    return known


def agrees(text, several, one):
    """Return whether the values rank 0 prints for an expression match one process."""
    pairs = [pair[2:] for pair in pairs_of_numbers(several, one) if pair[1] == text]
    return bool(pairs) and all(close(ours, theirs) for ours, theirs in pairs)


def told_of_numbers(ours, theirs, count):
    """Return two numbers as details, and whether the number of ranks is a factor."""
    details = [f"{count} ranks: {ours:.6f}", f"1 process: {theirs:.6f}"]
    if close(ours, count * theirs):
        details.append("1 process's value times the number of ranks")
    if close(count * ours, theirs):
        details.append("1 process's value divided by the number of ranks")
    return details


def told_of_samples(ours, theirs, steps):
    """Return details if the ranks evaluate other samples than one process."""
    of_ranks = sum((one.get(steps, NOTHING).rows for one in ours), Counter())
    of_one = theirs.get(steps, NOTHING).rows
    again = (of_ranks - of_one).total()
    never = (of_one - of_ranks).total()
    if again and not never:
        return [f"samples evaluated more often than by 1 process: {again}"]
    if never and not again:
        total = of_one.total()
        return [f"of 1 process's {total} samples, no rank evaluates {never}"]
    return []


def evaluated_unlike(ours, theirs):
    """Return steps after which random draws make the `evaluations` incomparable."""
    unlike = set()
    for steps in {step for one in ours for step in one}:
        of_ranks = [one[steps] for one in ours if steps in one]
        rows = set().union(*(one.rows for one in of_ranks))
        draws = set().union(*(one.draws for one in of_ranks))
        known = [set(one[steps].rows) for one in theirs if steps in one]
        drawn = "samples" in draws and any(not rows <= one for one in known)
        if "network" in draws or drawn:
            unlike.add(steps)
    return unlike


class Evaluation(NamedTuple):
    """Samples and random draws of the evaluations between two steps."""

    rows: Counter  # digests of samples
    draws: set  # "network" and "samples" if they draw random numbers


NOTHING = Evaluation(Counter(), set())


def evaluations(events):
    """Return {steps before: Evaluation} of a rank."""
    found = {}
    steps = 0
    for event in events:
        steps += event["kind"] == "step"
        passes = event["kind"] == "pass" and not event["grad"]
        if passes or event["kind"] == "drawn_without":
            one = found.setdefault(steps, Evaluation(Counter(), set()))
        if passes:
            one.rows.update(event["rows"])
            one.draws.update(["network"] if event["drawn"] else [])
            one.draws.update(["samples"] if event["before"] else [])
        elif event["kind"] == "drawn_without":
            one.draws.add("samples")
    return found


def decisions(seen):
    """Find numbers that differ by rank and decide what all ranks should do alike."""
    told = set()
    for events, text, values in differing_by_rank(seen, "decides"):
        line = events[0]["lines"][text]
        # 0 if another rank evaluates
        if not told & {line, text} and all(values):
            told |= {line, text}
            yield finding("decides", line, each_told(values), text=text)


def close(ours, theirs):
    """Return whether two numbers are equal within rounding."""
    return math.isclose(ours, theirs, rel_tol=SMALL)


def each_told(values):
    """Return a line with each rank's number."""
    return of_each_rank(f"{value:.6f}" for value in values)


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
