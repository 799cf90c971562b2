"""Promise: the playground trains as stage 4 does, whatever line is left out of it."""

import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT, call, edited, run
from tools.run import compare
from tools.site import playground

STORED = json.loads((ROOT / "tools" / "pages" / "outcomes.json").read_text())
RIGHT = STORED["right"]["04_ddp"]["2"][:2]
LINES = [(name, row) for name, _, row in playground.SWITCHES]
MOVES = [line for line in LINES if line[1] not in playground.HARMLESS]
GO = """hash => new Promise(drawn => {
  location.hash = hash;
  addEventListener("hashchange", () => setTimeout(drawn, 100), { once: true });
})"""


@pytest.fixture(scope="module")
def page(browser):
    """The page of `make playground`; fails on errors and on requests that leave it."""
    result = call(["make", "playground"])
    path = ROOT / "runs" / "playground.html"
    assert result.stdout.strip() == path.as_uri(), result.stderr
    assert path.stat().st_size <= 1_500_000
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    seen = set()
    opened.on("console", lambda message: seen.add(message.text))
    opened.on("pageerror", lambda error: seen.add(str(error)))
    opened.on("request", lambda request: seen.add(request.url))
    opened.goto(path.as_uri())
    yield opened
    assert {text for text in seen if not text.startswith("blob:")} == {path.as_uri()}


def trained(page, address):
    """Return what the page shows after two epochs with an address: curve, verdict."""
    page.evaluate(GO, f"epochs=2&{address}")
    page.wait_for_selector("#curve[data-done=true]", timeout=120_000)
    curve = []
    for cell in page.locator(".losses td:last-child").all():
        loss, count = cell.inner_text().split()
        curve.append((float(loss), *map(int, count.split("/"))))
    return curve, page.inner_text("#verdict")


def assert_same(curve, truth):
    assert len(curve) == len(truth) == 2
    for (loss, correct, total), expected in zip(curve, truth, strict=True):
        assert loss == pytest.approx(expected[0], rel=1e-5)
        assert (abs(correct - expected[1]) <= 2, total) == (True, expected[2])


def test_any_number_of_ranks_has_the_curve_of_the_script(page):
    for ranks in 1, 2, 4:
        curve, verdict = trained(page, f"ranks={ranks}")
        assert_same(curve, RIGHT)
        assert verdict.startswith("equal")


@pytest.mark.parametrize("name, row", MOVES)
def test_a_line_left_out_does_what_it_does_to_the_script(page, name, row):
    truth = STORED["switches"][f"04_ddp/{row}"]["2"]["curve"][:2]
    curve, verdict = trained(page, f"off={name}")
    assert_same(curve, truth)
    assert verdict == compare.judge(truth, RIGHT)[0]


def test_two_harmless_lines_move_the_curve_together(page, tmp_path):
    seed, init_sync = playground.HARMLESS.values()
    path = edited(
        "04_ddp", tmp_path, *seed["edits"].items(), *init_sync["edits"].items()
    )
    run("04_ddp", "--epochs", 2, "--out", tmp_path, path=path)
    truth = compare.read(tmp_path / "metrics.csv")
    assert_same(trained(page, "off=seed")[0], RIGHT)
    assert_same(trained(page, "off=init_sync")[0], RIGHT)
    assert_same(trained(page, "off=seed,init_sync")[0], truth)


def test_it_can_be_used_by_keyboard_screen_reader_and_on_a_phone(page):
    trained(page, "ranks=8")
    page.focus("#set_epoch")
    page.keyboard.press("Space")
    page.get_by_text("DIFFERENT").wait_for(timeout=120_000)
    assert page.url.endswith("#off=set_epoch&ranks=8&epochs=2")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], scheme
