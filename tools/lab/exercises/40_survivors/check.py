from tools.lab.record import Wrong


def loses_ranks(record, runs):
    """Each rank that --kill names takes fewer steps than rank 0."""
    flags = record.setting.flags
    lost = [int(flags[at + 1]) for at, flag in enumerate(flags) if flag == "--kill"]
    for rank in lost:
        if len(record.of("step", rank)) >= len(record.of("step")):
            raise Wrong(f"Rank {rank} takes all steps, but --kill has to end it.")
