import itertools

from tools.lab.checks import OTHER, Wrong, same_curve, sharded, size_of_network
from tools.lab.image_checks import trained


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        first, *others = (itertools.chain(*passes) for passes in trained(record))
        first = list(first)
        for rank, theirs in enumerate(others, start=1):
            pairs = zip(first, theirs, strict=False)
            for step, (ours, images) in enumerate(pairs, start=1):
                if sorted(images) != sorted(ours):
                    which = "the first step" if step == 1 else f"step {step}"
                    raise Wrong(
                        f"In {which} rank {rank} takes {len(images)} images, of which "
                        f"rank 0 takes {len({*images} & {*ours})} too. Each computes a "
                        "part of every image's outputs: expected the same images on "
                        "all ranks."
                    )
        expected = run.original(**setting)
        sharded(record, size_of_network(expected))
        same_curve(record, expected, "stage 8")
