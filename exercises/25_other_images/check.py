from tools.lab.checks import Wrong, ended, same_curve


def check(run):
    for processes, size in (2, "64"), (3, "63"):
        flags = "--batch-size", size
        seen = run(*flags, processes=processes)
        ended(seen)
        first, *others = (seen.epochs(rank) for rank in range(processes))
        for rank, theirs in enumerate(others, start=1):
            if theirs != first:
                common = set(theirs[0][0]) & set(first[0][0])
                raise Wrong(
                    f"In the first step rank {rank} takes {len(theirs[0][0])} images, "
                    f"of which rank 0 takes {len(common)} too. Each computes a part of "
                    "every image's outputs: expected the same images on all ranks."
                )
        same_curve(seen, run.original(*flags, processes=processes), "stage 8")
