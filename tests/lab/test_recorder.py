"""Promise: a run is recorded as it was, and recording changes nothing in it."""

import pytest

from tools.lab.checks import Wrong
from tools.lab.judge import run_script
from tools.run.edit import edit
from tools.run.stages import script

STAGE = script("04_ddp").read_text()
LOADER = (
    "    loader = DataLoader(train, args.batch_size // world_size, sampler=sampler)\n"
)
REDUCE = "    dist.all_reduce(totals)  # adds up over all ranks\n"
WRAP = (
    "    ddp_model = nn.parallel.DistributedDataParallel(model)  # averages gradients\n"
)
OWN_DATA_SET = """
    class Images(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return (train[index][0].float() / 255 - 0.13) / 0.31, train[index][1]

        def __len__(self):
            return len(train)

    share = args.batch_size // world_size
    loader = DataLoader(Images(), share, num_workers=2, sampler=sampler)
"""
BATCHES = """
    batches = torch.utils.data.BatchSampler(sampler, 32, drop_last=False)
    loader = DataLoader(train, batch_size=None, sampler=batches)
"""
HALF = [
    ("model(images), labels", "model(images=images.half() / 255), labels"),
    ("layers(images / 255)", "layers((1 - images).float())"),
    ("model(images).argmax", "model(images / 255).argmax"),
]
TWICE = "loss.backward()\n        model(images).sum().backward()"
FEWER = "DataLoader(list(dataset)[1:]"
CHANGES = {
    "own data set, workers, normalized": [(LOADER, OWN_DATA_SET)],
    "whole batches": [(LOADER, BATCHES)],
    "half, keyword, inverted": HALF,
}
OWN_HOOK = """
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    ddp_model.register_comm_hook(None, default_hooks.allreduce_hook)
"""
ALONE = "    mine = [dist.new_group([one]) for one in range(world_size)][rank]\n"
ALONE += WRAP.replace("(model)", "(model, process_group=mine)")


def run(*changes, **options):
    return run_script(edit(STAGE, *changes), "04_ddp", **options)


def test_a_run_is_recorded():
    record = run()
    record.expect_end()
    record.expect_one_reduction()
    for rank in 0, 1:
        epochs = record.trained()[rank]
        assert [list(map(len, passes)) for passes in epochs] == [[32] * 8] * 2
        assert len(record.of("ddp", rank)) == 1
        assert record.rates(rank) == [0.1] * 16
        assert record.wrappers(rank) == {"DistributedDataParallel"}
        names = [event["name"] for event in record.of("collective", rank)]
        assert names == ["all_reduce", "all_reduce"]
    assert record.passes(0, train=False) == [list(range(101))] * 2
    assert record.passes(1, train=False) == []
    assert record.writers() == {"metrics.csv": [0], "model.pth": [0]}


def test_a_fake_gpu_is_recorded():
    text = script("02_single_gpu").read_text()
    record = run_script(text, "02_single_gpu", fake="one_gpu")
    assert "1 process on cuda" in record.stdout
    assert {event["device"] for event in record.of("forward")} == {"cuda:0"}
    # two layers, two epochs of 8 steps and one batch of the test
    assert len(record.of("forward")) == 2 * 2 * 9
    assert len(record.of("backward")) == 2 * 2 * 8


@pytest.mark.parametrize("changes", CHANGES)
def test_images_are_known_where_they_reach_the_network(changes):
    record = run(*CHANGES[changes])
    record.expect_end()
    assert record.trained() == run().trained()
    assert record.passes(0, train=False) == [list(range(101))] * 2


def test_a_scripts_own_hook_of_ddp_is_left_to_it():
    record = run((WRAP, WRAP + OWN_HOOK))
    record.expect_one_reduction()
    record.expect_curve(run())


VERDICTS = [  # what is expected, a mistake in the stage, and what is said
    (
        "learning",
        [("lr=args.lr", "lr=0.1, maximize=True")],
        "The loss does not fall: 2.",
    ),
    ("curve", [("return correct,", "return correct + 1,")], "The count of epoch 1 is"),
    ("weights", [("Net(args.hidden)", "Net(64)")], "layers.1.weight is 64 x 784 in mo"),
    ("new_order", [("epoch(epoch)", "epoch(epoch * (1 - rank))")], "rank 1 begins wit"),
    ("one_reduction", [("loss.backward()", TWICE)], "the gradients 2 times a step"),
    ("evaluation_partition", [], "they evaluate 101 and 0 different ones"),
    ("evaluation_partition", [("DataLoader(dataset", FEWER)], "evaluate 100 of 101"),
]


@pytest.mark.parametrize(("what", "changes", "said"), VERDICTS)
def test_a_verdict_says_what_was_seen_and_that_no_right_script_is_wrong(
    what, changes, said
):
    right = [run()] if what in ("curve", "weights") else []
    with pytest.raises(Wrong, match=said):
        getattr(run(*changes), f"expect_{what}")(*right)
    if changes and what != "evaluation_partition":
        getattr(run(), f"expect_{what}")(*right)


def test_a_group_of_one_rank_each_reduces_nothing():
    with pytest.raises(Wrong, match="In batch 2 of epoch 1 the weights"):
        run((WRAP, ALONE)).expect_equal_weights()


def test_the_first_mismatched_collective_is_told(monkeypatch):
    monkeypatch.setattr("tools.lab.checks.LIMIT", 3)
    barrier = "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    text = edit(STAGE, (REDUCE, barrier))
    record = run_script(text, "04_ddp")
    said = record.whereabouts() if record.hangs else record.error()
    line = text[: text.index("        dist.barrier()")].count("\n") + 1
    assert f"Rank 0's collective call 9 is barrier at line {line}. " in said
    line = text[: text.index("        loss.backward()")].count("\n") + 1
    assert f"Rank 1's call 9 is backward at line {line}." in said


def test_an_asynchronous_collective_counts_once_it_is_waited_for():
    record = run((REDUCE, "    dist.all_reduce(totals, async_op=True).wait()\n"))
    assert len(record.of("collective")) == 2


def test_what_reduce_leaves_on_other_ranks_is_of_no_use():
    record = run((REDUCE, "    dist.reduce(totals, 1)\n"))
    assert [row[0] for row in record.rows] == [-1 / -1] * 2
    with pytest.raises(Wrong, match="dist.reduce gives the sum to one rank only"):
        record.expect_curve(run())
