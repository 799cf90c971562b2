"""Promise: the playground trains as stage 4 does, whatever bug is switched on."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from torch.utils.data.distributed import DistributedSampler

from conftest import ROOT, call, edited, run
from tools.pages.switches import read_outcomes, without
from tools.run import compare, data
from tools.site import playground

pytestmark = pytest.mark.slow
STORED = read_outcomes()
RIGHT = STORED["right"]["04_ddp"]["2"]
ROWS = {name: row for name, _, row in playground.SWITCHES}
EPOCHS = {"set_epoch": 2}  # the second repeats the first's order
HARMLESS = "seed", "init_sync"  # each alone; together they move the curve
MOVES = [name for name in ROWS if name not in HARMLESS]
GO = """hash => new Promise(seen => {
  history.replaceState(null, "", "#");
  addEventListener("hashchange", seen, { once: true });
  location.hash = hash;
})"""
DONE = "#curve[data-done=true]"


@pytest.fixture(scope="module")
def page(browser):
    """Yield the page of `make playground`; fail on errors and external requests."""
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


def visit(page, address):
    """Have the page train with an address's settings, to the end."""
    page.evaluate(GO, address)
    page.wait_for_selector(DONE, timeout=120_000)


def table(page):
    """Return the curves in the page's table: stage 1's and stage 4's."""
    curves = []
    for column in 2, 3:
        cells = page.locator(f".losses td:nth-child({column})").all_inner_texts()
        words = [text.replace("/", " ").split() for text in cells]
        curves.append([(float(one[0]), int(one[1]), int(one[2])) for one in words])
    return curves


def agrees(curve, truth):
    """Return whether a curve on the page matches a script's, up to rounding."""
    pairs = zip(curve, truth, strict=True)
    return all(
        one[0] == pytest.approx(other[0], rel=1e-5)
        and abs(one[1] - other[1]) <= 2
        and one[2] == other[2]
        for one, other in pairs
    )


def check(page, address, truth):
    """Train with an address; assert that the page shows `truth` and its verdict."""
    visit(page, f"{address}&epochs={len(truth)}")
    right = RIGHT[: len(truth)]
    stage_1, stage_4 = table(page)
    assert agrees(stage_1, right)
    assert agrees(stage_4, truth)
    verdict, is_equal = compare.judge(truth, right)
    assert page.inner_text("#verdict").startswith(verdict)
    assert page.locator("#verdict.different").count() == (not is_equal)
    assert (page.locator(".losses mark").count() > 0) == (not is_equal)


def test_the_bands_are_those_of_make_compare(page):
    epochs = [1, 2, 3, 4, 30]
    limits = page.evaluate("epochs => epochs.map(allowed)", epochs)
    assert limits == pytest.approx([compare.allowed(epoch) for epoch in epochs])
    shown = page.evaluate("[1, 3].map(epoch => digits(0.436299, 0.436164, epoch))")
    assert shown == ["0.436<mark>299</mark>", "0.436299"]  # 3e-4 off


@pytest.mark.parametrize("address", ["ranks=1", "ranks=2", "ranks=4"])
def test_any_number_of_ranks_has_the_curve_of_the_script(page, address):
    check(page, address, RIGHT[:2])


@pytest.mark.parametrize("name", MOVES)
def test_a_mistake_does_what_it_does_to_the_script(page, name):
    outcome = STORED["switches"][f"04_ddp/{ROWS[name]}"]["2"]
    check(page, f"off={name}", outcome["curve"][: EPOCHS.get(name, 1)])


def test_two_mistakes_are_harmless_alone_but_not_together(page, tmp_path):
    for name in HARMLESS:
        check(page, f"off={name}", RIGHT[:1])
    seed, init_sync = (playground.LEFT_OUT[name]["edits"] for name in HARMLESS)
    path = edited("04_ddp", tmp_path, *seed, *init_sync)
    run("04_ddp", "--epochs", 1, "--out", tmp_path, path=path)
    check(page, "off=seed,init_sync", compare.read(tmp_path / "metrics.csv"))


def test_the_flags_that_one_chooses_are_those_of_the_script(page, tmp_path):
    flags = "--batch-size", 128, "--lr", 0.3, "--hidden", 32, "--epochs", 2
    run("01_cpu", *flags, "--out", tmp_path)
    truth = compare.read(tmp_path / "metrics.csv")
    visit(page, "epochs=1")
    labels = "Ranks", "Batch size", "Learning rate", "Width", "Epochs"
    for label, value in zip(labels, ["4", "128", "0.3", "32", "2"], strict=True):
        page.get_by_role("combobox", name=label).select_option(value)
    page.wait_for_selector(DONE)
    assert all(agrees(curve, truth) for curve in table(page))
    captions = page.locator("#figure .lane").all_inner_texts()
    assert captions == [f"rank {rank} 32 digits, 16 shown" for rank in range(4)]
    address = page.url.partition("#")[2]
    assert address == "ranks=4&batch_size=128&lr=0.3&hidden=32&epochs=2"
    visit(page, f"{address}&off=all_reduce")  # the address holds all settings
    assert agrees(table(page)[0], truth)
    assert page.locator(".losses mark").count() > 0


def line(page, kind):
    """Return the points of a line in the loss chart, [(epochs passed, loss)].

    The chart's ticks give the scale.
    """
    svg = page.locator("#charts svg").first
    places = "all => all.map(one => [one.textContent, one.getAttribute(POS)])"
    up = svg.locator(".scale").evaluate_all(places.replace("POS", "'y'"))
    (low, bottom), *_, (high, top) = [(float(text), float(y) - 4) for text, y in up]
    along = svg.locator(".tick").evaluate_all(places.replace("POS", "'x'"))
    left, right = (float(x) for _, x in along)  # the midpoints of two epochs
    drawn = svg.locator(f"[class='{kind}'] polyline").get_attribute("points")
    points = []
    for pair in drawn.split():
        x, y = map(float, pair.split(","))
        passed = 0.5 + (x - left) / (right - left)
        points.append((passed, low + (y - bottom) / (top - bottom) * (high - low)))
    return points


def test_the_chart_has_each_step_of_both_runs(page):
    for off, kind in ("set_epoch,all_reduce", "wrong"), ("", "same"):
        visit(page, f"off={off}&batch_size=32&epochs=2")  # steps of equal size
        for curve, name in zip(table(page), ["right", kind], strict=True):
            steps = line(page, f"{name} steps")
            passed = [step / 125 for step in range(1, 251)]
            assert [at for at, _ in steps] == pytest.approx(passed)
            losses = [loss for _, loss in steps]
            means = [sum(part) / 125 for part in (losses[:125], losses[125:])]
            assert means == pytest.approx([row[0] for row in curve], rel=1e-5)


def test_what_is_switched_on_is_struck_through_and_explained(page):
    visit(page, "off=set_epoch,init_sync,ddp&epochs=1")
    assert page.locator("#init_sync").is_disabled()  # there is no DDP to pass it to
    shown = []
    for name, row in ROWS.items():
        article = page.locator("article", has=page.locator(f"#{name}"))
        style = "one => getComputedStyle(one).textDecorationLine"
        is_struck = article.locator(".out").first.evaluate(style) == "line-through"
        assert article.locator(".says").is_visible() == is_struck
        if is_struck:
            shown.append(name)
            edits = playground.LEFT_OUT[row]["edits"]
            lines = without("04_ddp", edits)["instead"].splitlines()
            instead = article.locator(".mistake").all_inner_texts()
            assert instead == [f"!{line.strip()}" for line in lines]
    assert shown == ["ddp", "set_epoch"]


def lanes(page):
    """Return each rank's digits, own gradients and averaged gradients in a step."""
    read = "all => all.map(one => one.getAttribute('aria-label'))"
    found = []
    for label in page.eval_on_selector_all("#figure .lane", read):
        digits, own, after = re.split(r"\. Its own gradients: |; then: ", label)
        grads = [[float(one) for one in part.split()] for part in (own, after)]
        found.append((digits.partition("digits ")[2], *grads))
    return found


def test_a_step_shows_the_digits_that_pytorch_gives_to_each_rank(page):
    visit(page, "epochs=1")
    train = data.tensors(data.SAMPLE)
    sampler = DistributedSampler(train, 2, 1, seed=0)
    sampler.set_epoch(1)
    indices = list(sampler)[39 * 32 : 40 * 32]
    page.get_by_role("slider", name="Step").fill("40")
    assert page.inner_text("#figure .where") == "40 of 63, epoch 1"
    assert lanes(page)[1][0] == " ".join(
        str(train[index][1].item()) for index in indices
    )
    ink = """index => [...figure.sprite.getContext("2d").getImageData(
      28 * figure.painted.indexOf(index), 0, 28, 28).data]
      .filter((_, n) => n % 4 === 3)"""
    pixels = train[indices[31]][0].flatten().tolist()
    assert page.evaluate(ink, indices[31]) == pixels


def test_a_step_ends_with_equal_weights(page):
    check(page, "ranks=2", RIGHT[:1])
    (digits_0, own_0, after_0), (digits_1, own_1, after_1) = lanes(page)
    assert digits_0 != digits_1 and own_0 != own_1
    means = [(one + other) / 2 for one, other in zip(own_0, own_1, strict=True)]
    assert after_0 == after_1 == pytest.approx(means, abs=0.0011)
    badge = page.locator("#figure .badge")
    assert badge.inner_text() == "= equal, bit for bit"


def test_it_can_be_used_by_keyboard_screen_reader_and_on_a_phone(page):
    check(page, "ranks=8", RIGHT[:1])
    page.focus("#set_epoch")
    page.keyboard.press("Space")
    page.get_by_text("DIFFERENT").wait_for(timeout=120_000)
    assert page.url.endswith("#off=set_epoch&ranks=8&epochs=1")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no animation
        found = Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], scheme
