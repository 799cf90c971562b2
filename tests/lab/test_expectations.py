"""Promise: an exercise's other expectations tell right runs from wrong ones.

The ranks' events are made up here. The tests of the exercises run scripts.
"""

from types import SimpleNamespace

import pytest

from onecurve import api
from tools.lab import expectations, images
from tools.lab.record import Wrong

DDP = {"kind": "ddp"}
PASS = {"kind": "pass", "grad": True, "rows": ["a", "b"]}
BACKWARD = {"kind": "backward", "line": "mnist.py:1"}
REDUCED = {"kind": "collective_call", "name": "backward", "line": "mnist.py:1"}
BY_HAND = {**REDUCED, "name": "all_reduce", "line": "mnist.py:2", "numbers": 5000}
HOOK = {"kind": "by_hook"}
GATHERED = {**BY_HAND, "name": "all_gather"}
HALF = {**GATHERED, "numbers": 3000}
GIVEN = {"kind": "given", "numbers": 30}
COUNTS = {**BY_HAND, "numbers": 2}
STEP = {"kind": "step"}
LONG = {**STEP, "own": 4.0}
SHORT = {**STEP, "own": 1.0}
FILE = {"kind": "file", "path": "model.pth"}
EPOCH = {"kind": "printed"}
REDUCES = [DDP, PASS, BACKWARD, REDUCED]
TRAINS = [*REDUCES, STEP]
OTHERS = [{**PASS, "rows": ["c", "d"]}]


def record(*ranks, **setting):
    """Return a record of one epoch with these events for each rank."""
    usual = {"train": 4, "batch": 4, "epochs": 1, "resume": 0}
    made = api.Seen([list(events) for events in ranks])
    made.setting = SimpleNamespace(**(usual | setting))
    made.text = "first\nsecond\n"
    made.stdout = "epoch 1/2\n" * sum(EPOCH in events for events in ranks)
    return made


CASES = [  # expectation, a right run, a wrong run and its message
    ("by_ddp", [TRAINS], [[BACKWARD, STEP]], "0 times, expected once"),
    ("by_ddp", [[*TRAINS, COUNTS]], [[*TRAINS[:3], STEP]], "0 times, expected once"),
    ("by_ddp", [TRAINS], [[*REDUCES, REDUCED, STEP]], "2 times, expected once"),
    ("by_ddp", [[*REDUCES, HOOK, BY_HAND, STEP]], [[*REDUCES, BY_HAND, STEP]], "5000"),
    ("one_writer", [[FILE, FILE], []], [[FILE], [FILE]], "rank 0 and rank 1"),
    ("one_writer", [[], [FILE]], [[], []], "no rank"),
    ("one_printer", [[EPOCH], []], [[EPOCH], [EPOCH]], "2 ranks print epoch 1"),
    ("each_once", [[PASS], OTHERS], [[PASS], [PASS]], "2 of 4 images"),
    ("few_twice", [[PASS], [*OTHERS]], [[PASS, PASS], OTHERS * 2], "4 are used twice"),
    ("mean_on_all", [[LONG], [LONG]], [[LONG], [SHORT]], "norms are 2.000000, 1.0"),
    ("gathers", [[GIVEN, GATHERED]], [[GIVEN, BACKWARD, BY_HAND]], "gathers nothing"),
    ("gathers", [[GIVEN, GATHERED]], [[GIVEN, HALF]], "sends 3000 .* are 3840"),
    ("all_used", [[PASS], OTHERS], [[PASS] * 3, OTHERS], "an image 3 times"),
    ("passes_on", [[GIVEN, COUNTS]], [[GIVEN, GATHERED]], "calls all_gather"),
    ("passes_on", [[*TRAINS, BY_HAND]], [[GIVEN, BY_HAND]], "calls all_reduce"),
    ("shared", [[PASS], [PASS]], [[PASS], OTHERS], "2 ranks compute on 2 different"),
]


@pytest.mark.parametrize(("name", "right", "wrong", "said"), CASES)
def test_an_expectation_tells_right_from_wrong(name, right, wrong, said):
    module = images if hasattr(images, name) else expectations
    expect = getattr(module, name)
    expect(record(*right))
    with pytest.raises(Wrong, match=said):
        expect(record(*wrong))


def test_each_epoch_has_a_new_order():
    images.new_orders(record([PASS, *OTHERS], epochs=2))
    with pytest.raises(Wrong, match="Epochs 1 and 2 take the images"):
        images.new_orders(record([PASS, PASS], epochs=2))


def test_a_resumed_run_goes_on():
    expectations.goes_on(record([STEP, STEP], epochs=3, resume=1))
    with pytest.raises(Wrong, match="takes 3 steps, but the 2 remaining epochs have 2"):
        expectations.goes_on(record([STEP] * 3, epochs=3, resume=1))
