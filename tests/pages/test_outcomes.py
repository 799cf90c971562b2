"""Promise: every idea has a switch, and its stored outcome matches a run today."""

import re

import pytest

from conftest import ROOT, slow
from tools.pages import outcomes
from tools.pages.switches import hunk_of
from tools.run.diffs import EXPLAINED
from tools.run.essence import STEPS
from tools.run.ideas import ideas
from tools.run.stages import MNIST, TRANSFORMER, script

STORED = outcomes.read_outcomes()
SWITCHES = {switch["key"]: switch for switch in outcomes.SWITCHES}


def test_every_idea_has_a_switch():
    shown = {"01_cpu": [None], "13_gpt": [None]}  # they have no diff
    for a, b in EXPLAINED:
        switches = [one for one in outcomes.SWITCHES if one["stage"] == b]
        hunks = {hunk_of(one) for one in switches}
        for idea in ideas(a, b):
            has_switch = hunks & set(idea.numbers)
            is_first = b in MNIST.values()  # the second curve has tables of bugs
            assert has_switch or idea.is_plumbing or not is_first, idea.title
            shown.setdefault(b, []).extend(idea.numbers)
    for name, switch in SWITCHES.items():
        is_shown = hunk_of(switch) in shown[switch["stage"]]
        is_hidden = "variant" in switch or switch.get("hunk") == "0"
        assert is_shown != is_hidden, name


@pytest.mark.parametrize("name, switch", SWITCHES.items())
def test_a_switch_applies_and_has_an_outcome_on_each_of_its_ranks(name, switch):
    text = outcomes.edited(switch["stage"], switch["edits"], switch.get("variant"))
    assert text != script(switch["stage"]).read_text()
    compile(text, name, "exec")
    found = STORED["switches"][name]
    assert list(found) == [str(number) for number in switch["ranks"]]
    assert found.keys() <= STORED["right"][switch["stage"]].keys()
    for number, one in found.items():
        if "gpus" in switch:
            assert one["kind"] == "nothing"
        if one["kind"] == "hangs":
            assert [lane["rank"] for lane in one["lanes"]] == list(range(int(number)))
            assert all(lane["code"] in text for lane in one["lanes"])
    if "step" in switch:
        assert switch["step"] in STEPS
    if "exercise" in switch:
        assert list((ROOT / "exercises").glob(f"{switch['exercise']}_*.md"))


def test_the_file_holds_the_switches_of_today_and_nothing_of_this_machine():
    assert STORED["recorded"] == outcomes.RECORDED, "record again: make outcomes"
    assert STORED["switches"].keys() == SWITCHES.keys()
    text = outcomes.STORED.read_text()
    assert text == outcomes.layout(STORED, 3) + "\n"
    assert not re.search(r"127\.0|/tmp|NaN|Infinity|0x", text)


def test_the_steps_of_the_front_page_make_up_its_epochs():
    """An epoch's last step has half as many images."""
    for stage, runs in STORED["steps"].items():
        for ranks, steps in runs.items():
            curve = STORED["right"][stage][ranks]
            assert len(steps) == 63 * len(curve)
            for n, (loss, *_) in enumerate(curve):
                *whole, half = steps[63 * n : 63 * (n + 1)]
                assert (sum(whole) * 64 + half * 32) / 4000 == pytest.approx(loss, 1e-5)


@pytest.mark.parametrize(
    "line, kind, limit", [slow("while True: pass", "hangs", 2), ("1/0", "crashes", 60)]
)
def test_a_run_that_does_not_end_well_is_never_harmless(line, kind, limit):
    """Even if its curve is right: both have no epochs here."""
    first = "import argparse\n"
    switch = {"stage": "01_cpu", "edits": [(first, f"{line}\n{first}")]}
    found = outcomes.outcome(switch, 1, right=[], limit=limit)
    assert (found["kind"], found["curve"]) == (kind, [])


def same(stage, old, new):
    """Return whether two OUTCOMEs are the same, with curves equal up to rounding."""
    # How fast a loss diverges depends on the processor's rounding.
    curves = [[row for row in one["curve"] if row[0] < 3] for one in (old, new)]
    if not outcomes.equal(*curves, stage in TRANSFORMER.values()):
        return False
    if new.get("steps", []) != pytest.approx(old.get("steps", []), rel=5e-3):
        return False
    plain = [{**one, "curve": len(one["curve"]), "steps": 0} for one in (old, new)]
    return plain[0] == plain[1]


CASES = [(name, ranks) for name, found in STORED["switches"].items() for ranks in found]


@pytest.mark.slow
@pytest.mark.parametrize("name, ranks", CASES)
def test_a_switch_does_today_what_is_stored(name, ranks):
    stored = STORED["switches"][name][ranks]
    stage = SWITCHES[name]["stage"]
    right = STORED["right"][stage][ranks]
    for limit in 5, 60:  # seconds; the longer one is for a busy machine
        found = outcomes.outcome(SWITCHES[name], int(ranks), right, limit)
        if same(stage, stored, found):
            break
    assert same(stage, stored, found), f"{name}: make outcomes\n{found}"
