"""The known mistakes, each found in what the ranks have written down.

A rule is a function of a Seen that yields Findings. It says ERROR only of what it has
seen happen; LOOK is for what may be meant so.
"""

from collections import Counter
from dataclasses import dataclass, field

from tools.watch.collectives import first_difference

TIME_WORDS = {"time", "seconds", "sec", "secs", "elapsed", "eta", "dt", "speed", "rank"}
SMALL = 1e-6  # relative: numbers that are closer are equal


@dataclass
class Finding:
    """What a rule has found: one line, where, and what each rank had."""

    level: str  # ERROR, SLOW or LOOK
    what: str
    line: str | None = None
    details: list = field(default_factory=list)
    see: str = ""  # what repairs it


class Seen:
    """The events of a run, by rank and kind."""

    def __init__(self, events):
        self.events = events
        self.ranks = range(len(events))

    def of(self, kind, rank=0):
        """Return the events of a kind on a rank."""
        return [event for event in self.events[rank] if event["kind"] == kind]

    def on_all(self, kind):
        """Return a list of the events of a kind for each rank."""
        return [self.of(kind, rank) for rank in self.ranks]

    def together(self, kind):
        """Yield tuples: the n-th event of a kind on each rank."""
        yield from zip(*self.on_all(kind), strict=False)

    def readings(self, rank, trained):
        """Return the epochs of loaders that trained, or that did not, as dicts.

        Each is the event at its end, with the event `indices` of the same epoch under
        that name, or None.
        """
        indices = {key(event): event for event in self.of("indices", rank)}
        found = []
        for event in self.of("read", rank):
            if event["trained"] == trained:
                found.append({**event, "indices": indices.get(key(event))})
        return found


def key(event):
    """Return what identifies an epoch of a loader on a rank."""
    return event["line"], event["made"], event["number"]


def first_split(pairs):
    """Return (name, values) of the first dict entry that differs between ranks.

    `pairs` is one dict for each rank; entries that a rank lacks are left out.
    """
    names = set.intersection(*(set(one) for one in pairs))
    for name in pairs[0]:
        if name in names and len({str(one[name]) for one in pairs}) > 1:
            return name
    return None


def weights_differ(seen):
    """The weights, or what is added to them, are not equal on all ranks."""
    for number, steps in enumerate(seen.together("step"), start=1):
        name = first_split([step["weights"] for step in steps])
        if name:
            before = list(seen.together("before_step"))[number - 1]
            yield from why_weights_differ(seen, number, name, steps, before)
            return


def why_weights_differ(seen, number, name, steps, before):
    """Say what is known of a parameter that differs after a step."""
    what = f"after step {number} the weights differ between the ranks"
    details = [f"the first: {name}"]
    see = "04_ddp: wrap the model, and call the wrapper"
    differ = first_split([step["gradients"] for step in before])
    inside = [event for event in seen.of("pass") if event["inside"] and event["grad"]]
    if not differ:
        details.append("its gradient is the same: the ranks began with other weights,")
        details.append("or step with other learning rates or other state")
    elif not seen.of("ddp"):
        details.append("its gradient differs, and no module is wrapped in DDP")
    elif name not in before[0]["wrapped"]:
        details.append("its gradient differs: DDP wraps another module, not this one")
    elif inside:
        details.append(f"the model is called past DDP at {inside[0]['line']}")
    else:
        details.append("its gradient differs, though DDP wraps the module")
    yield Finding("ERROR", what, steps[0]["line"], details, see)


def gradients_differ(seen):
    """A gradient that is equal nowhere else, with weights that happen to be equal."""
    if any(first_split([s["weights"] for s in each]) for each in seen.together("step")):
        return
    for number, steps in enumerate(seen.together("before_step"), start=1):
        name = first_split([step["gradients"] for step in steps])
        if name:
            what = f"before step {number} a gradient differs between the ranks: {name}"
            yield Finding("LOOK", what, steps[0]["line"])
            return


def rates_differ(seen):
    """The learning rates are not equal on all ranks."""
    for number, steps in enumerate(seen.together("step"), start=1):
        rates = [step["rates"] for step in steps]
        if any(one != rates[0] for one in rates):
            details = [f"rank {rank}: {one}" for rank, one in enumerate(rates)]
            what = f"in step {number} the ranks have different learning rates"
            see = "step the scheduler on every rank, by the same numbers"
            yield Finding("ERROR", what, steps[0]["line"], details, see)
            return


def sliced_by_hand(seen):
    """Return whether the ranks put different samples through the network.

    Some scripts load the whole batch on each rank, and take a rank's part of it.
    """
    equal = 0
    different = 0
    for passes in seen.together("pass"):
        if all(one["grad"] and one["rows"] for one in passes):
            sets = [set(one["rows"]) for one in passes]
            equal += bool(set.intersection(*sets))
            different += not set.intersection(*sets)
    return different > 0 and equal == 0


def samples_shared(seen):
    """Samples that several ranks train on in the same epoch, or none does."""
    for epochs in zip(
        *(seen.readings(rank, True) for rank in seen.ranks), strict=False
    ):
        if any(epoch["indices"] is None for epoch in epochs):
            continue
        yield from shares(seen, epochs)
        return


def shares(seen, epochs):
    """Judge the ranks' shares of an epoch of training."""
    lists = [epoch["indices"]["indices"] for epoch in epochs]
    first = epochs[0]["indices"]
    line = epochs[0]["line"]
    if not all(epoch["indices"]["complete"] for epoch in epochs):
        return
    if len({epoch["indices"]["identity"] for epoch in epochs}) > 1:
        return  # each rank has a data set of its own
    counts = Counter(index for one in lists for index in set(one))
    twice = sum(count > 1 for count in counts.values())
    size = first["size"]
    details = [f"{size} samples, {[len(one) for one in lists]} taken by the ranks"]
    drawn_again = first["replacement"] or any(len(set(o)) < len(o) for o in lists)
    if all(one == lists[0] for one in lists):
        if sliced_by_hand(seen):
            return
        what = "every rank trains on the same samples, in the same order"
        see = "04_ddp: pass a sampler that gives each rank its share"
        yield Finding("ERROR", what, line, details, see)
    elif not drawn_again and twice >= len(lists):
        none = size - len(counts)
        details.append(f"{twice} are taken by several ranks, {none} by none")
        what = "the ranks' shares of an epoch overlap"
        see = "04_ddp: DistributedSampler, or [rank::world_size] of one order for all"
        yield Finding("ERROR", what, line, details, see)


def stream_shared(seen):
    """The same samples of a stream on several ranks."""
    streams = [one for one in seen.of("reading") if one["stream"]]
    if not streams or sliced_by_hand(seen):
        return
    same = 0
    all_rows = 0
    batches = seen.on_all("batch")
    lines = {one["line"] for one in streams}
    rows = []
    for one in batches:
        rows.append({row for b in one if b["line"] in lines for row in b["rows"]})
    same = len(set.intersection(*rows))
    all_rows = max(len(one) for one in rows)
    if all_rows and same > all_rows / 2:
        details = [f"{same} of {all_rows} samples that were read are the same"]
        see = "exercises: the whole stream, on every rank"
        what = "every rank reads the whole stream"
        yield Finding("ERROR", what, streams[0]["line"], details, see)


def numbers_of_batches(seen):
    """Ranks that have more batches in an epoch than others."""
    for epochs in zip(
        *(seen.readings(rank, True) for rank in seen.ranks), strict=False
    ):
        if any(epoch["indices"] is None for epoch in epochs):
            continue
        counts = [len(epoch["indices"]["sizes"]) for epoch in epochs]
        if len(set(counts)) > 1:
            what = f"the ranks have {counts} batches in an epoch: the last ones wait"
            see = "give all ranks the same number, or use Join"
            yield Finding("ERROR", what, epochs[0]["line"], [], see)
            return


def same_order(seen):
    """Two epochs of training that take the samples in the same order."""
    orders = {}
    for epoch in seen.readings(0, True):
        if epoch["indices"] and epoch["indices"]["complete"]:
            key = epoch["line"], epoch["indices"]["identity"]
            orders.setdefault(key, []).append(epoch["indices"])
    for (line, _), epochs in orders.items():
        if len(epochs) < 2 or epochs[0]["indices"] != epochs[1]["indices"]:
            continue
        indices = epochs[0]["indices"]
        if indices == sorted(indices):
            what = "the samples are not shuffled"
            yield Finding("LOOK", what, line)
        else:
            what = "every epoch takes the samples in the same order"
            see = "04_ddp: sampler.set_epoch(epoch) before each epoch"
            yield Finding("ERROR", what, line, [], see)


def same_random_numbers(seen):
    """Augmentation or dropout that draws the same numbers on all ranks."""
    trained = {(e["line"]) for e in seen.readings(0, True)}
    yield from alike(seen, "fetch", "augmentation", "data", trained)
    yield from alike(
        seen, "pass", "dropout, or what else the network draws", "network", ()
    )


def alike(seen, kind, what, where, trained):
    """Compare the states of the generators before they were drawn from."""
    events = seen.on_all(kind)
    if kind == "fetch":
        events = [sorted(one, key=lambda e: e["worker"] or 0) for one in events]
    else:
        events = [[e for e in one if e["grad"]] for one in events]
    same = Counter()
    times = 0
    for each in zip(*events, strict=False):
        times += bool(each[0]["drawn"])
        for name, state in each[0]["drawn"].items():
            same[name] += all(one["drawn"].get(name) == state for one in each)
    names = [name for name, count in same.items() if count * 2 > times]
    if names and times:
        lines = [e.get("line") for e in seen.of(kind) if e["drawn"] and e.get("line")]
        details = [f"generator {n}: {same[n]} of {times} times" for n in names]
        see = "seed them by the rank: seed + rank"
        found = f"the ranks draw the same {what}"
        line = lines[0] if lines else next(iter(sorted(trained)), None)
        yield Finding("ERROR", found, line, details, see)


def exchanges(seen):
    """Gradients that are exchanged more than once for a step."""
    counts = [event["exchanges"] for event in seen.of("before_step")]
    often = [count for count in counts if count > 1]
    if len(often) > len(counts) / 2:
        what = f"gradients are exchanged {often[0]} times for a step"
        lines = [event["line"] for event in seen.of("backward")]
        see = "model.no_sync() for all batches of a step but the last"
        yield Finding("SLOW", what, lines[0] if lines else None, [], see)


def clipped_alone(seen):
    """Clipping by a norm that is not the same on all ranks."""
    for clips in seen.together("clip"):
        norms = [clip["norm"] for clip in clips]
        if max(norms) - min(norms) > 1e-4 * max(norms):
            details = [
                f"rank {rank}: norm {norm:.6f}" for rank, norm in enumerate(norms)
            ]
            what = "each rank clips by a norm of its own"
            see = "clip after the last backward(), when the gradients are averaged"
            yield Finding("ERROR", what, clips[0]["line"], details, see)
            return


def evaluated_twice(seen):
    """Evaluations that count samples twice, or leave some out."""
    by_line = {}
    for rank in seen.ranks:
        for epoch in seen.readings(rank, False):
            indices = epoch["indices"]
            if indices and indices["complete"] and indices["identity"]:
                place = (
                    epoch["line"],
                    indices["identity"],
                    epoch["number"],
                    epoch["made"],
                )
                by_line.setdefault(place, {})[rank] = indices
    told = set()
    for (line, *_), shares in by_line.items():
        if len(shares) < 2 or line in told:
            continue
        told.add(line)
        yield from judge_evaluation(line, shares)


def judge_evaluation(line, shares):
    """Judge which samples each rank evaluates: {rank: event `indices`}."""
    lists = [one["indices"] for one in shares.values()]
    size = next(iter(shares.values()))["size"]
    counts = Counter(index for one in lists for index in one)
    twice = sum(count - 1 for count in counts.values())
    padding = {one["sampler"] for one in shares.values()} == {"DistributedSampler"}
    if all(sorted(one) == sorted(lists[0]) for one in lists):
        what = f"every rank evaluates all {len(lists[0])} samples"
        yield Finding("SLOW", what, line, [], "05_ddp_inference: each rank its share")
    elif 0 < twice:
        what = f"the evaluation counts {twice} of {size} samples twice"
        see = "05_ddp_inference: Subset(test, range(rank, len(test), world_size))"
        yield Finding("ERROR", what, line, [], see)
    elif padding and size % (len(lists) + 1):
        extra = -size % (len(lists) + 1)
        more = len(lists) + 1
        what = f"on {more} ranks DistributedSampler evaluates {extra} samples twice"
        yield Finding(
            "LOOK", what, line, [f"{size} samples; {len(lists)} ranks are exact"]
        )


def evaluated_network(seen):
    """Ranks that evaluate networks which are not equal."""
    passes = [
        [one for one in each if not one["grad"] and not one["training"]]
        for each in seen.on_all("pass")
    ]
    for each in zip(*passes, strict=False):
        name = first_split([one["buffers"] for one in each])
        if name:
            what = f"the ranks evaluate with different buffers: {name}"
            details = [
                "such as BatchNorm's statistics: each rank has those of its data"
            ]
            see = "broadcast the buffers from rank 0 before the evaluation"
            yield Finding("ERROR", what, each[0]["line"], details, see)
            return


def collectives_differ(seen):
    """Ranks that call different collectives, or in another order."""
    calls = seen.on_all("collective")
    found = first_difference(calls)
    if found:
        number, rank, first, other = found
        details = []
        for one, call in (0, first), (rank, other):
            told = f"{call['name']} at {call['line']}" if call else "no more"
            details.append(f"rank {one}: {told}")
        what = f"the ranks part at collective call {number}"
        line = (first or other)["line"]
        yield Finding("ERROR", what, line, details, "every rank calls each collective")


def one_file(seen):
    """A file that several ranks write."""
    writers = {}
    for rank in seen.ranks:
        for event in seen.of("file", rank):
            writers.setdefault(event["path"], {}).setdefault(rank, event)
    for path, ranks in writers.items():
        if len(ranks) > 1:
            level = "LOOK" if all(e["appended"] for e in ranks.values()) else "ERROR"
            what = f"ranks {sorted(ranks)} write the same file: {path}"
            see = "write on rank 0, or into a file for each rank"
            yield Finding(level, what, next(iter(ranks.values()))["line"], [], see)


def numbers_of_rank_0(seen):
    """Numbers that rank 0 prints though other ranks have others."""
    tables = []
    for rank in seen.ranks:
        table = {}
        training = False
        for event in seen.events[rank]:
            if event["kind"] in ("before_step", "read"):
                training = event["kind"] == "before_step"
            if event["kind"] == "numbers":
                table[event["line"], event["times"]] = event["numbers"], training
        tables.append(table)
    taken = []
    for rank in seen.ranks:
        events = seen.of("taken", rank)
        taken.append({(event["branch"], event["times"]) for event in events})
    told = set()
    for place in sorted(set.intersection(*(set(table) for table in tables))):
        if not any(place in one for one in taken) or all(place in one for one in taken):
            continue
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
    weights_differ,
    gradients_differ,
    rates_differ,
    samples_shared,
    stream_shared,
    numbers_of_batches,
    same_order,
    same_random_numbers,
    exchanges,
    clipped_alone,
    evaluated_twice,
    evaluated_network,
    collectives_differ,
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
SHARE = [samples_shared, stream_shared, evaluated_twice, same_random_numbers]


def findings(seen):
    """Return what all rules find in a run."""
    found = list(alone(seen))
    if found:
        return found
    left_out = []
    if seen.of("split"):
        left_out += SHARE
    if seen.of("pipeline"):
        left_out += [weights_differ, gradients_differ]
    rules = [rule for rule in RULES if rule not in left_out]
    for rule in rules:
        found += rule(seen)
    return found
