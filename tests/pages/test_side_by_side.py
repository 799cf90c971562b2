"""Promise: `make side_by_side` writes one accessible page that shows every stage."""

import re
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT, call
from tools.pages.switches import SWITCHES, hunk_of, read_outcomes, without
from tools.run import diffs

pytestmark = pytest.mark.slow
OUTCOMES = read_outcomes()
IN_DIFFS = [one for one in SWITCHES if hunk_of(one)]  # not the first stage's
LOSSES = "1.499912", "1.505662"  # stage 4's epoch 1: right, and without set_epoch


@pytest.fixture(scope="module")
def path():
    """Return the page's path from the link that `make side_by_side` prints."""
    result = call(["make", "side_by_side"])
    assert result.returncode == 0, result.stderr
    path = ROOT / "runs" / "side_by_side.html"
    assert result.stdout.strip() == path.as_uri()
    return path


@pytest.fixture
def page(browser, path):
    """Yield the page, opened from disk; fail on errors and external requests."""
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    wrong = []
    requests = []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(path.as_uri(), wait_until="domcontentloaded")
    yield opened
    assert wrong == []
    assert {re.split("[?#]", url)[0] for url in requests} == {path.as_uri()}
    opened.close()


def show(page, link):
    page.evaluate("link => go(link)", f"#{link}")


def texts(page, selector):
    """Return the texts of the visible diff's elements that match a selector."""
    script = "all => all.map(one => one.textContent)"
    return page.eval_on_selector_all(f".body:not([hidden]) {selector}", script)


def test_a_pair_shows_each_changed_line_once(page):
    for pair in diffs.EXPLAINED:
        show(page, pair[1])
        shown = []
        for sign, kind in ("-", "old"), ("+", "new"):
            for line in texts(page, f".idea .l.{kind} .text"):
                shown.append(sign + line.strip())
        changed = [line for hunk in diffs.hunks(*pair) for line in hunk.changed()]
        expected = sorted(line[0] + line[1:].strip() for line in changed)
        assert sorted(shown) == expected, pair


def test_a_choice_shows_another_script_and_its_address(page):
    page.get_by_label("Script").select_option("17 context parallel: 67 lines")
    assert texts(page, "h2") == ["From 14_data_parallel to 17_context_parallel"]
    assert page.evaluate("location.hash") == "#17_context_parallel"
    show(page, "07_fsdp")
    assert page.get_by_label("Script").input_value() == "07_fsdp"


def test_ideas_stand_in_the_order_of_the_lesson(page):
    show(page, "04_ddp")
    titles = [title.partition(" ")[2] for title in texts(page, ".idea h3")]
    assert titles == [
        idea.title for idea, _ in diffs.by_idea("02_single_gpu", "04_ddp")
    ]
    closed = texts(page, ".idea > .fold:not([open])")
    assert len(closed) == 1  # imports and the like
    why = page.get_by_text("LOCAL_RANK is the process")
    assert len(texts(page, ".idea > .foot .reason")) == 5
    assert not why.is_visible()  # the question comes before the answer
    page.locator(".body:not([hidden]) summary", has_text="Why?").first.click()
    assert why.is_visible()


def test_a_switch_asks_first_then_shows_what_happened(page):
    show(page, "04_ddp")
    page.get_by_role("switch", name="Without set_epoch").click()
    assert page.inner_text(".off").startswith("115 +")  # struck through
    assert page.locator(".verdict").count() == 0
    page.get_by_role("button", name="it crashes").click()
    told = page.locator(".outcome").inner_text()
    for words in "it crashes", "the curve moves", *LOSSES, "make exercise E=06":
        assert words in told
    assert "distance" in page.locator(".outcome .charts").inner_html()
    assert page.evaluate("location.hash") == "#04_ddp.8&off=set_epoch"
    page.reload()
    assert LOSSES[1] in page.locator(".outcome").inner_text()  # the link stores it
    page.get_by_role("switch", name="Without set_epoch").click()
    assert page.locator(".outcome").count() == page.locator(".off").count() == 0
    show(page, "04_ddp.8&off=%|set_epoch")  # a truncated address
    assert page.locator(".off").count() == 1


def test_each_screen_of_the_workshop_shows_its_idea_alone_and_large(page):
    text = (ROOT / "exercises" / "WORKSHOP.md").read_text()
    screens = re.findall(r"`#((\w+)\.(\d+))`", text)
    assert len(screens) == 11
    page.set_viewport_size({"width": 1920, "height": 1080})
    for screen, pair, number in screens:
        show(page, screen)
        card = page.locator(".idea.current")
        assert card.get_attribute("data-pair") == pair
        assert number in card.get_attribute("data-numbers").split()
        box = card.bounding_box()
        assert 0 <= box["y"] < 200 and box["y"] + box["height"] > 1000
        line = card.locator(".l .text").first
        size = line.evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
        assert size >= 28


def test_every_link_leads_to_a_file(page):
    """This includes links in a switch's outcome."""
    show(page, "04_ddp.8&off=set_epoch")
    links = page.eval_on_selector_all("a[href]", "all => all.map(one => one.href)")
    found = {link.partition("#")[0] for link in links if link.startswith("file:")}
    names = {Path(link.removeprefix("file://")) for link in found}
    assert ROOT / "exercises" / "06_same_order.md" in names
    assert [name for name in names if not name.exists()] == []


def test_everybody_can_read_it(page):
    """axe-core checks contrast, heading order and names."""
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        show(page, "04_ddp.8&off=set_epoch|barrier|all_reduce%20on%20rank%200")
        response = Axe().run(page).response
        wrong = [(one["id"], one["nodes"][0]["html"]) for one in response["violations"]]
        assert wrong == [], scheme
        passed = {one["id"] for one in response["passes"]}
        assert passed >= {"color-contrast", "heading-order", "landmark-unique"}
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        darkest = max(map(int, re.findall(r"\d+", paper)))
        assert (darkest < 60) == (scheme == "dark")


def recorded(runs):
    """Return the texts that describe runs: the first run of each kind."""
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
        show(page, f"{stage}.{hunk_of(one)}&off={quote(one['name'], safe='')}")
        card = page.evaluate("document.activeElement.innerText")  # the focused element
        expected = list(recorded(OUTCOMES["switches"][one["key"]]))
        if "exercise" in one:
            expected.append(f"make exercise E={one['exercise']}")
        expected.append(without(stage, one["edits"])["instead"])
        for text in expected:
            assert " ".join(text.split()) in " ".join(card.split()), one["key"]
