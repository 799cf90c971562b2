from tools.lab.checks import Wrong, ended, same_curve
from tools.lab.standin import two_gpus


def check(run):
    seen = run(stand_in=two_gpus)
    same_curve(seen, run.solution(stand_in=two_gpus), "stage 1")
    ended(seen)
    first, flying, most, sizes = "cuda:0", 0, 0, set()
    for event in seen.events[0]:
        if event["kind"] == "step":
            break  # the first step tells
        if event.get("device") != first:
            continue
        if event["kind"] == "forward":
            sizes.add(event["images"])
        flying += {"forward": 1, "backward": -1}.get(event["kind"], 0)
        most = max(most, flying)
    if max(sizes) > 16:
        raise Wrong(
            f"The first half gets {max(sizes)} images at once, expected 16: a quarter."
        )
    if most < 2:
        raise Wrong(
            "There is one micro-batch in flight: each has come back before the next "
            "begins."
        )
