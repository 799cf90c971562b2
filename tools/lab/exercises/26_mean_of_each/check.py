from tools.lab.checks import Wrong, ended, same_curve, same_weights, size_of_network

COUNT = 453  # images: the last batch has 5, in micro-batches of 2, 2 and 1


def check(run):
    for pieces, count in (4, 512), (3, COUNT):
        flags = ("--micro-batches", str(pieces)) if pieces != 4 else ()
        record = run(*flags, train=count)
        ended(record)
        expected = run.original(*flags, train=count)
        what = f"stage 9, with {count} images," if count == COUNT else "stage 9"
        same_curve(record, expected, what)
        same_weights(record, expected, what)
        size = size_of_network(expected)
        held = []
        for rank in 0, 1:
            steps = record.of("step", rank)
            held.append(max((step["weights"] for step in steps), default=0))
        if sum(held) != size or not all(held):
            raise Wrong(
                f"The optimizers of ranks 0 and 1 have {held[0]} and {held[1]} of the "
                f"network's {size} numbers; expected each number on one of them."
            )
        most = max(map(len, record.passes()), default=0)
        largest = -(-64 // pieces)  # rounded up
        if most > largest:
            raise Wrong(
                f"Rank 0 takes {most} images at once, expected {largest} at most: a "
                f"batch goes through in {pieces} micro-batches."
            )
