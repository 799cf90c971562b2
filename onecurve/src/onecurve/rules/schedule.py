"""Only one rank steps the scheduler, or each passes its own metric, so learning rates
differ. It is a LOOK if one rank steps it and then broadcasts a number.
"""

from itertools import pairwise

from onecurve.evidence.found import found, of_each_rank

LEVEL = "ERROR"
MESSAGE = "ranks step the scheduler differently"
FIX = "step it on every rank, with a metric that all_reduce made equal"


def find(seen):
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    rates = [[step["rates"] for step in each] for each in seen.on_all("step")]
    # if rates change equally on all ranks, one may broadcast them
    alike = all(one == rates[0] for one in rates) and rates[0][:1] != rates[0][-1:]
    if len(set(counts)) > 1 and not seen.of("join") and not alike:
        most = counts.index(max(counts))
        line = calls[most][min(counts)]["line"]
        told = of_each_rank(f"{count} times" for count in counts)
        yield found(line, told, "LOOK" if is_broadcast(seen.events[most]) else None)
        return
    for each in seen.together("schedule"):
        numbers = [one["metric"] for one in each]
        if len(set(numbers)) > 1:
            yield found(each[0]["line"], of_each_rank(numbers))
            return


def is_broadcast(events):
    """Return whether a rank broadcasts a number right after a scheduler's step."""
    kinds = "schedule", "collective_call"
    known = [one for one in events if one["kind"] in kinds]
    after = [b for a, b in pairwise(known) if (a["kind"], b["kind"]) == kinds]
    return all(one["name"] == "broadcast" and one["numbers"] == 1 for one in after)
