"""Promise: what a switch tells of a mistake is what happened in the recorded runs."""

import re
from urllib.parse import quote

import pytest

from tools.pages import side_by_side
from tools.pages.switches import SWITCHES, key, read_outcomes, without
from tools.run.stages import TRANSFORMER

OUTCOMES = read_outcomes()
IN_DIFFS = [one for one in SWITCHES if one["hunk"]]  # not those of the first stage
VERDICTS = {
    "moves": "No error, but the curve moves",
    "crashes": "It crashes",
    "hangs": "It hangs",
    "nothing": "Nothing changes",
}
TOLD = """() => {
  const card = document.activeElement;  // what an address leads to has the focus
  const all = selector => [...card.querySelectorAll(selector)];
  const texts = selector => all(selector).map(one => one.textContent.trim());
  return { verdicts: texts(".verdict"), errors: texts(".outcome > pre"),
    notes: texts(".outcome > .soft, .says").join(" "), lanes: texts(".lanes li"),
    instead: texts(".instead pre"),
    heads: texts(".losses thead th"), cells: texts(".losses td") };
}"""


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """The page of `make side_by_side`, for all tests; fails on an error."""
    path = tmp_path_factory.mktemp("runs") / "side_by_side.html"
    path.write_text(side_by_side.page())
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    wrong = []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.goto(path.as_uri(), wait_until="domcontentloaded")
    yield opened
    assert wrong == []


def show(page, link):
    page.evaluate("link => go(link)", f"#{link}")


def on_ranks(ranks):
    return "one process" if ranks == "1" else f"{ranks} ranks"


@pytest.mark.parametrize("stage", sorted({one["stage"] for one in IN_DIFFS}))
def test_a_switch_tells_what_its_runs_did(page, stage):
    for one in [one for one in IN_DIFFS if one["stage"] == stage]:
        show(page, f"{stage}.{one['hunk']}&off={quote(one['name'], safe='')}")
        told = page.evaluate(TOLD)
        runs = OUTCOMES["switches"][key(one)]
        by_kind = {kind: {} for kind in VERDICTS}
        for ranks, run in runs.items():
            by_kind[run["kind"]][ranks] = run
        for kind, some in by_kind.items():
            words = VERDICTS[kind]
            if kind == "nothing" and one["gpus"]:
                words = "No effect on CPUs; not run on GPUs"
            said = [text for text in told["verdicts"] if text.startswith(words)]
            assert bool(said) == bool(some)
            assert all(ranks.replace("1", "one") in " ".join(said) for ranks in some)
        for run in by_kind["crashes"].values():
            without_numbers = [re.sub(r"\d+", "#", text) for text in told["errors"]]
            assert re.sub(r"\d+", "#", run["error"].strip()) in without_numbers
            finished = f"it finished: {len(run['curve'])}. Exit status: {run['exit']}."
            assert finished in told["notes"]
        check_lanes(told["lanes"], by_kind["hangs"])
        rights = OUTCOMES["right"][stage]
        is_second = stage in TRANSFORMER.values()
        check_table(told, rights, by_kind["moves"], next(iter(runs)), is_second)
        gone = without(stage, one["edits"])
        assert told["instead"] == ([gone["instead"].strip()] if gone["instead"] else [])
        if one["exercise"]:
            assert f"make exercise E={one['exercise']}" in told["notes"]


def check_lanes(told, hanging):
    """Assert that the lanes are those of the first run that hangs."""
    expected = []
    for run in [*hanging.values()][:1]:
        for lane in run["lanes"]:
            done = "".join(f"epoch {n + 1}" for n in range(lane["epochs"]))
            waits = (
                f"line {lane['line']}: {lane['code']}" if lane["code"] else "has ended"
            )
            expected.append(f"rank {lane['rank']}{done}{waits}")
    assert told == expected


def check_table(told, rights, moved, first, is_second):
    """Assert that the table has the right curve, and those that moved."""
    if not moved:
        assert told["heads"] == told["cells"] == []
        return
    right = rights.get(first) or next(iter(rights.values()))
    rows = "steps" if is_second else "epoch"
    assert told["heads"] == [rows, "right", *map(on_ranks, moved)]
    curves = [right, *[run["curve"] for run in moved.values()]]
    cells = []
    for row in zip(*curves, strict=False):
        cells += [f"{loss:.6f} {correct}/{total}" for loss, correct, total in row]
    assert told["cells"] == cells


def test_a_guess_is_judged(page):
    show(page, "04_ddp")
    switch = page.get_by_role("switch", name="Without set_epoch")
    for words in "it crashes", "the curve moves", "it hangs", "nothing":
        switch.check()
        page.get_by_role("button", name=words).click()
        said = page.inner_text(".outcome > p:first-child")
        is_right = words == "the curve moves"
        expected = "You guessed right." if is_right else f"Your guess was: {words}."
        assert said == expected
        switch.uncheck()


def test_several_switches_are_in_the_address_as_they_were_flipped(page):
    show(page, "04_ddp.8&off=barrier|ddp_model%20saved")
    assert page.locator(".outcome").count() == 2
    page.get_by_role("switch", name="Without set_epoch").click()
    page.get_by_role("button", name="it hangs").click()
    names = "#04_ddp.8&off=barrier|ddp_model%20saved|set_epoch"
    assert page.evaluate("location.hash") == names
    page.locator("[role=switch][value='04_ddp/barrier']:visible").click()
    assert page.evaluate("location.hash") == names.replace("barrier|", "")
    assert page.locator(".outcome").count() == 2
    show(page, "05_ddp_inference")
    assert page.locator(".outcome:visible").count() == 0
