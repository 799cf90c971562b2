from tools.lab.checks import THREE_RANKS, Wrong


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        record.expect_partition()
        record.expect_equal_weights()
        for rank in record.ranks:
            expect_all_waited_for(record, rank)
        what = f"the images of all {len(record.ranks)} ranks"
        record.expect_curve(run.solution(**setting), what)


def expect_all_waited_for(record, rank):
    """Raise Wrong where a rank does not wait for a collective that it has begun."""
    begun = [call["name"] for call in record.of("collective_call", rank)]
    for call in record.of("collective", rank):
        begun.remove(call["name"])
    left = [name for name in begun if name != "backward"]
    if left:
        raise Wrong(
            f"On rank {rank} nobody waited for {left[0]}: the loss may be printed "
            "before it is added up."
        )
