"""Read and query the events of a run's ranks: `Seen`."""

import contextlib
import json
from collections import Counter
from itertools import zip_longest

from onecurve.evidence import splits

CALL = "name", "numbers", "dtype"  # must be equal in the ranks' collective calls


def read_ranks(folder, count):
    """Return a list of events for each rank, from its file in a folder, if any."""
    found = [[] for _ in range(count)]
    for rank, events in enumerate(found):
        path = folder / f"rank{rank}"
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):  # a torn last line
                event = json.loads(line)
                if event["kind"] == "spawned":
                    events.clear()  # its parent's
                events.append(event)
    return found


class Seen:
    """Events of a run's ranks; `events` contains a list for each rank."""

    def __init__(self, events):
        self.events = events

    @property
    def ranks(self):
        return range(len(self.events))

    def end_together(self):
        """Drop what follows the last step that all ranks took: they were killed."""
        counts = [len(one) for one in self.on_all("step")]
        for events in self.events:
            steps = [n for n, one in enumerate(events) if one["kind"] == "step"]
            del events[(steps[: min(counts)] or [-1])[-1] + 1 :]

    def since_wrapped(self):
        """Return a Seen without what ranks train before they wrap a network.

        No gradients are exchanged there, so ranks may train on the same samples.
        """
        found = []
        for events in self.events:
            kinds = [event["kind"] for event in events]
            wraps = [n for n, kind in enumerate(kinds) if kind in ("ddp", "shard")]
            trains = wraps and "step" in kinds[wraps[0] :]
            found.append(events[wraps[0] :] if trains else events)
        return Seen(found)

    def of(self, kind, rank=0):
        """Return a rank's events of a kind, in order."""
        return [event for event in self.events[rank] if event["kind"] == kind]

    def values(self, kind, field):
        """Return a field of each of rank 0's events of a kind."""
        return [event[field] for event in self.of(kind)]

    def collective_calls(self):
        """Return each rank's collective calls, except those of a subgroup."""
        calls = self.on_all("collective_call")
        return [[call for call in each if call["whole"]] for each in calls]

    def first_parting(self):
        """Return (number, rank, call of rank 0, call of rank) if calls differ, or None.

        A missing call is None.
        """
        calls = self.collective_calls()
        for rank in self.ranks[1:]:
            pairs = zip_longest(calls[0], calls[rank])
            for number, (first, other) in enumerate(pairs, start=1):
                if not (first and other) or any(first[k] != other[k] for k in CALL):
                    return number, rank, first, other
        return None

    def groups(self):
        """Return lists of ranks that share layers and batches: tensor parallelism."""
        found = []
        for rank in self.ranks:
            together = [one["ranks"] for one in self.of("split", rank)]
            group = max([[rank], *together], key=len)
            if group not in found:
                found.append(group)
        return found

    def takers(self):
        """Return a Seen of the ranks with their own batches: one of each group."""
        return Seen([self.events[min(group)] for group in self.groups()])

    def on_all(self, kind):
        """Return each rank's events of a kind."""
        return [self.of(kind, rank) for rank in self.ranks]

    def together(self, kind, wanted=lambda event: True):
        """Yield tuples of each rank's n-th wanted event of a kind."""
        events = [filter(wanted, each) for each in self.on_all(kind)]
        yield from zip(*events, strict=False)

    def readings(self, rank, trained):
        """Return a rank's epochs of loaders that trained, or that didn't."""
        read = self.of("read", rank)
        return [event for event in read if event["trained"] == trained]

    def first_epochs(self, number=0):
        """Return each rank's training epoch `number` with indices, or [] without."""
        found = []
        for rank in self.ranks:
            known = [one for one in self.readings(rank, True) if one["indices"]]
            found += known[number : number + 1]
        return found if len(found) == len(self.ranks) else []

    def epochs_of_others(self):
        """Yield each rank's first training epoch on further datasets that all use."""
        tables = [{} for _ in self.ranks]
        for rank, first in enumerate(tables):
            for one in self.readings(rank, True):
                if one["indices"] and one["identity"]:
                    first.setdefault((one["line"], one["identity"]), one)
        for place in list(tables[0])[1:]:
            if all(place in table for table in tables):
                yield [table[place] for table in tables]

    def streamed(self, rank):
        """Return a rank's training epochs on its first stream."""
        read = [one for one in self.readings(rank, True) if any(one["rows"])]
        return [one for one in read if one["line"] == read[0]["line"]]

    def batches_begun(self):
        """Yield {rank: event}: the weights with which ranks begin the same batch.

        Rank 0 comes first; ranks without that batch are missing. Without a loader, a
        batch begins after another backward pass or with changed weights.
        """
        found = {}
        for rank in self.ranks:
            times = Counter()
            latest = {}
            backwards = 0
            for event in self.events[rank]:
                backwards += event["kind"] == "backward"
                if event["kind"] != "weights":
                    continue
                place = tuple(event["place"])
                if len(place) == 1:
                    place = (*place, backwards)
                    if event["weights"] in ({}, latest.get(place)):
                        continue
                latest[place] = event["weights"]
                times[place] += 1
                found.setdefault((place, times[place]), {})[rank] = event
        yield from found.values()

    def agree_in_each_step(self):
        """Return whether ranks take as many steps, each from the same weights."""
        own = self.own_parts()
        tables = [{} for _ in self.ranks]
        for rank, table in enumerate(tables):
            for event in self.of("weights", rank):
                shared = event["weights"].items()
                weights = {name: one for name, one in shared if name not in own}
                table[event["id"], event["steps"]] = weights
        return all(table == tables[0] for table in tables)

    def batches_of_step(self):
        """Return how many batches rank 0 reads per step at most, or 1 without any."""
        most = 1
        read = set()
        for event in self.events[0]:
            if event["kind"] == "weights":
                read.add(tuple(event["place"][1:]))
            elif event["kind"] == "step":
                most = max(most, len(read))
                read = set()
        return most

    def own_parts(self):
        """Return the names of weights meant to differ by rank: experts, or shards."""
        return splits.own_parts(self)

    def training_passes(self):
        """Yield tuples of each rank's n-th training pass."""
        yield from self.together("pass", lambda one: one["grad"])


def first_split(dicts, own=()):
    """Return the first shared name whose values differ, except for `own` names."""
    for name, value in dicts[0].items():
        if name in own:
            continue
        others = [one[name] for one in dicts if name in one]
        if len(others) == len(dicts) and any(other != value for other in others):
            return name
    return None


def changed_by(by_rank, name):
    """Return (line, whether all ranks do, details) of what changes a weight, or None.

    Lines that only some ranks execute come first.
    """
    ranks = {}
    for rank, event in by_rank.items():
        for line, names in event["written"].items():
            if name in names:
                ranks.setdefault(line, []).append(rank)
    for line in sorted(ranks, key=lambda one: len(ranks[one])):
        if len(ranks[line]) == len(by_rank):
            return line, True, ["each rank changes it here"]
        return line, False, [f"only ranks {ranks[line]} execute this line"]
    return None, False, []
