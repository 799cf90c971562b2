"""The known mistakes, each found in what the ranks have written down.

A rule is a function of a Seen that yields Findings. It says ERROR only of what it has
seen happen; LOOK is for what may be meant so.
"""

from collections import Counter

from tools.inspect import shares, steps
from tools.inspect.seen import Finding
from tools.watch.collectives import first_difference

TIME_WORDS = {"time", "seconds", "sec", "secs", "elapsed", "eta", "dt", "speed", "rank"}
NO_MORE = "no more"  # of the collectives that others call
SMALL = 1e-6  # relative: numbers that are closer are equal


def same_random_numbers(seen):
    """Augmentation, noise or dropout that draws the same numbers on all ranks."""
    lines = {epoch["line"] for epoch in seen.readings(0, True)}
    fetches = []
    for each in seen.on_all("fetch"):
        of_training = [one for one in each if one["line"] in lines]
        fetches.append(sorted(of_training, key=worker_of))
    passes = [[one for one in each if one["grad"]] for each in seen.on_all("pass")]
    found = "the ranks draw the same augmentation"
    yield from alike(fetches, "drawn", found)
    found = "the ranks draw the same random numbers for different samples"
    yield from alike(passes, "drawn_before", found)
    found = "the ranks draw the same dropout, or what else the network draws"
    yield from alike(passes, "drawn", found)


def worker_of(event):
    """Return the number of the worker that wrote an event."""
    return event["worker"] or 0


def alike(events, name, what):
    """Compare the states of the generators before they were drawn from."""
    same = Counter()
    times = 0
    line = None
    for each in zip(*events, strict=False):
        times += bool(each[0][name])
        if each[0][name]:
            line = line or each[0]["line"]
        for generator, state in each[0][name].items():
            same[generator] += all(one[name].get(generator) == state for one in each)
    details = []
    for generator, count in same.items():
        if count * 3 > times:
            details.append(f"generator {generator}: {count} of {times} times")
    if details:
        see = "exercise 34: seed them by the rank: seed + rank"
        yield Finding("ERROR", what, line, details, see)


def collectives_differ(seen):
    """Ranks that call different collectives, or in another order."""
    calls = seen.on_all("collective")
    found = first_difference(calls)
    if found:
        number, rank, first, other = found
        details = []
        for one, call in (0, first), (rank, other):
            told = f"{call['name']} at {call['line']}" if call else NO_MORE
            details.append(f"rank {one}: {told}")
        what = f"the ranks part at collective call {number}"
        line = (first or other)["line"]
        yield Finding("ERROR", what, line, details, "every rank calls each collective")


def gradient_cut(seen):
    """Gathered features through which no gradient flows back."""
    for event in seen.of("collective"):
        if event["cuts"] and event["name"].startswith("all_gather"):
            what = f"no gradient flows back through {event['name']}"
            details = ["on one rank neither: the gradients of 1 and more ranks agree"]
            see = "torch.distributed.nn.functional.all_gather lets it flow"
            yield Finding("LOOK", what, event["line"], details, see)
            return


def one_file(seen):
    """A file that several ranks write."""
    writers = {}
    for rank in seen.ranks:
        for event in seen.of("file", rank):
            if event["line"]:
                writers.setdefault(event["path"], {}).setdefault(rank, event)
    for path, events in writers.items():
        if len(events) > 1:
            appended = all(event["appended"] for event in events.values())
            what = f"ranks {sorted(events)} write the same file: {path}"
            see = "write on rank 0, or into a file for each rank"
            line = next(iter(events.values()))["line"]
            yield Finding("LOOK" if appended else "ERROR", what, line, [], see)


def printed_numbers(seen, rank):
    """Return {(line, which time): (numbers there, whether in an epoch)} of a rank."""
    table = {}
    training = False
    for event in seen.events[rank]:
        if event["kind"] in ("before_step", "read"):
            training = event["kind"] == "before_step"
        if event["kind"] == "numbers":
            table[event["line"], event["times"]] = event["numbers"], training
    return table


def numbers_of_rank_0(seen):
    """Numbers that rank 0 prints though other ranks have others."""
    tables = [printed_numbers(seen, rank) for rank in seen.ranks]
    taken = []
    for rank in seen.ranks:
        events = seen.of("taken", rank)
        taken.append({(event["branch"], event["times"]) for event in events})
    told = set()
    for place in sorted(set.intersection(*(set(table) for table in tables))):
        takers = sum(place in one for one in taken)
        if takers in (0, len(taken)):
            continue  # a branch that none takes, or all
        for text, values in differing_numbers([table[place][0] for table in tables]):
            if (place[0], text) in told:
                continue
            told.add((place[0], text))
            details = [f"rank {rank}: {value:.6f}" for rank, value in enumerate(values)]
            what = f"one rank's number is printed: {text}"
            level = "LOOK" if tables[0][place][1] else "ERROR"
            see = "all_reduce what it is made of: sums and counts"
            yield Finding(level, what, place[0], details, see)


def differing_numbers(tables):
    """Yield (text, values) of expressions whose numbers differ between ranks."""
    for text in tables[0]:
        words = set(text.lower().replace(".", "_").split("_"))
        values = [table[text] for table in tables if text in table]
        if len(values) < len(tables) or words & TIME_WORDS:
            continue
        if max(values) - min(values) > SMALL * max(abs(value) for value in values):
            yield text, values


RULES = [
    steps.weights_differ,
    steps.gradients_differ,
    steps.no_gradients,
    steps.rates_differ,
    steps.schedules_differ,
    shares.samples_shared,
    shares.stream_shared,
    shares.own_batches_shared,
    shares.numbers_of_batches,
    shares.same_order,
    same_random_numbers,
    steps.exchanges,
    steps.sharded_exchanges,
    steps.clipped_alone,
    shares.evaluated_twice,
    steps.evaluated_network,
    collectives_differ,
    gradient_cut,
    one_file,
    numbers_of_rank_0,
]


def alone(seen):
    """A script that never joins the other ranks."""
    if not seen.of("joined") and seen.of("step"):
        what = "the ranks never meet: each trains a network of its own"
        see = "04_ddp: init_process_group, a sampler, and DDP"
        yield Finding("ERROR", what, seen.of("step")[0]["line"], [], see)


# Ranks that hold parts of one model take the same samples, and must.
SHARE = [shares.samples_shared, shares.stream_shared, shares.own_batches_shared]
SHARE += [shares.evaluated_twice, same_random_numbers]
PIPELINE = [steps.weights_differ, steps.gradients_differ]


def findings(seen):
    """Return what all rules find in a run."""
    found = list(alone(seen))
    if found:
        return found
    left_out = []
    if seen.of("split"):
        left_out += SHARE
    if seen.of("pipeline"):
        left_out += PIPELINE
    for rule in RULES:
        if rule not in left_out:
            found += rule(seen)
    return found
