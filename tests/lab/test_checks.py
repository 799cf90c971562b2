"""Promise: each shared check raises Wrong for what it is there for, and only then."""

import pytest
import torch

from tools.lab import checks
from tools.lab.checks import Wrong
from tools.lab.run_record import RunRecord

W = {"w": torch.ones(2, 3), "b": torch.ones(3)}
ROWS = [(0.5, 90, 101), (0.25, 95, 101)]


def record(**facts):
    """The record of a run that ended well on two ranks, with changes."""
    halves = [0, 1], [2, 3]  # the images of each rank
    events = [
        [event for _ in range(2) for event in (
            {"kind": "pass", "images": [(True, i) for i in half], "grad": True},
            {"kind": "step", "digest": "same", "weights": 5})]
        for half in halves
    ]  # fmt: skip
    good = {"events": events, "status": 0, "statuses": [0, 0], "places": {}}
    good |= {"errors": {}, "hangs": False, "rows": ROWS, "unread": {}, "count": 2}
    good |= {"weights": W, "path": "mnist.py", "text": "1\n2\nwait()\n"}
    return RunRecord(**good | facts)


def test_what_the_lab_cannot_run_is_its_own_limit():
    with pytest.raises(checks.Limit, match="Found no NVIDIA driver"):
        checks.ended(
            record(status=1, errors={0: ("RuntimeError: Found no NVIDIA driver", 1)})
        )


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"w": W["w"] * (1 + 2e-5), "b": W["b"]}, "w in model.pth is off by 2.0e-05"),
        ({"w": W["w"] * float("nan"), "b": W["b"]}, "w in model.pth is off by nan"),
        ({"w": W["w"]}, "'b' is in one of them only"),
        ({"w": W["w"][:1], "b": W["b"]}, "w is 1 x 3 in model.pth, expected 2 x 3"),
    ],
)
def test_other_weights_are_wrong(weights, said):
    with pytest.raises(Wrong, match=said):
        checks.same_weights(record(weights=weights), record())


def test_names_count_where_they_are_asked_for():
    other = record(weights={f"module.{name}": value for name, value in W.items()})
    with pytest.raises(Wrong, match="begin with 'module.w'; one process has 'w'"):
        checks.same_weights(other, record(), names=True)


def test_the_wrapper_has_to_be_called():
    events = [[{"kind": "wrapper", "name": "DistributedDataParallel", "grad": g}]
              for g in (True, False)]  # fmt: skip
    with pytest.raises(Wrong, match="No training batch went through .* on rank 1"):
        checks.wrapped(record(events=events))
    checks.wrapped(record(events=events[:1]))


def changed(kind, **facts):
    """The events of `record`, with facts changed in rank 1's last event of a kind."""
    events = record().events
    [event for event in events[1] if event["kind"] == kind][-1].update(facts)
    return events


def test_what_is_right_passes():
    checks.ended(record())
    checks.learns(record())
    checks.same_curve(record(), record())
    checks.equal_weights(record())
    checks.partitioned(record(), train=4)
    checks.sharded(record(), size=10)
    assert checks.weights(record()) == W
    checks.same_weights(record(), record(), names=True)
    renamed = record(weights={"two": W["b"], "one": W["w"] * (1 + 1e-6)})
    checks.same_weights(renamed, record())
    padded = changed("pass", images=[(True, 2), (True, 3), (True, 0)])
    checks.partitioned(record(events=padded), train=4, twice=1)


@pytest.mark.parametrize(
    ("check", "facts", "said"),
    [
        ("ended", {"hangs": True, "statuses": [0, None], "places": {1: 3}},
         r"hangs: after 12 seconds\n  rank 0 has come to its end\n  rank 1 is at line 3: w"),
        ("ended", {"status": 1, "errors": {1: ("ValueError: no\nmore", 3)}},
         r"fails: ValueError: no\n  at line 3: wait\(\)"),
        ("ended", {"status": 1, "statuses": [1, None], "errors": {0: ("", None)}},
         "fails: rank 0 ended with exit status 1"),
        ("ended", {"status": 11, "statuses": [None, -11]}, "rank 1 was killed by SIGSEGV"),
        ("ended", {"status": 1, "statuses": [1, 0], "places": {},
                   "errors": {0: ("RuntimeError: Connection closed by peer", 3)}},
         "did not meet.\n  rank 0 failed at line 3: wait.*\n  rank 1 has come to its end"),
        ("weights", {"unread": {"model.pth": "it is empty"}}, "cannot be read: it is"),
        ("weights", {"weights": None}, "no model.pth"),
        ("weights", {"weights": {}}, "no model.pth"),
        ("learns", {"rows": ROWS[:1]}, "has 1 epochs, expected 2"),
        ("learns", {"rows": ROWS[::-1]}, "does not fall: 0.2500, 0.5000"),
        ("learns", {"rows": [ROWS[0], (float("nan"), 95, 101)]}, "does not fall"),
        ("equal_weights", {"events": [[], []]}, "Rank 0 has taken no step"),
        ("equal_weights", {"events": [record().events[0], []]}, "Rank 1 took 0 steps"),
        ("equal_weights", {"events": changed("step", digest="other")}, "After step 2"),
        ("sharded", {"events": changed("step", weights=6)}, "of rank 1 has 6 of .* 10 numb"),
        ("partitioned", {"events": [[], []]}, "No training image was seen"),
        ("partitioned", {"events": changed("pass", images=[(True, 2), (True, 0)])},
         "In epoch 2 rank 1 trained on 1 images"),
        ("partitioned", {"events": changed("pass", images=[(True, 2)])}, "3 of 4"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(check, facts, said):
    more = {"partitioned": {"train": 4}, "sharded": {"size": 10}}.get(check, {})
    with pytest.raises(Wrong, match=said):
        getattr(checks, check)(record(**facts), **more)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            (0.25 * (1 + 2e-5), 95, 101),
            "The loss of epoch 2 is 0.250005; that of .* They are 2e-05 apart, .* 1e-05 is",
        ),
        ((float("nan"), 95, 101), "The loss of epoch 2 is nan"),
        ((0.25, 94, 101), "Epoch 2 counts 94 of 101"),
        ((0.25, 95, 102), "Epoch 2 counts 95 of 102"),
    ],
)
def test_another_curve_is_wrong(row, said):
    other = record(rows=[ROWS[0], row])
    with pytest.raises(Wrong, match=said):
        checks.same_curve(other, record())
    checks.same_curve(record(rows=[ROWS[0], (0.25 * (1 + 5e-6), 95, 101)]), record())
    if row[0] != row[0]:  # NaN is not right even where the solution has it
        with pytest.raises(Wrong):
            checks.same_curve(other, other)


def test_a_curve_of_other_length_is_wrong():
    with pytest.raises(Wrong, match="has 1 epochs, expected 2"):
        checks.same_curve(record(rows=ROWS[:1]), record())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([[0, 2], [1]], ""),
        ([[0, 2], [1, 0]], ""),  # padded
        ([[0, 1, 2], [0, 1, 2]], "they evaluate 3 and 3 different ones"),
        ([[0, 1, 2], []], "they evaluate 3 and 0 different ones"),
        ([[0], [1]], "together evaluate 2 of 3 test images"),
    ],
)
def test_test_images_are_partitioned(parts, said):
    events = [
        [{"kind": "pass", "images": [(False, i) for i in part], "grad": False}]
        for part in parts
    ]
    if not said:
        return checks.evaluation_partitioned(record(events=events), test=3)
    with pytest.raises(Wrong, match=said):
        checks.evaluation_partitioned(record(events=events), test=3)
