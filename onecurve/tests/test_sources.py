"""Promise: a finding points to the line that computes a value, not where it shows."""

import pytest

from onecurve.evidence.seen import Seen
from onecurve.report.sources import point
from onecurve.rules import finding

SCRIPT = """
def counted(loader, world):
    total = 0
    for row in loader:
        total += row
    return total / world

def main():
    rank, world = read()
    part = train[rank::world]
    loader = DataLoader(part, 8)
    wrapper.require_backward_grad_sync = world == 1
    for step in range(updates):
        rate = base * (1 - step / updates)
        optimizer.param_groups[0]["lr"] = rate
        loss = model(batch) / world
        loss.backward()
        (loss / 2).backward()
    score = counted(loader, world)
    if score > best:
        best = score
    state = {name: one.to_local() for name, one in parts}
    torch.save(state, "model.pt")
    print(score)
"""


def line(text):
    """Return the number of the only line of SCRIPT that contains a string."""
    (number,) = [n for n, row in enumerate(SCRIPT.splitlines(), 1) if text in row]
    return f"train.py:{number}"


def read(file):
    """Return the source of train.py, the only file."""
    return SCRIPT if file == "train.py" else None


@pytest.mark.parametrize(
    ("name", "seen", "made", "facts"),
    [
        ("printed", "print(score)", "return total", {"text": "score"}),
        ("by_world", "print(score)", "return total", {"text": "score"}),
        ("decision_by_rank", "if score > best", "return total", {"text": "best"}),
        ("gradient", "  loss.backward", "loss = model", {"ranks": 2}),
        ("gradient", "(loss / 2).back", "(loss / 2).back", {"ranks": 2}),
        ("weights", "if score > best", '["lr"] = rate', {"number": 2, "cause": "rate"}),
        ("datasets", "loader = Data", "part = train[rank", {}),
        ("partial_checkpoint", "torch.save", "state = {", {}),
        ("exchange", "  loss.backward", "require_backward", {"cause": "sync"}),
        ("exchange", "  loss.backward", "  loss.backward", {}),
        ("printed", "print(score)", "print(score)", {"text": '"score"'}),
    ],
)
def test_the_line_that_makes_a_value_comes_first(name, seen, made, facts):
    found = finding(name, line(seen), **facts)
    point(found, read, Seen([[]]))
    assert found.line == line(made)
    assert (f"seen at {line(seen)}" in found.details) == (seen != made)


def test_the_line_that_differs_by_rank_is_named_first():
    found = finding("printed", line("print(score)"), text="score")
    point(found, read, Seen([[]]))
    told = f"depends on the rank at {line('part = train[rank')}"
    assert found.details[0] == told


@pytest.mark.parametrize("place", [None, "other.py:3", "train.py:999"])
def test_a_line_that_is_not_in_the_folder_stays(place):
    found = finding("gradient", place, ranks=2)
    point(found, read, Seen([[]]))
    assert (found.line, found.details) == (place, [])
