"""Rules: which samples a rank takes, in which order, and which random numbers."""

from collections import Counter

from onecurve.findings import finding

SPARE = 64  # samples that dealing leaves over, or adds
ONCE = "a sampler for all of the data, or a part of it for each rank, not both"
ALIKE = "order the data set alike on all ranks, by a generator with one seed"


def sliced(seen, size):
    """Return whether each rank takes its part of a batch, of a size, that all load."""
    for passes in seen.training_passes():
        sets = [set(one["rows"]) for one in passes]
        if all(sets):
            fewer = all(len(one["rows"]) < size for one in passes)
            return fewer and not set.intersection(*sets)
    return False


def samples_shared(seen):
    """Samples that several ranks train on in the same epoch."""
    epochs = seen.first_epochs()
    if len({epoch["identity"] for epoch in epochs}) > 1:
        yield from own_data(epochs)
    elif epochs:
        yield from judge_shares(epochs, sliced(seen, epochs[0]["sizes"][0]))


def own_data(epochs):
    """Judge ranks whose data sets differ: what is in them tells, not the indices."""
    line = epochs[0]["line"]
    counts = Counter()
    for epoch in epochs:
        counts.update(set(epoch["contents"]))
    twice = sum(count > 1 for count in counts.values())
    looked = f"{len(counts)} different samples were looked at"
    if twice >= len(epochs):
        told = f"the data set has another order on each rank: of {len(counts)} samples"
        details = [f"{told}, {twice} are taken by several ranks"]
        yield finding("overlap", line, details, repair=ALIKE)
        return
    sizes = [epoch["size"] for epoch in epochs]
    taken = [len(epoch["indices"]) for epoch in epochs]
    details = [f"{looked}, none of them on several ranks"]
    details.append(f"of {sizes} samples the ranks take {taken}")
    pairs = zip(taken, sizes, strict=True)
    if all(abs(one * len(epochs) - size) <= SPARE for one, size in pairs):
        details.append("each deals its own to the ranks, as if all had the same")
        yield finding("datasets", line, details, level="ERROR", repair=ONCE)
    else:
        yield finding("datasets", line, details)


def judge_shares(epochs, are_sliced):
    """Judge the indices that the ranks take of the same data set."""
    lists = [epoch["indices"] for epoch in epochs]
    counts = Counter(index for one in lists for index in set(one))
    twice = sum(count > 1 for count in counts.values())
    line = epochs[0]["line"]
    size = epochs[0]["size"]
    details = [f"{size} samples, {[len(one) for one in lists]} taken by the ranks"]
    drawn_again = any(len(set(one)) < len(one) for one in lists)
    if all(one == lists[0] for one in lists):
        if not are_sliced:
            yield finding("samples", line, details)
    elif drawn_again and all(len(one) >= size for one in lists):
        yield finding("whole", line, details)
    elif twice >= len(lists) and not drawn_again:
        details.append(
            f"{twice} are taken by several ranks, {size - len(counts)} by none"
        )
        yield finding("overlap", line, details)


def other_samples_shared(seen):
    """The same samples on all ranks, of a stream or without a DataLoader."""
    if any(epoch["indices"] for epoch in seen.readings(0, True)):
        return
    passes = list(seen.training_passes())
    drawn = any(one["drawn"] for one in seen.of("pass"))
    if not passes or not seen.of("step") or (losses_differ(seen) and not drawn):
        return
    if same_rows(passes):
        yield finding("samples", seen.of("pass")[0]["line"])


def losses_differ(seen):
    """Return whether ranks compute other losses: such as of other parts of a text."""
    for each in seen.together("backward"):
        return len({one["loss"] for one in each}) > 1
    return False


def numbers_of_batches(seen):
    """Ranks that have more batches in an epoch than others."""
    epochs = seen.first_epochs()
    counts = [len(epoch["sizes"]) for epoch in epochs]
    if len(set(counts)) > 1 and not seen.of("join"):
        yield finding("batches", epochs[0]["line"], counts=counts)


def same_order(seen):
    """Two epochs of training that take the samples in the same order."""
    orders = {}
    for epoch in seen.readings(0, True):
        if epoch["indices"]:
            orders.setdefault((epoch["line"], epoch["identity"]), []).append(epoch)
    for (line, _), epochs in orders.items():
        lists = [epoch["indices"] for epoch in epochs]
        if len(lists) > 1 and lists[0] == lists[1]:
            is_sorted = lists[0] == sorted(lists[0])
            yield finding("order", line, level="LOOK" if is_sorted else None)


def same_random_numbers(seen):
    """Augmentation, noise or dropout that draws the same numbers on all ranks."""
    lines = {epoch["line"] for epoch in seen.readings(0, True)}
    fetches = []
    for each in seen.on_all("fetch"):
        of_training = [one for one in each if one["line"] in lines]
        fetches.append(sorted(of_training, key=lambda one: one["worker"] or 0))
    passes = list(seen.training_passes())
    fetches = list(zip(*fetches, strict=False))
    yield from alike(fetches, "drawn", "augmentation")
    loads = bool(lines)
    if loads or not same_rows(passes):  # else it is those samples that are drawn
        what = "random numbers for different samples"
        yield from alike(passes, "before", what, None if loads else "LOOK")
    yield from alike(passes, "drawn", "dropout, or what else the network draws")


def same_rows(passes):
    """Return whether all ranks always train on the same samples."""
    return all(one["rows"] == each[0]["rows"] for each in passes for one in each)


def alike(events, name, what, level=None):
    """Compare the states from which the generators of all ranks were drawn."""
    same = Counter()
    first = []
    times = 0
    line = None
    for each in events:
        if each[0][name]:
            times += 1
            line = line or each[0]["line"]
        for generator, state in each[0][name].items():
            alike = all(one[name].get(generator) == state for one in each)
            same[generator] += alike
            if alike and times == 1:
                first.append(generator)
    details = []
    for generator, count in same.items():
        if count * 3 > times:
            details.append(f"generator {generator}: {count} of {times} times")
    if details:
        yield finding("random", line, details, level, what=what)
    elif first:
        told = f"at first, generator {', '.join(first)}; then they draw unlike often"
        yield finding("random", line, [told], "LOOK", what=what)


def evaluated_twice(seen):
    """Evaluations that count samples twice, or that every rank makes whole."""
    evaluations = {}
    for rank in seen.ranks:
        for epoch in seen.readings(rank, False):
            if epoch["indices"] and epoch["identity"]:
                place = epoch["line"], epoch["number"], epoch["identity"]
                evaluations.setdefault(place, []).append(epoch)
    told = set()
    by = {call["by"] for call in seen.of("collective_call")}
    if "gather_for_metrics" in by:  # accelerate's: it drops those that came twice
        return
    for (line, _, _), epochs in evaluations.items():
        if len(epochs) > 1 and line not in told:
            told.add(line)
            yield from judge_evaluation(line, epochs)


def judge_evaluation(line, epochs):
    """Judge which samples the ranks evaluate in one evaluation."""
    lists = [epoch["indices"] for epoch in epochs]
    size = epochs[0]["size"]
    twice = sum(len(one) for one in lists) - len(set().union(*lists))
    if all(sorted(one) == sorted(lists[0]) for one in lists):
        yield finding("evaluated", line, size=len(lists[0]))
    elif twice:
        yield finding("twice", line, twice=twice, size=size)
