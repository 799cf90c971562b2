"""Promise: what the lab replaces is there, as relied on; a run is seen as it was."""

import inspect
from pkgutil import resolve_name

import pytest

from tools.lab import checks, fake_cuda
from tools.lab.exercise import observed
from tools.lab.patches import REPLACED, replace
from tools.run import stages
from tools.run.stages import script


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_is_there(name):
    parameters, why = REPLACED[name]
    original = resolve_name(name)
    assert callable(original) or inspect.isdatadescriptor(original)
    assert why
    if parameters := parameters.split():
        found = list(inspect.signature(original).parameters)
        assert found[: len(parameters)] == parameters


def test_nothing_else_is_replaced():
    with pytest.raises(KeyError):
        replace("torch:load", lambda original: None)


def test_a_run_is_seen():
    seen = observed(script("04_ddp").read_text(), "04_ddp")
    assert [seen.status, seen.stderr, seen.places] == [0, "", {}]
    for rank in 0, 1:
        epochs = seen.epochs(rank)
        assert [[len(batch) for batch in epoch] for epoch in epochs] == [[32] * 8] * 2
        kinds = [event["kind"] for event in seen.events[rank]]
        assert [kinds.count(kind) for kind in ("ddp", "step")] == [1, 16]
        assert seen.rates(rank) == [0.1] * 16
        assert seen.wrapped(rank) == {"DistributedDataParallel"}
        collectives = [event["name"] for event in seen.of("collective", rank)]
        assert collectives == ["all_reduce", "all_reduce"]
    evaluated = [[len(batch) for batch in epoch] for epoch in seen.epochs(0, False)]
    assert evaluated == [[101]] * 2
    assert seen.epochs(1, False) == []
    assert seen.writers() == {"metrics.csv": [0], "model.pth": [0]}


def test_a_stand_in_is_seen():
    text = script("02_single_gpu").read_text()
    seen = observed(text, "02_single_gpu", fake=fake_cuda.one_gpu)
    assert "1 process on cuda" in seen.stdout
    forward = seen.of("forward")
    assert {event["device"] for event in forward} == {"cuda:0"}
    # two layers, two epochs of 8 steps and one batch of the test
    assert [len(forward), len(seen.of("backward"))] == [2 * 2 * 9, 2 * 2 * 8]


def test_a_hang_is_seen(monkeypatch):
    monkeypatch.setattr("tools.lab.checks.LIMIT", 1)
    text = "import os\nimport time\nif os.environ['RANK'] == '1':\n    time.sleep(99)\n"
    seen = observed(text, "04_ddp")
    assert (seen.hangs, seen.statuses, seen.places) == (True, [0, None], {1: 4})
    assert "\n  rank 1 is at line 4: time.sleep(99)" in seen.whereabouts()


LOADER = "    loader = DataLoader(train, batch_size=None, sampler=batches)\n"
STAGE = stages.script("04_ddp").read_text()
OWN = """
    class Images(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return (train[index][0].float() / 255 - 0.13) / 0.31, train[index][1]

        def __len__(self):
            return len(train)

"""


@pytest.mark.parametrize(
    "changes",
    [
        [(LOADER, OWN + LOADER.replace("(train", "(Images()").replace("None", "None, num_workers=2"))],
        [(LOADER, "    loader = [(torch.stack([train[i][0] for i in b]), train.tensors[1][b]) for b in batches]\n")],
        [(LOADER, LOADER), ("model(images), labels", "model(images=images.half() / 255), labels"),
         ("layers(images / 255)", "layers((1 - images).float())"), ("model(images).argmax", "model(images / 255).argmax")],
    ],
    ids=["own data set, workers, normalised", "no DataLoader", "half, keyword, inverted"],
)  # fmt: skip
def test_images_are_known_where_they_reach_the_network(changes):
    text = STAGE
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    seen = observed(text, "04_ddp")
    assert seen.status == 0, seen.error()
    expected = observed(STAGE, "04_ddp")
    if "loader = [" not in text:  # which has the order of the first epoch
        assert seen.epochs(0) == expected.epochs(0)
    assert [len(seen.passes(rank)) for rank in (0, 1)] == [16, 16]
    checks.shared_out(seen)
    assert seen.passes(0, train=False) == [list(range(101))] * 2


def test_who_waits_for_whom_is_told(monkeypatch):
    monkeypatch.setattr("tools.lab.checks.LIMIT", 3)
    old = "    dist.all_reduce(totals)  # adds up over all ranks\n"
    assert STAGE.count(old) == 1
    text = STAGE.replace(old, "    if dist.get_rank() == 0:\n        dist.barrier()\n")
    seen = observed(text, "04_ddp")
    said = f"hangs: {seen.whereabouts()}" if seen.hangs else seen.error()
    line = text[: text.index("        dist.barrier()")].count("\n") + 1
    assert f"Collective call 9 is barrier at line {line} for rank 0, " in said
    line = text[: text.index("        loss.backward()")].count("\n") + 1
    assert f"backward at line {line} for rank 1" in said


def test_an_asynchronous_collective_counts_once_it_is_waited_for():
    old = "    dist.all_reduce(totals)  # adds up over all ranks\n"
    for wait, count in ("", 0), (".wait()", 2):
        text = STAGE.replace(old, f"    dist.all_reduce(totals, async_op=True){wait}\n")
        seen = observed(text, "04_ddp")
        assert seen.status == 0, seen.error()
        assert len(seen.of("collective")) == count


def test_what_reduce_leaves_on_other_ranks_is_of_no_use():
    old, new = "dist.all_reduce(totals)", "dist.reduce(totals, 1)"
    assert STAGE.count(old) == 1
    seen = observed(STAGE.replace(old, new), "04_ddp")
    assert [loss for loss, *_ in seen.rows] == [-1 / -1] * 2
