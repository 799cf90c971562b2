"""Only one rank steps the scheduler, or each passes its own metric, so learning rates
differ. It is a LOOK if one rank steps it and then broadcasts a number.
"""

from onecurve.evidence.found import found, of_each_rank

LEVEL = "ERROR"
MESSAGE = "ranks step the scheduler differently"
FIX = "step it on every rank, with a metric that all_reduce made equal"


def find(seen):
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    if len(set(counts)) > 1 and not seen.of("join") and not rates_move_alike(seen):
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


def rates_move_alike(seen):
    """Return whether rates change equally on all ranks: one may broadcast them."""
    ranks = [[step["rates"] for step in each] for each in seen.on_all("step")]
    return all(each == ranks[0] for each in ranks) and ranks[0][0] != ranks[0][-1]


def is_broadcast(events):
    """Return whether a rank broadcasts a number right after a scheduler's step."""
    waits = False
    for event in events:
        if event["kind"] == "schedule":
            waits = True
        elif event["kind"] == "collective_call" and waits:
            if event["numbers"] != 1 or event["name"] != "broadcast":
                return False
            waits = False
    return True
