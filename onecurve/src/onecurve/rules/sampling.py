"""Rules for each rank's samples, their order, and random numbers."""

from collections import Counter

from onecurve.rules.findings import finding

MOSTLY = 0.75  # of the samples that an epoch skips
SPARE = 64  # samples that sharding drops or adds
ONCE = "use a sampler over all of the data or one part per rank, not both"
ALIKE = "use the same dataset order on all ranks: a generator with the same seed"


def sliced(seen, size):
    """Return whether ranks use different parts of the same batch of `size` samples.

    If `size` is 1, a sample may be a whole batch.
    """
    for passes in seen.training_passes():
        sets = [set(one["rows"]) for one in passes]
        if all(sets):
            lengths = [len(one["rows"]) for one in passes]
            fewer = max(lengths) < size or size == 1 < min(lengths)
            return fewer and not set.intersection(*sets)
    return False


def used_twice(lists):
    """Return how many indices are in several lists."""
    counts = Counter(index for one in lists for index in set(one))
    return sum(count > 1 for count in counts.values())


def before_padding(epoch):
    """Return an epoch's indices without its last batch, which may be padded."""
    last = epoch["sizes"][-1] if len(epoch["sizes"]) > 1 else 0
    return epoch["indices"][: len(epoch["indices"]) - last]


def samples_shared(seen):
    """Find samples that ranks share in the first two epochs or on another dataset."""
    for number in range(2):
        epochs = seen.first_epochs(number)
        found = []
        if len({epoch["identity"] for epoch in epochs}) > 1:
            found = [*own_data(epochs)]
        elif epochs:
            found = [*judge_shares(epochs, sliced(seen, epochs[0]["sizes"][0]))]
        yield from found
        if found:
            return
    for epochs in seen.epochs_of_others():
        yield from judge_shares(epochs, sliced(seen, epochs[0]["sizes"][0]))


def never_taken(seen):
    """Find samples that no rank uses in any epoch, although orders differ."""
    epochs = [seen.first_epochs(number) for number in range(2)]
    if not all(epochs):
        return
    lists = [[each["indices"] for each in one] for one in epochs]
    first = epochs[0][0]
    taken = [set().union(*one) for one in lists]
    lacks = [first["size"] - len(one) for one in taken]
    never = first["size"] - len(taken[0] | taken[1])
    known = first["whole"] and len({each["identity"] for each in epochs[0]}) == 1
    again = any(len(set(one)) < len(one) for one in lists[0])  # drawn with replacement
    most = never > max(2, MOSTLY * min(lacks))  # others are skipped by chance
    if known and not again and lists[0] != lists[1] and most:
        yield finding("never", first["dealt"], count=never, size=first["size"])


def own_data(epochs):
    """Judge ranks with different datasets, by contents instead of indices."""
    line = epochs[0]["line"]
    lists = [epoch["contents"] for epoch in epochs]
    twice = used_twice(lists)
    count = len(set().union(*lists))
    looked = f"{count} different samples were compared"
    if twice >= len(epochs):
        told = f"each rank orders the dataset differently: of {count} samples"
        details = [f"{told}, {twice} are used by more than one"]
        yield finding("overlap", line, details, repair=ALIKE)
        return
    sizes = [epoch["size"] for epoch in epochs]
    taken = [len(epoch["indices"]) for epoch in epochs]
    details = [f"{looked}, none is on more than one rank"]
    details.append(f"of {sizes} samples, the ranks use {taken}")
    pairs = zip(taken, sizes, strict=True)
    if all(abs(one * len(epochs) - size) <= SPARE for one, size in pairs):
        details.append("each rank shards its own dataset as if all ranks shared it")
        yield finding("datasets", line, details, level="ERROR", repair=ONCE)
    else:
        yield finding("datasets", line, details)


def judge_shares(epochs, are_sliced):
    """Judge the indices that ranks use of the same dataset."""
    lists = [epoch["indices"] for epoch in epochs]
    line = epochs[0]["dealt"]
    size = epochs[0]["size"]
    details = [f"{size} samples, used per rank: {[len(one) for one in lists]}"]
    drawn_again = any(len(set(one)) < len(one) for one in lists)
    if all(one == lists[0] for one in lists):
        if not are_sliced:
            yield finding("samples", line, details)
    elif used_twice(map(before_padding, epochs)) >= len(lists) and not drawn_again:
        never = size - len(set().union(*lists))
        twice = used_twice(lists)
        details.append(f"{twice} are used by more than one rank, {never} by none")
        yield finding("overlap", line, details)


def numbers_of_batches(seen, hang):
    """Find ranks with more batches per epoch than others, which causes a `hang`."""
    lengths = []
    for rank in seen.ranks:
        begun = [one for one in seen.of("begun", rank) if one["trains"]]
        lengths += begun[:1]
    counts = [one["batches"] for one in lengths]
    if len(counts) == len(seen.ranks) and len(set(counts)) > 1:
        yield finding("batches", lengths[0]["line"], hang.details, counts=counts)


def same_order(seen):
    """Find training epochs that use the samples in the same order."""
    orders = {}
    for epoch in seen.readings(0, True):
        if epoch["indices"]:
            orders.setdefault((epoch["line"], epoch["identity"]), []).append(epoch)
    for epochs in orders.values():
        lists = [epoch["indices"] for epoch in epochs]
        if len(lists) > 1 and lists[0] == lists[1]:
            level = "LOOK" if lists[0] == sorted(lists[0]) else None
            told = [f"epochs start at {epochs[0]['begun']}"]
            yield finding("order", epochs[0]["dealt"], told, level=level)
        else:
            yield from same_order_later(epochs, lists)


def same_order_later(epochs, lists):
    """Find an epoch that repeats an earlier order, often by a resumed run."""
    for later, one in enumerate(lists):
        if one in lists[:later] and one != sorted(one):
            numbers = {"later": later + 1, "earlier": lists.index(one) + 1}
            told = [f"it starts at {epochs[later]['begun']}"]
            yield finding("again", epochs[later]["dealt"], told, **numbers)
            return


def same_random_numbers(seen):
    """Find augmentation, noise or dropout that draws equal numbers on all ranks."""
    lines = {epoch["line"] for epoch in seen.readings(0, True)}
    fetches = []
    for each in seen.on_all("fetch"):
        of_training = [one for one in each if one["line"] in lines]
        fetches.append(sorted(of_training, key=lambda one: one["worker"] or 0))
    passes = list(seen.training_passes())
    fetches = list(zip(*fetches, strict=False))
    seeded = seeds_set_alike(seen)
    epochs = seen.first_epochs()
    shared = len({tuple(epoch["indices"]) for epoch in epochs}) == 1
    if not (shared and sliced(seen, epochs[0]["sizes"][0])):
        yield from alike(fetches, "drawn", "augmentation", seeded)
    loads = bool(lines)
    others = rows_known(passes) and not same_rows(passes)
    if loads or others:  # else the samples themselves are drawn
        what = "random numbers for different samples"
        yield from alike(passes, "before", what, seeded, None if loads else "LOOK")
    if not same_rows(passes):  # the same samples may have the same noise
        what = "dropout or other noise in the network"
        yield from alike(passes, "drawn", what, seeded)


def seeds_set_alike(seen):
    """Return {generator: line} of the last seeds, if all ranks set the same one."""
    seeds = seeds_set(seen)
    return {name: line for name, (line, alike) in seeds.items() if alike}


def seeds_set(seen):
    """Return {generator: (line, whether equal)} of the last seeds on all ranks."""
    last = []
    for each in seen.on_all("seeded"):
        last.append({one["generator"]: (one["seed"], one["line"]) for one in each})
    found = {}
    for generator, (seed, line) in last[0].items():
        if all(generator in one for one in last):
            alike = all(one[generator][0] == seed for one in last)
            found[generator] = line, alike
    return found


def same_rows(passes):
    """Return whether all ranks always train on the same, known samples."""
    same = all(one["rows"] == each[0]["rows"] for each in passes for one in each)
    return same and rows_known(passes)


def rows_known(passes):
    """Return whether any pass has known samples; sentences, for example, have none."""
    return any(one["rows"] for each in passes for one in each)


def alike(events, name, what, seeded, level=None):
    """Find generators with equal states on all ranks; `seeded` is {generator: line}."""
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
    often = [name for name, count in same.items() if count > max(2, times / 3)]
    often += [name for name, count in same.items() if count == times <= 2]
    details = [f"generator {one}: equal {same[one]} of {times} times" for one in often]
    if first and not often:
        told = f"generator {', '.join(first)}: equal at first"
        details = [f"{told}, then ranks draw different amounts"]
        level = "LOOK"
    if details:
        cause = seeded.get((often or first)[0])
        details += [f"drawn at {line}"] if cause else []
        yield finding("random", cause or line, details, level, what=what)
