import math

from tools.lab.comparison import expect_curve
from tools.lab.record import Wrong

MICRO = 4
TRAIN = 510


def check(run):
    for batch in 64, 98:  # 98 and the last batches are not multiples of 4
        setting = {"batch": batch, "train": TRAIN, "fake": "two_gpus"}
        record = run(**setting)
        expected = run.solution(**setting)
        expect_curve(record, expected, "a correct script")
        record.expect_devices("cuda:0", "cuda:1")
        for events in steps(record.events[0])[: TRAIN // batch]:  # whole batches
            expect_overlap(events, batch)


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
