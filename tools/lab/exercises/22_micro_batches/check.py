from tools.lab.checks import Wrong, same_curve
from tools.lab.fake_cuda import two_gpus

TRY = {"fake": "two_gpus"}

MICRO = 4


def steps(events):
    """Return the events of each step's passes, those of evaluation left out."""
    found = []
    begun = []
    for event in events:
        if event["kind"] == "step":
            found.append(begun)
            begun = []
        elif event["kind"] == "backward" or event.get("graph"):
            begun.append(event)
    return found


def check(run):
    for batch in 64, 100:  # the second leaves an incomplete one, of 12
        record = run(batch=batch, fake=two_gpus)
        same_curve(record, run.solution(batch=batch, fake=two_gpus), "the solution")
        for events in steps(record.events[0])[: 512 // batch]:  # whole batches
            in_a_step(events, batch)


def in_a_step(events, batch):
    """Raise Wrong unless micro-batches overlap on both halves."""
    trained = {e["device"] for e in events if e["kind"] == "backward"}
    if trained != {"cuda:0", "cuda:1"}:
        raise Wrong(
            f"The network trained on {' and '.join(sorted(trained))}: expected one "
            "half on each GPU."
        )
    for name, device in ("first", "cuda:0"), ("second", "cuda:1"):
        half = [event for event in events if event["device"] == device]
        sizes = [event["images"] for event in half if event["kind"] == "forward"]
        if max(sizes) > batch // MICRO:
            raise Wrong(
                f"The {name} half gets {max(sizes)} images at once, expected "
                f"{batch // MICRO}: a quarter."
            )
        if len(sizes) != MICRO:
            raise Wrong(
                f"The {name} half gets {len(sizes)} micro-batches a step, expected "
                f"{MICRO}."
            )
        flying = most = 0
        for event in half:
            flying += 1 if event["kind"] == "forward" else -1
            most = max(most, flying)
        if most < 2:
            raise Wrong(
                "There is one micro-batch in flight: each has come back before the "
                "next begins."
            )
