"""Promise: a record is accurate, and recording doesn't change the run."""

from copy import copy

import pytest

from tools.lab.comparison import expect_curve, expect_weights
from tools.lab.expectations import same_statistics
from tools.lab.record import Record, Wrong
from tools.lab.running import PATIENCE, Job, record_of
from tools.lab.setting import of_check
from tools.run.edit import edit
from tools.run.stages import script

STAGE = script("04_ddp").read_text()
REDUCE = "    dist.all_reduce(totals)  # adds up over all ranks\n"
WRAP = (
    "    ddp_model = nn.parallel.DistributedDataParallel(model)  # averages gradients\n"
)
ONE = "        if rank == 0:\n            correct,"
ALONE = "    mine = [dist.new_group([one]) for one in range(world_size)][rank]\n"
ALONE += WRAP.replace("(model)", "(model, process_group=mine)")


def run_once(text, limit=PATIENCE, **options):
    return record_of(Job(text, "04_ddp", of_check("04_ddp", **options), limit), {})


def run(*changes, **options):
    return run_once(edit(STAGE, *changes), **options)


SHARE = "        evaluate(model, torch.utils.data.Subset(test, range(rank, 100, 2)))\n"
VERDICTS = [  # expectation, a bug in the stage and its message
    (
        same_statistics,
        [("nn.ReLU(),", "nn.BatchNorm1d(hidden),"), (ONE, SHARE + ONE)],
        "Ranks evaluate with different buffers: ",
    ),
    (
        Record.expect_learning,
        [("lr=args.lr", "lr=0.1, maximize=True")],
        "The loss does not fall: 2.",
    ),
    (
        lambda record: expect_weights(record, run()),
        [("Net(args.hidden)", "Net(64)")],
        "layers.1.weight is 64 x 784 in mo",
    ),
    (
        Record.expect_no_finding,
        [(WRAP, ALONE)],
        "Weights differ between ranks after ste",
    ),
]


@pytest.mark.parametrize(("expect", "changes", "said"), VERDICTS)
def test_a_verdict_says_what_was_seen_and_that_no_right_script_is_wrong(
    expect, changes, said
):
    with pytest.raises(Wrong, match=said):
        expect(run(*changes))
    expect(run())


def test_weights_may_be_saved_in_any_order():
    other = copy(run())
    other.weights = dict(reversed(run().weights.items()))
    expect_weights(other, run())


def test_the_first_mismatched_collective_is_told():
    barrier = "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    text = edit(STAGE, (REDUCE, barrier))
    record = run_once(text, limit=3)
    said = record.too_long() if record.hangs else record.error()
    line = text[: text.index("        dist.barrier()")].count("\n") + 1
    assert f"Rank 0's collective call 9 is barrier at line {line}. " in said
    line = text[: text.index("        loss.backward()")].count("\n") + 1
    assert f"Rank 1's call 9 is backward at line {line}." in said


def test_what_reduce_leaves_on_other_ranks_is_of_no_use():
    record = run((REDUCE, "    dist.reduce(totals, 1)\n"))
    assert [row[0] for row in record.rows] == [-1 / -1] * 2
    with pytest.raises(Wrong, match="The loss of epoch 1 is 1.0"):
        expect_curve(record, run())
