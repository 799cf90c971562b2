"""Which samples the ranks use, by their indices in a dataset or by their contents."""

from collections import Counter

FEW = 6  # samples that may be equal by chance
SHARED = 0.1  # fraction of a stream
ALIKE = "use the same dataset order on all ranks: sort it, or use the same seed"
# What `shares` tells apart.
SAME, OVERLAP, OWN_ORDER, OWN_DATA = "same", "overlap", "own order", "own data"


def shares(seen):
    """Yield (what is wrong, epochs of all ranks) for datasets of which ranks use parts.

    These are the first training epoch with a problem, of two, or else the first epochs
    on other datasets.
    """
    for number in range(2):
        epochs = seen.first_epochs(number)
        wrong = epochs and wrong_in(seen, epochs)
        if wrong:
            yield wrong, epochs
            return
    for epochs in seen.epochs_of_others():
        yield wrong_in(seen, epochs), epochs


def wrong_in(seen, epochs):
    """Return what is wrong with the samples that ranks use in an epoch, or None."""
    if not are_known(epochs):
        return None
    if len({epoch["identity"] for epoch in epochs}) > 1:
        lists = [epoch["contents"] for epoch in epochs]
        twice = used_twice(lists)
        return OWN_ORDER if twice > SHARED * min(map(len, lists)) else OWN_DATA
    lists = [epoch["indices"] for epoch in epochs]
    if all(one == lists[0] for one in lists):
        return None if sliced(seen, epochs[0]["sizes"][0]) else SAME
    if any(len(set(one)) < len(one) for one in lists):
        return None  # drawn with replacement
    size = epochs[0]["size"]
    whole = len(set().union(*lists)) == size and sum(map(len, lists)) < 1.5 * size
    if whole and epochs[0]["own_batches"]:
        return None  # each bucket may be padded
    twice = used_twice(map(before_padding, epochs))
    return OVERLAP if twice >= len(lists) else None


def is_share(epoch, count):
    """Return whether one of `count` parts is used, but for a batch dropped or added."""
    size, batch, used = epoch["size"], epoch["sizes"][0], len(epoch["indices"])
    return size - used >= batch and abs(used - size / count) <= batch


def are_known(epochs):
    """Return whether positions, or else contents, tell the ranks' samples apart."""
    data = {epoch["identity"] for epoch in epochs}
    lists = [epoch["contents"] for epoch in epochs]
    unlike = all(one and len(set(one)) == len(one) for one in lists)
    return None not in data and (len(data) == 1 or unlike)


def dealt(epochs):
    """Return the line that deals samples to ranks, and a fix if it isn't a sampler."""
    if len({epoch["part"] for epoch in epochs}) > 1:
        return epochs[0]["split"], ALIKE  # each has its own Subset
    return epochs[0]["dealt"], None


def used_per_rank(epochs):
    """Return how many samples each rank uses, as a detail."""
    counts = [len(epoch["indices"]) for epoch in epochs]
    return f"{epochs[0]['size']} samples, used per rank: {counts}"


def used_twice(lists):
    """Return how many indices are in several lists."""
    counts = Counter(index for one in lists for index in set(one))
    return sum(count > 1 for count in counts.values())


def before_padding(epoch):
    """Return an epoch's indices without its last batch, which may be padded."""
    last = epoch["sizes"][-1] if len(epoch["sizes"]) > 1 else 0
    return epoch["indices"][: len(epoch["indices"]) - last]


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


def first_orders(seen):
    """Yield (epochs, their indices) of each dataset that rank 0 trains on."""
    orders = {}
    for epoch in trained_on(seen):
        if epoch["indices"] and epoch["identity"]:
            orders.setdefault((epoch["line"], epoch["identity"]), []).append(epoch)
    for epochs in orders.values():
        yield epochs, [epoch["indices"] for epoch in epochs]


def trained_on(seen):
    """Return rank 0's training epochs; no next one begins before it trains."""
    trained = 0
    before = {}  # line of a loader -> trained before its latest epoch
    found = []
    for event in seen.events[0]:
        kind, line = event["kind"], event.get("line")
        trained += kind == "step" or event.get("grad", False)
        if kind == "begun":
            if found and found[-1]["place"] == (line, trained):
                found.pop()  # it may have collected statistics
            before[line] = trained
        if kind == "read" and event["trained"]:
            found.append({**event, "place": (line, before.get(line))})
    return found


def has_indices(seen):
    """Return whether rank 0 trains on samples of a dataset with indices."""
    return any(epoch["indices"] for epoch in seen.readings(0, True))


def first_streams(seen):
    """Return each rank's first epoch of a stream, or [] if a rank has none."""
    streams = [seen.streamed(rank)[:1] for rank in seen.ranks]
    return [epochs[0] for epochs in streams] if all(streams) else []


def same_stream(epochs):
    """Return whether the ranks' streams are equal, as far as the shortest goes."""
    lists = [flattened(epoch["rows"]) for epoch in epochs]
    shortest = min(len(one) for one in lists)
    return all(one[:shortest] == lists[0][:shortest] for one in lists)


def shared_by_ranks(lists):
    """Return a detail if ranks share many samples before one repeats any, or None."""
    once = min(once_only(one) for one in lists)
    twice = used_twice(one[:once] for one in lists)
    if twice > max(SHARED * once, FEW):
        return f"of each rank's first {once} samples, {twice} are on more than one rank"
    return None


def flattened(batches):
    """Return the digests of all batches' samples."""
    return [row for rows in batches for row in rows]


def once_only(rows):
    """Return the number of samples before the first repeated one."""
    met = set()
    for number, row in enumerate(rows):
        if row in met:
            return number
        met.add(row)
    return len(rows)


def same_rows(passes):
    """Return whether all ranks always train on the same, known samples."""
    return alike(passes, "rows") and rows_known(passes)


def alike(events, name):
    """Return whether a fact is the same on all ranks, in tuples of their events."""
    return all(one[name] == each[0][name] for each in events for one in each)


def own_targets(seen):
    """Return whether ranks have losses of their own parts of the same samples."""
    losses = list(seen.together("backward"))
    return alike(seen.training_passes(), "rows") and not alike(losses, "targets")


def own_losses(seen):
    """Return whether ranks have other losses of the same samples, without noise."""
    passes = list(seen.training_passes())
    begun = passes[0][0]["time"] if passes else 0
    draws = [one for one in seen.together("drew") if one[0]["time"] > begun]
    noise = any(one["drawn"] for each in passes for one in each)
    if noise or not (alike(passes, "rows") and alike(draws, "digest")):
        return False
    return not alike([next(seen.together("backward"))], "loss")


def rows_known(passes):
    """Return whether any pass has known samples; sentences, for example, have none."""
    return any(one["rows"] for each in passes for one in each)
