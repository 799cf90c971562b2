"""Promise: what a switch tells of a mistake is what happened in the recorded runs."""

from itertools import chain
from urllib.parse import quote

import pytest

from tools.pages import side_by_side
from tools.pages.switches import SWITCHES, key, read_outcomes, without

pytestmark = pytest.mark.slow
OUTCOMES = read_outcomes()
IN_DIFFS = [one for one in SWITCHES if one["hunk"]]  # not those of the first stage
SAID = {  # of some switches: the verdicts, and on how many ranks
    "04_ddp/set_device": ["No effect on CPUs; not run on GPUs on 2 and 4 ranks"],
    "04_ddp/set_epoch": ["No error, but the curve moves on 2 and 4 ranks"],
    "04_ddp/barrier": ["It hangs on 2 and 4 ranks", "epoch 1", "line "],
    "04_ddp/wrapper evaluated": ["It crashes on 2 and 4 ranks", "it finished: 2."],
    "02_single_gpu/images.to": ["It crashes on one process", "it finished: 0."],
    "05_ddp_inference/padded shards": ["Nothing changes on 2 ranks", "moves on 3 rank"],
    "17_context_parallel/no ring": ["the curve moves on 2 ranks", "61–90"],
}


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


def recorded(runs):
    """Return texts that tell of runs; of those that end alike, of the first."""
    found = {"nothing": []}
    for run in runs.values():
        texts = [f"{loss:.6f}" for loss, *_ in run["curve"][:3]]
        if run["kind"] == "crashes":
            texts = [run["error"].strip(), f"Exit status: {run['exit']}."]
        if run["kind"] == "hangs":
            texts = [lane["code"] for lane in run["lanes"]]
        found.setdefault(run["kind"], texts)
    return chain(*found.values())


@pytest.mark.parametrize("stage", sorted({one["stage"] for one in IN_DIFFS}))
def test_a_switch_tells_what_its_runs_did(page, stage):
    for one in [one for one in IN_DIFFS if one["stage"] == stage]:
        show(page, f"{stage}.{one['hunk']}&off={quote(one['name'], safe='')}")
        card = page.evaluate("document.activeElement.innerText")  # which has the focus
        expected = [*recorded(OUTCOMES["switches"][key(one)]), *SAID.get(key(one), [])]
        if one["exercise"]:
            expected.append(f"make exercise E={one['exercise']}")
        expected.append(without(stage, one["edits"])["instead"])
        for text in expected:
            assert " ".join(text.split()) in " ".join(card.split()), key(one)


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
