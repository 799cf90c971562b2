from tools.lab.checks import Wrong, ended

COUNT = 513


def check(run):
    seen = run(train=COUNT)
    ended(seen)
    if len(seen.rows) != 2:
        raise Wrong(f"metrics.csv has {len(seen.rows)} epochs, expected 2.")
    for epoch in range(2):
        found = [
            i for rank in (0, 1) for batch in seen.epochs(rank)[epoch] for i in batch
        ]
        if len(set(found)) != COUNT:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks used {len(set(found))} of {COUNT} "
                "images."
            )
        if len(found) > COUNT + 64:
            raise Wrong(
                f"In epoch {epoch + 1} {len(found) - COUNT} images were used twice."
            )
    if not seen.rows[1][0] < seen.rows[0][0]:
        raise Wrong("The loss does not fall.")
