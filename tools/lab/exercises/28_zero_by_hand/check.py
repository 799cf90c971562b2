import tempfile
from pathlib import Path

from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
    size_of_network,
    wrapped,
)
from tools.lab.image_checks import partitioned
from tools.run import compare

FILES = "model.pth", "metrics.csv", "state.pth"


def state_sharded(record, size):
    """Raise Wrong unless each number of the optimizer's state is on one rank."""
    held = []
    for rank in range(len(record.events)):
        steps = record.of("step", rank)
        held.append(max((step["state"] for step in steps), default=0))
    if not any(held):
        raise Wrong(
            "No rank keeps optimizer state. The lab looks for it in the `state` of a "
            "torch.optim.Optimizer after its step()."
        )
    for rank, count in enumerate(held):
        if count >= size:
            raise Wrong(
                f"Rank {rank} keeps {count} numbers of optimizer state, for all of the "
                f"{size} weights; expected those of its share."
            )
        if not count:
            raise Wrong(
                f"Rank {rank} keeps no optimizer state; expected that of its share."
            )
    if not size <= sum(held) < size + len(held):  # equal parts may need to be filled
        raise Wrong(
            f"The ranks keep {' + '.join(map(str, held))} = {sum(held)} numbers of "
            f"optimizer state, expected {size}: each on one rank."
        )


def check(run):
    record = run()
    expected = run.solution(processes=1)
    equal_weights(record, "pass")
    wrapped(record)
    partitioned(record, TRAIN)
    same_curve(record, expected, "one process")
    same_weights(record, expected)
    size = size_of_network(expected)
    state_sharded(record, size)

    expected = run.solution(**OTHER | {"processes": 1})
    with tempfile.TemporaryDirectory() as folder:
        begun = run("--out", folder, **OTHER | {"epochs": 1})
        ended(begun)
        for path in Path(folder).iterdir():
            if path.name not in FILES:  # state.pth has to have all
                path.unlink()
        record = run("--out", folder, "--resume", **OTHER)
        ended(record)
        try:
            record.rows = compare.read(Path(folder) / "metrics.csv")
        except (OSError, ValueError) as error:
            raise Wrong(f"metrics.csv cannot be read after --resume: {error}") from None
    if not begun.of("step") or len(begun.of("step")) != len(record.of("step")):
        raise Wrong(
            f"One epoch took {len(begun.of('step'))} steps, and --resume another "
            f"{len(record.of('step'))} for the second; expected as many."
        )
    equal_weights(record, "pass")
    same_curve(record, expected, "one process that is not interrupted and resumed")
    state_sharded(record, size)
