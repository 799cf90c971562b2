import math

from tools.lab.record import Wrong

MICRO = 4


def overlap(record, runs):
    """Both halves get micro-batches, and more than one is in flight."""
    batch = record.setting.batch
    for events in steps(record.events[0])[: record.setting.train // batch]:
        expect_overlap(events, batch)  # the later ones are not whole, at least once


def steps(events):
    """Return the events of each step's passes, without evaluation."""
    found = []
    begun = []
    for event in events:
        if event["kind"] == "step":
            found.append(begun)
            begun = []
        elif event["kind"] == "gpu backward" or event.get("graph"):
            begun.append(event)
    return found


def expect_overlap(events, batch):
    """Raise Wrong unless a step's micro-batches overlap on both halves."""
    quarter = math.ceil(batch / MICRO)
    for name, device in ("first", "cuda:0"), ("second", "cuda:1"):
        half = [event for event in events if event["device"] == device]
        sizes = [event["images"] for event in half if event["kind"] == "gpu forward"]
        if len(sizes) != MICRO or max(sizes) > quarter:
            told = f"The {name} half gets {sizes} images in a step"
            raise Wrong(f"{told}, expected {MICRO} times {quarter}.")
    begun = [event["kind"] for event in events if event["device"] == "cuda:0"]
    if begun[:2] != ["gpu forward", "gpu forward"]:  # the second half may alternate
        raise Wrong(
            "Only one micro-batch is in flight: each has come back before the next "
            "begins."
        )
