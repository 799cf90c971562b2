"""Promise: each shared check raises Wrong for what it is there for, and only then."""

import pytest

from tools.lab import checks
from tools.lab.checks import Wrong
from tools.lab.observe import Seen

ROWS = [(0.5, 90, 101), (0.25, 95, 101)]


def seen(**facts):
    """What was seen of a run that ended well on two ranks, with changes."""
    halves = [0, 1], [2, 3]  # the images of each rank
    events = [
        [event for _ in range(2) for event in (
            {"kind": "loop"}, {"kind": "fetch", "images": [(True, i) for i in half]},
            {"kind": "step", "digest": "same"})]
        for half in halves
    ]  # fmt: skip
    good = {"events": events, "status": 0, "places": {}, "rows": ROWS}
    good |= {"weights": {"w": 0}, "stderr": "", "path": "mnist.py", "text": ""}
    return Seen(**good | facts)


def changed(kind, **facts):
    """The events of `seen`, with facts changed in rank 1's last event of a kind."""
    events = seen().events
    [event for event in events[1] if event["kind"] == kind][-1].update(facts)
    return events


def test_what_is_right_passes():
    checks.ended(seen())
    checks.learns(seen())
    checks.same_curve(seen(), seen())
    checks.equal_weights(seen())
    checks.shared_out(seen(), train=4)
    assert checks.weights(seen()) == {"w": 0}


@pytest.mark.parametrize(
    ("check", "facts", "said"),
    [
        ("ended", {"places": {1: "line 3: wait()"}}, "hangs: .*\n  rank 1 is at li"),
        ("ended", {"status": 1, "stderr": "ValueError: no"}, "fails: ValueError: no"),
        ("weights", {"weights": None}, "no model.pth"),
        ("weights", {"weights": {}}, "no model.pth"),
        ("learns", {"rows": ROWS[:1]}, "has 1 epochs, expected 2"),
        ("learns", {"rows": ROWS[::-1]}, "does not fall: 0.2500, 0.5000"),
        ("learns", {"rows": [ROWS[0], (float("nan"), 95, 101)]}, "does not fall"),
        ("equal_weights", {"events": [[], []]}, "No rank has taken a step"),
        ("equal_weights", {"events": [seen().events[0], []]}, "Rank 1 took 0 steps"),
        ("equal_weights", {"events": changed("step", digest="other")}, "After step 2"),
        ("shared_out", {"events": [[], []]}, "Rank 0 goes through its images 0 times"),
        ("shared_out", {"events": changed("fetch", images=[(True, 2), (True, 0)])},
         "In epoch 2 rank 1 trained on 1 images"),
        ("shared_out", {"events": changed("fetch", images=[(True, 2)])}, "3 of 4"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(check, facts, said):
    more = {"train": 4} if check == "shared_out" else {}
    with pytest.raises(Wrong, match=said):
        getattr(checks, check)(seen(**facts), **more)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((0.25 * (1 + 2e-9), 95, 101), "The loss of epoch 2"),
        ((float("nan"), 95, 101), "The loss of epoch 2 is nan"),
        ((0.25, 94, 101), "Epoch 2 counts 94 of 101"),
        ((0.25, 95, 102), "Epoch 2 counts 95 of 102"),
    ],
)
def test_another_curve_is_wrong(row, said):
    other = seen(rows=[ROWS[0], row])
    with pytest.raises(Wrong, match=said):
        checks.same_curve(other, seen())
    checks.same_curve(seen(rows=[ROWS[0], (0.25 * (1 + 5e-10), 95, 101)]), seen())
    if row[0] != row[0]:  # NaN is not right even where the solution has it
        with pytest.raises(Wrong):
            checks.same_curve(other, other)


def test_a_curve_of_other_length_is_wrong():
    with pytest.raises(Wrong, match="has 1 epochs, not 2"):
        checks.same_curve(seen(rows=ROWS[:1]), seen())
