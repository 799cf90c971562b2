"""Promise: the playground trains as stage 4 does, whatever mistake is switched on."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT, call, edited, run
from tools.pages.switches import read_outcomes
from tools.run import compare
from tools.site import playground

STORED = read_outcomes()
RIGHT = STORED["right"]["04_ddp"]["2"]
ROWS = {name: row for name, _, row in playground.SWITCHES}
MOVES = [name for name in ROWS if name not in playground.HARMLESS]
GO = """hash => new Promise(drawn => {
  location.hash = hash;
  addEventListener("hashchange", () => setTimeout(drawn, 50), { once: true });
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
    opened.goto(path.as_uri(), wait_until="domcontentloaded")
    yield opened
    assert {text for text in seen if not text.startswith("blob:")} == {path.as_uri()}


def check(page, address, truth):
    """Train as the address says: the page shows the curve `truth`, and its verdict."""
    page.evaluate(GO, f"{address}&epochs={len(truth)}")
    page.wait_for_selector("#curve[data-done=true]", timeout=120_000)
    cells = page.locator(".losses td:last-child").all_inner_texts()
    for text, expected in zip(cells, truth, strict=True):
        loss, correct, total = text.replace("/", " ").split()
        assert float(loss) == pytest.approx(expected[0], rel=1e-5)
        assert abs(int(correct) - expected[1]) <= 2
        assert int(total) == expected[2]
    verdict, _ = compare.judge(truth, RIGHT[: len(truth)])
    assert page.inner_text("#verdict").startswith(verdict)


def test_the_bands_are_those_of_make_compare(page):
    epochs = [1, 2, 3, 4, 30]
    limits = page.evaluate("epochs => epochs.map(allowed)", epochs)
    assert limits == pytest.approx([compare.allowed(epoch) for epoch in epochs])


@pytest.mark.parametrize("address", ["ranks=1", "ranks=2", "ranks=4"])
def test_any_number_of_ranks_has_the_curve_of_the_script(page, address):
    check(page, address, RIGHT[:2])


@pytest.mark.parametrize("name", MOVES)
def test_a_mistake_does_what_it_does_to_the_script(page, name):
    outcome = STORED["switches"][f"04_ddp/{ROWS[name]}"]["2"]
    check(page, f"off={name}", outcome["curve"][:2])


def test_two_mistakes_are_harmless_alone_but_not_together(page, tmp_path):
    for name in playground.HARMLESS:
        check(page, f"off={name}", RIGHT[:1])
    seed, init_sync = (one["edits"].items() for one in playground.HARMLESS.values())
    path = edited("04_ddp", tmp_path, *seed, *init_sync)
    run("04_ddp", "--epochs", 1, "--out", tmp_path, path=path)
    check(page, "off=seed,init_sync", compare.read(tmp_path / "metrics.csv"))


def bars(page):
    """Return what the slowed step's bars say: of each rank its own, then after it."""
    read = "all => all.map(one => one.getAttribute('aria-label'))"
    labels = page.eval_on_selector_all("#ranks svg", read)
    return [label.removeprefix("Its own: ").split("; then: ") for label in labels]


def test_a_step_slowed_down_shows_the_digits_and_gradients_of_each_rank(page):
    check(page, "ranks=2", RIGHT[:1])
    page.get_by_role("button", name="Play slowly").click()
    page.locator("#phases .now", has_text="all-reduce").wait_for()
    page.get_by_role("button", name="Stop").click()
    captions = page.locator("#ranks figcaption").all_inner_texts()
    assert captions == ["rank 0: 32 digits", "rank 1: 32 digits"]
    images = "all => all.map(one => one.getAttribute('aria-label'))"
    digits = page.eval_on_selector_all("#ranks canvas", images)
    assert digits[0] != digits[1]
    (own_0, after_0), (own_1, after_1) = bars(page)
    assert own_0 != own_1
    assert after_0 == after_1
    page.get_by_role("button", name="Run again").click()
    page.wait_for_selector("#curve[data-done=false]")


def test_without_ddp_each_rank_keeps_its_own_gradients(page):
    outcome = STORED["switches"][f"04_ddp/{ROWS['ddp']}"]["2"]
    check(page, "off=ddp", outcome["curve"][:1])
    assert all(own == after for own, after in bars(page))
    assert page.get_by_text("is missing: each keeps its own").is_visible()


def test_it_can_be_used_by_keyboard_screen_reader_and_on_a_phone(page):
    check(page, "ranks=8", RIGHT[:1])
    page.focus("#set_epoch")
    page.keyboard.press("Space")
    page.get_by_text("DIFFERENT").wait_for(timeout=120_000)
    assert page.url.endswith("#off=set_epoch&ranks=8&epochs=1")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], scheme
