"""Promise: each shared check raises Wrong for what it is there for, and only then."""

from pathlib import Path

import pytest
import torch

from tools.lab import checks, image_checks
from tools.lab.checks import Wrong
from tools.lab.run_record import RunRecord
from tools.lab.setting import Setting

W = {"w": torch.ones(2, 3), "b": torch.ones(3)}
ROWS = [(0.5, 90, 101), (0.25, 95, 101)]
DDP = "DistributedDataParallel"


def events():
    """The events of two epochs of one step, on two ranks with two images each."""
    step = {"kind": "step", "digest": ["same"], "weights": 5}
    ranks = []
    for images in [(True, 0), (True, 1)], [(True, 2), (True, 3)]:
        seen = {"kind": "pass", "images": images, "grad": True}
        ranks.append([seen, step, seen, step])
    return ranks


def changed(kind, **facts):
    """The same events, with facts changed in rank 1's last event of a kind."""
    ranks = events()
    last = max(n for n, event in enumerate(ranks[1]) if event["kind"] == kind)
    ranks[1][last] = ranks[1][last] | facts
    return ranks


def record(**facts):
    """The record of a run that ended well on two ranks, with facts changed."""
    good = {
        "events": events(),
        "status": 0,
        "statuses": [0, 0],
        "places": {},
        "errors": {},
        "hangs": False,
        "rows": ROWS,
        "unread": {},
        "setting": Setting(processes=2, flags=("--epochs", "2")),
        "weights": W,
        "path": "mnist.py",
        "text": "1\n2\nwait()\n",
    }
    return RunRecord(**good | facts)


def raises(said, kind=Wrong):
    return pytest.raises(kind, match=said)


def test_what_is_right_passes():
    checks.ended(record())
    checks.learns(record())
    checks.same_curve(record(), record())
    checks.equal_weights(record())
    image_checks.partitioned(record(), train=4)
    checks.sharded(record(), size=10)
    assert checks.weights(record()) == W
    assert checks.size_of_network(record()) == 9
    checks.same_weights(record(), record(), names=True)
    renamed = record(weights={"two": W["b"], "one": W["w"] * (1 + 1e-6)})
    checks.same_weights(renamed, record())
    padded = changed("pass", images=[(True, 2), (True, 3), (True, 0)])
    image_checks.partitioned(record(events=padded), train=4, twice=1)


HANGS = r"hangs: after 12 seconds\n  rank 0 has come .*\n  rank 1 is at line 3: wait"
GONE = "RuntimeError: Connection closed by peer"
AHEAD = (
    "Rank 1's collective call 2 is all_reduce at line 3. Rank 0 has made only 1 call."
)
CALL = [{"kind": "collective_call", "name": "all_reduce", "line": 3}]
DID_NOT_MEET = r"did not meet.\n  rank 0 failed at line 3: wait.*\n  rank 1 has come"
ENDS = [
    ({"hangs": True, "statuses": [0, None], "places": {1: 3}}, HANGS),
    (
        {"status": 1, "errors": {1: ("ValueError: no\nmore", 3)}},
        r"fails: ValueError: no\n  at line 3: wait\(\)",
    ),
    (
        {"status": 1, "statuses": [1, None], "errors": {0: ("", None)}},
        "fails: rank 0 ended with exit status 1",
    ),
    ({"status": 11, "statuses": [None, -11]}, "rank 1 was killed by SIGSEGV"),
    (
        {"status": 1, "out": Path("/tmp/a/out"), "errors": {0: ("/tmp/a/out/b", 3)}},
        "fails: out/b\n",
    ),
    ({"status": 1, "statuses": [1, 0], "errors": {0: (GONE, 3)}}, DID_NOT_MEET),
    ({"hangs": True, "events": [CALL, CALL * 2]}, AHEAD),
]


@pytest.mark.parametrize(("facts", "said"), ENDS)
def test_a_run_that_does_not_end_well_is_wrong(facts, said):
    with raises(said):
        checks.ended(record(**facts))


def test_what_the_lab_cannot_run_is_its_own_limit():
    failed = record(status=1, errors={0: ("RuntimeError: Found no NVIDIA driver", 1)})
    with raises("Found no NVIDIA driver", checks.Limit):
        checks.ended(failed)


NAN = float("nan")
RESULTS = [
    ("weights", {"unread": {"model.pth": "it is empty"}}, "cannot be read: it is"),
    ("weights", {"weights": None}, "no model.pth"),
    ("weights", {"weights": {}}, "no model.pth"),
    ("learns", {"rows": ROWS[:1]}, "has 1 epochs, expected 2"),
    ("learns", {"rows": ROWS[::-1]}, "does not fall: 0.2500, 0.5000"),
    ("learns", {"rows": [ROWS[0], (NAN, 95, 101)]}, "does not fall"),
]


@pytest.mark.parametrize(("check", "facts", "said"), RESULTS)
def test_wrong_results_are_wrong(check, facts, said):
    with raises(said):
        getattr(checks, check)(record(**facts))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([[], []], "Rank 0 has taken no step"),
        ([events()[0], []], "Rank 1 took 0 steps"),
        (changed("step", digest=["other"]), "After step 2 .* rank 0: each trains"),
    ],
)
def test_ranks_that_drift_apart_are_wrong(steps, said):
    with raises(said):
        checks.equal_weights(record(events=steps))


def test_weights_that_differ_are_named():
    passes = changed("pass", digest={"module.w": "other", "module.b": "same"})
    for events in passes:
        for event in events:
            event.setdefault("digest", {"module.w": "same", "module.b": "same"})
    with raises(
        "After step 1 the weights of rank 1 differ from those of rank 0 in w[.]"
    ):
        checks.equal_weights(record(events=passes), "pass")


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([(True, 2), (True, 0)], "In epoch 2 rank 1 trained on 1 images"),
        ([(True, 2)], "3 of 4"),
        ([(True, 2), (True, 3), (True, 3)], "some were used more than once"),
    ],
)
def test_images_that_are_not_partitioned_are_wrong(images, said):
    with raises(said):
        image_checks.partitioned(record(events=changed("pass", images=images)), train=4)


def test_no_image_is_the_labs_limit():
    with raises("No training image was seen", checks.Limit):
        image_checks.partitioned(record(events=[[], []]), train=4)


def test_a_script_that_ends_before_it_trains_is_wrong():
    with raises("ends without an error, but it has not trained") as caught:
        image_checks.trained(record(events=[[], []], rows=[]))
    assert caught.type is Wrong


def test_a_whole_network_on_a_rank_is_wrong():
    steps = changed("step", weights=6)
    with raises("of rank 1 has 6 of the network's 10 numbers"):
        checks.sharded(record(events=steps), size=10)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"w": W["w"] * (1 + 2e-5), "b": W["b"]}, "w in model.pth is off by 2.0e-05"),
        ({"w": W["w"] * NAN, "b": W["b"]}, "w in model.pth is off by nan"),
        ({"w": W["w"]}, "'b' is in one of them only"),
        ({"w": W["w"][:1], "b": W["b"]}, "w is 1 x 3 in model.pth, expected 2 x 3"),
    ],
)
def test_other_weights_are_wrong(weights, said):
    with raises(said):
        checks.same_weights(record(weights=weights), record())


def test_names_count_where_they_are_asked_for():
    other = record(weights={f"module.{name}": value for name, value in W.items()})
    with raises("begin with 'module.w'; one process has 'w'"):
        checks.same_weights(other, record(), names=True)


def test_the_wrapper_has_to_be_called():
    with_gradients = [{"kind": "wrapper", "name": DDP, "grad": True}]
    without = [{"kind": "wrapper", "name": DDP, "grad": False}]
    with raises("No training batch went through .* on rank 1"):
        checks.wrapped(record(events=[with_gradients, without]))
    checks.wrapped(record(events=[with_gradients]))


NEAR = "The loss of epoch 2 is 0.250005; that .* They are 2e-05 apart, .* 1e-05 is"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((0.25 * (1 + 2e-5), 95, 101), NEAR),
        ((NAN, 95, 101), "The loss of epoch 2 is nan"),
        ((0.25, 94, 101), "Epoch 2 counts 94 of 101"),
        ((0.25, 95, 102), "Epoch 2 counts 95 of 102"),
    ],
)
def test_another_curve_is_wrong(row, said):
    with raises(said):
        checks.same_curve(record(rows=[ROWS[0], row]), record())


def test_rounding_is_right_and_nan_never():
    checks.same_curve(record(rows=[ROWS[0], (0.25 * (1 + 5e-6), 95, 101)]), record())
    nan = record(rows=[ROWS[0], (NAN, 95, 101)])
    with pytest.raises(Wrong):
        checks.same_curve(nan, nan)


def test_a_curve_of_other_length_is_wrong():
    with raises("has 1 epochs, expected 2"):
        checks.same_curve(record(rows=ROWS[:1]), record())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([[0, 2], [1]], None),
        ([[0, 2], [1, 0]], None),  # padded
        ([[0, 1, 2], [0, 1, 2]], "they evaluate 3 and 3 different ones"),
        ([[0, 1, 2], []], "they evaluate 3 and 0 different ones"),
        ([[0], [1]], "together evaluate 2 of 3 test images"),
    ],
)
def test_test_images_are_partitioned(parts, said):
    passes = []
    for part in parts:
        images = [(False, index) for index in part]
        passes.append([{"kind": "pass", "images": images, "grad": False}])
    if said is None:
        image_checks.evaluation_partitioned(record(events=passes), test=3)
    else:
        with raises(said):
            image_checks.evaluation_partitioned(record(events=passes), test=3)
