from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    close,
    curve,
    equal_weights,
    relative_error,
    same_curve,
)
from tools.lab.image_checks import partitioned


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        expected = run.solution(**setting)
        rows = curve(record)
        for rank in range(len(record.events)):
            begun = [
                e for e in record.of("collective_call", rank) if e["name"] != "backward"
            ]
            names = [call["name"] for call in begun]
            for call in record.of("collective", rank):
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
                    f"the images of all {len(record.events)} ranks is {theirs:.6f}."
                    f"{relative_error(ours, theirs)}"
                )
        partitioned(record, setting.get("train", TRAIN))
        equal_weights(record)
        same_curve(record, expected, "stage 1")
