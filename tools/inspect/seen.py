"""What the ranks have written down of a run, and what is found in it."""

from dataclasses import dataclass, field


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
