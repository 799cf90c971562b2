"""Promise: what the lab replaces is there, as relied on; a run is seen as it was."""

import inspect
from pkgutil import resolve_name

import pytest

from tools.lab import standin
from tools.lab.exercise import observed
from tools.lab.patches import REPLACED, replace
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
        collectives = [event["name"] for event in seen.of("collective", rank)]
        assert collectives == ["broadcast_object_list", "all_reduce", "all_reduce"]
    evaluated = [[len(batch) for batch in epoch] for epoch in seen.epochs(0, False)]
    assert evaluated == [[101]] * 2
    assert seen.epochs(1, False) == []
    names = "metrics.csv", "metrics.csv.tmp", "model.pth", "model.pth.tmp"
    names += "state.pth", "state.pth.tmp"
    assert seen.writers() == {name: [0] for name in names}


def test_a_stand_in_is_seen():
    text = script("02_single_gpu").read_text()
    seen = observed(text, "02_single_gpu", stand_in=standin.one_gpu)
    assert "1 process on cuda" in seen.stdout
    forward = seen.of("forward")
    assert {event["device"] for event in forward} == {"cuda:0"}
    # two layers, two epochs of 8 steps and one batch of the test
    assert [len(forward), len(seen.of("backward"))] == [2 * 2 * 9, 2 * 2 * 8]


def test_a_hang_is_seen(monkeypatch):
    monkeypatch.setattr("tools.lab.checks.LIMIT", 1)
    text = "import os\nimport time\nif os.environ['RANK'] == '1':\n    time.sleep(99)\n"
    assert observed(text, "04_ddp").places == {1: "line 4: time.sleep(99)"}
