from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    apart,
    close,
    curve,
    equal_weights,
    same_curve,
    shared_out,
)


def check(run):
    for setting in {}, OTHER:
        seen, expected = run(**setting), run.solution(**setting)
        rows = curve(seen)
        for rank in range(len(seen.events)):
            begun = [e for e in seen.of("collective_call", rank) if e["name"] != "backward"]
            names = [call["name"] for call in begun]
            for call in seen.of("collective", rank):
                names.remove(call["name"])
            if names:
                raise Wrong(
                    f"On rank {rank} nobody waited for {names[0]}: the loss may be "
                    "printed before it is added up."
                )
        pairs = zip(rows, expected.rows, strict=True)
        for epoch, ((ours, *_), (theirs, *_)) in enumerate(pairs, start=1):
            if not close(ours, theirs):
                raise Wrong(
                    f"The loss of epoch {epoch} is given as {ours:.6f}; the mean over "
                    f"the images of all {len(seen.events)} ranks is {theirs:.6f}."
                    f"{apart(ours, theirs)}"
                )
        shared_out(seen, setting.get("train", TRAIN))
        equal_weights(seen)
        same_curve(seen, expected, "stage 1")
