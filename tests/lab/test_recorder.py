"""Promise: what the lab replaces is there as relied on; a run is recorded as it was."""

import inspect
from pkgutil import resolve_name

import pytest

from tools.lab import checks, fake_cuda, image_checks
from tools.lab.judge import run_script
from tools.lab.patches import REPLACED, replace
from tools.run.stages import script

STAGE = script("04_ddp").read_text()
LOADER = "    loader = DataLoader(train, batch_size=None, sampler=batches)\n"
REDUCE = "    dist.all_reduce(totals)  # adds up over all ranks\n"
OWN_DATA_SET = """
    class Images(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return (train[index][0].float() / 255 - 0.13) / 0.31, train[index][1]

        def __len__(self):
            return len(train)

    loader = DataLoader(Images(), batch_size=None, num_workers=2, sampler=batches)
"""
NO_LOADER = """
    loader = []
    for b in batches:
        loader.append((torch.stack([train[i][0] for i in b]), train.tensors[1][b]))
"""
CHANGES = {
    "own data set, workers, normalized": [(LOADER, OWN_DATA_SET)],
    "no DataLoader": [(LOADER, NO_LOADER)],  # keeps the order of the first epoch
    "half, keyword, inverted": [
        ("model(images), labels", "model(images=images.half() / 255), labels"),
        ("layers(images / 255)", "layers((1 - images).float())"),
        ("model(images).argmax", "model(images / 255).argmax"),
    ],
}


def edited(*changes):
    """Return the text of the stage with each (old, new) of changes applied, once."""
    text = STAGE
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def sizes(passes):
    """Return the number of images in each pass."""
    return [len(images) for images in passes]


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_is_there(name):
    parameters, why = REPLACED[name]
    original = resolve_name(name)
    assert callable(original) or inspect.isdatadescriptor(original)
    assert why
    expected = parameters.split()
    if expected:
        found = list(inspect.signature(original).parameters)
        assert found[: len(expected)] == expected


def test_nothing_else_is_replaced():
    with pytest.raises(KeyError):
        replace("torch:load", lambda original: None)


def test_a_run_is_recorded():
    record = run_script(STAGE, "04_ddp")
    assert record.status == 0
    assert record.stderr == ""
    assert record.places == {}
    for rank in 0, 1:
        assert [sizes(epoch) for epoch in record.epochs(rank)] == [[32] * 8] * 2
        assert len(record.of("ddp", rank)) == 1
        assert record.rates(rank) == [0.1] * 16
        assert record.wrapped(rank) == {"DistributedDataParallel"}
        names = [event["name"] for event in record.of("collective", rank)]
        assert names == ["all_reduce", "all_reduce"]
    assert [sizes(epoch) for epoch in record.epochs(0, train=False)] == [[101]] * 2
    assert record.epochs(1, train=False) == []
    assert record.writers() == {"metrics.csv": [0], "model.pth": [0]}


def test_a_fake_gpu_is_recorded():
    text = script("02_single_gpu").read_text()
    record = run_script(text, "02_single_gpu", fake=fake_cuda.one_gpu)
    assert "1 process on cuda" in record.stdout
    forward = record.of("forward")
    assert {event["device"] for event in forward} == {"cuda:0"}
    # two layers, two epochs of 8 steps and one batch of the test
    assert len(forward) == 2 * 2 * 9
    assert len(record.of("backward")) == 2 * 2 * 8


def test_a_hang_is_recorded(monkeypatch):
    monkeypatch.setattr(checks, "LIMIT", 1)
    text = "import os\nimport time\nif os.environ['RANK'] == '1':\n    time.sleep(99)\n"
    record = run_script(text, "04_ddp")
    assert record.hangs
    assert record.statuses == [0, None]
    assert record.places == {1: 4}
    assert "\n  rank 1 is at line 4: time.sleep(99)" in record.whereabouts()


@pytest.mark.parametrize("changes", CHANGES)
def test_images_are_known_where_they_reach_the_network(changes):
    record = run_script(edited(*CHANGES[changes]), "04_ddp")
    assert record.status == 0, record.error()
    if changes != "no DataLoader":
        assert record.epochs(0) == run_script(STAGE, "04_ddp").epochs(0)
    for rank in 0, 1:
        assert len(record.passes(rank)) == 16
    image_checks.partitioned(record)
    assert record.passes(0, train=False) == [list(range(101))] * 2


def test_the_first_mismatched_collective_is_told(monkeypatch):
    monkeypatch.setattr(checks, "LIMIT", 3)
    barrier = "    if dist.get_rank() == 0:\n        dist.barrier()\n"
    text = edited((REDUCE, barrier))
    record = run_script(text, "04_ddp")
    said = record.whereabouts() if record.hangs else record.error()
    line = text[: text.index("        dist.barrier()")].count("\n") + 1
    assert f"Rank 0's collective call 9 is barrier at line {line}. " in said
    line = text[: text.index("        loss.backward()")].count("\n") + 1
    assert f"Rank 1's call 9 is backward at line {line}." in said


@pytest.mark.parametrize(("wait", "count"), [("", 0), (".wait()", 2)])
def test_an_asynchronous_collective_counts_once_it_is_waited_for(wait, count):
    text = edited((REDUCE, f"    dist.all_reduce(totals, async_op=True){wait}\n"))
    record = run_script(text, "04_ddp")
    assert record.status == 0, record.error()
    assert len(record.of("collective")) == count


def test_what_reduce_leaves_on_other_ranks_is_of_no_use():
    text = edited((REDUCE, "    dist.reduce(totals, 1)\n"))
    record = run_script(text, "04_ddp")
    losses = [row[0] for row in record.rows]
    assert losses == [-1 / -1] * 2
