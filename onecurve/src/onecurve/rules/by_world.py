"""One process with the same weights prints or returns a different value. It may be a
mean of means over unequal parts, a sum over ranks, or a result that skips samples or
counts them twice.
"""

from onecurve.evidence import printed
from onecurve.evidence.found import found
from onecurve.wording import RETURNS

LEVEL = "LOOK"
MESSAGE = "value depends on the number of ranks: {text}"
FIX = "all_reduce sums and counts, then divide"
HIDDEN = True
ORIGIN = ""  # any statement that computes it


def find_by_world(comparison):
    several = comparison.several
    is_quiet = not any(printed.printed_by_some(several))  # else one prints its own
    told = set()
    for (branch, text), event, known in comparison.values or ():
        if text in told:
            continue
        if text.startswith(printed.QUOTED) and (told or not is_quiet):
            continue
        if branch.endswith(RETURNS) and (told or event["level"]):
            continue  # in training, it may be a time
        told.add(text)
        details = told_of_numbers(event["numbers"][text], known, len(several.ranks))
        yield found(event["lines"][text], details, text=text)


def differing(comparison):
    """Yield ((branch, name), event, one process's value) of values that differ."""
    several = comparison.several
    others, steps = comparison.same_work()
    if not others:
        return
    ranks = [numbers_of(several, rank) for rank in several.ranks]
    alone = [numbers_of(seen, 0) for seen in others]
    ours = [printed.evaluations(events) for events in several.events]
    theirs = [printed.evaluations(seen.events[0]) for seen in others]
    unlike = evaluated_unlike(ours, theirs)
    for place, first in ranks[0].items():
        of_one = [table.get(place) for table in alone]
        comparable = first["steps"] <= steps and first["steps"] not in unlike
        if None in of_one or not comparable or not first["taken"]:
            continue
        of_ranks = [table[place] for table in ranks if place in table]
        own = set()
        if not first["reduced"]:
            own = {text for text, _ in printed.differing(of_ranks)}
        for text, values in printed.differing([first, *of_one]):
            number, *known = values
            alike = printed.close(min(known), max(known)) and text not in own
            if alike and number != int(number) and not printed.close(number, known[0]):
                yield (place[0], text), first, known[0]


def numbers_of(seen, rank):
    """Return printed numbers, then those that functions with collectives return."""
    told = printed.numbers_of(seen, rank)
    return told | printed.numbers_of(seen, rank, returned=True)


def told_of_numbers(ours, theirs, count):
    """Return two numbers as details, and whether the number of ranks is a factor."""
    details = [f"{count} ranks: {ours:.6f}", f"1 process: {theirs:.6f}"]
    if printed.close(ours, count * theirs):
        details.append("1 process's value times the number of ranks")
    return details


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
