"""Only one rank steps the scheduler, or each passes its own metric, so learning rates
differ. It is a LOOK if rates are still equal and that rank sends single numbers.
"""

from onecurve.evidence.found import found, of_each_rank

LEVEL = "ERROR"
MESSAGE = "ranks step the scheduler differently"
FIX = "step it on every rank, with a metric that all_reduce made equal"


def find(seen):
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    rates = [[step["rates"] for step in each] for each in seen.on_all("step")]
    alike = all(one == rates[0] for one in rates)
    changes = rates[0][:1] != rates[0][-1:]  # then one rank may broadcast them
    if len(set(counts)) > 1 and not seen.of("join") and not (alike and changes):
        most = counts.index(max(counts))
        sent = [one["numbers"] for one in seen.of("collective_call", most)]
        told = of_each_rank(f"{count} times" for count in counts)
        level = "LOOK" if alike and 1 in sent else None  # that may be a rate
        yield found(calls[most][min(counts)]["line"], told, level)
        return
    for each in seen.together("schedule"):
        numbers = [one["metric"] for one in each]
        if len(set(numbers)) > 1:
            yield found(each[0]["line"], of_each_rank(numbers))
            return
