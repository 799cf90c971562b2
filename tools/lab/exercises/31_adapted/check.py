from tools.lab.checks import THREE_RANKS, Wrong
from tools.lab.image_run import flat


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        first, *others = [flat(passes) for passes in record.trained()]
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
        record.expect_shards(expected.size())
        record.expect_curve(expected, "stage 8")
