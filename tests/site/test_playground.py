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
HARMLESS = "seed", "init_sync"  # each alone; together they move the curve
MOVES = [name for name in playground.SWITCHES if name not in HARMLESS]
GO = """hash => new Promise(seen => {
  history.replaceState(null, "", "#another");
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
    """Return the curves in the page's table: one process's and stage 4's."""
    curves = []
    for row in 1, 2:
        cells = page.locator(f".losses tbody tr:nth-child({row}) td")
        words = [one.replace("/", " ").split() for one in cells.all_text_contents()]
        curves.append([(float(one[0]), int(one[-2]), int(one[-1])) for one in words])
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
    visit(page, address)
    stage_1, stage_4 = table(page)
    assert agrees(stage_1, RIGHT)
    assert agrees(stage_4, truth)
    verdict, is_equal = compare.judge(truth, RIGHT)
    assert page.inner_text("#verdict").startswith(verdict.partition(";")[0])
    assert page.locator("#verdict.different").count() == (not is_equal)
    assert (page.locator(".losses mark").count() > 0) == (not is_equal)


def test_the_bands_are_those_of_make_compare(page):
    epochs = [1, 2, 3, 4, 30]
    limits = page.evaluate("epochs => epochs.map(allowed)", epochs)
    assert limits == pytest.approx([compare.allowed(epoch) for epoch in epochs])
    shown = page.evaluate("[1, 3].map(n => digits(.4363, .4362, 3e-4 < allowed(n)))")
    assert shown == ["0.436<mark>300</mark>", '0.436<span class="dim">300</span>']


@pytest.mark.parametrize("address", ["ranks=1", "ranks=2", "ranks=4"])
def test_any_number_of_ranks_has_the_curve_of_the_script(page, address):
    check(page, address, RIGHT)


@pytest.mark.parametrize("name", MOVES)
def test_a_mistake_does_what_it_does_to_the_script(page, name):
    outcome = STORED["switches"][f"04_ddp/{playground.SWITCHES[name]}"]["2"]
    check(page, f"off={name}", outcome["curve"])


def test_two_mistakes_are_harmless_alone_but_not_together(page, tmp_path):
    for name in HARMLESS:
        check(page, f"off={name}", RIGHT)
    seed, init_sync = (playground.LEFT_OUT[name]["edits"] for name in HARMLESS)
    path = edited("04_ddp", tmp_path, *seed, *init_sync)
    run("04_ddp", "--out", tmp_path, path=path)
    check(page, "off=seed,init_sync", compare.read(tmp_path / "metrics.csv"))


def test_the_chart_has_each_step_of_both_runs(page):
    """The number of ranks is in the address, and the chart has the losses of a run."""
    visit(page, "")
    page.get_by_role("combobox", name="Ranks").select_option("4")
    page.wait_for_selector(DONE, timeout=120_000)
    assert page.url.partition("#")[2] == "ranks=4"
    captions = page.locator("#figure .lane span").all_inner_texts()
    assert captions == ["16 digits"] * 4
    visit(page, "off=set_epoch")
    runs = {"ghost": STORED["steps"]["01_cpu"]["1"]}
    runs["wrong"] = STORED["switches"]["04_ddp/set_epoch"]["2"]["steps"]
    for kind, losses in runs.items():
        line = page.locator(f"#charts svg:first-child [class={kind}] polyline").first
        points = line.get_attribute("points").split()
        heights = [float(point.split(",")[1]) for point in points]
        height = float(page.get_attribute("#charts svg:first-child", "height")) - 12
        expected = [6 + height * (1 - min(loss, 2.5) / 2.5) for loss in losses]
        assert heights == pytest.approx(expected, abs=0.2)


def test_what_is_switched_on_is_struck_through_and_explained(page):
    visit(page, "off=set_epoch,init_sync,ddp")
    assert page.locator("#init_sync").is_disabled()  # there is no DDP to pass it to
    shown = []
    for name, row in playground.SWITCHES.items():
        article = page.locator("article", has=page.locator(f"#{name}"))
        style = "one => getComputedStyle(one).textDecorationLine"
        is_struck = article.locator(".out").first.evaluate(style) == "line-through"
        assert article.locator(".says").is_visible() == is_struck
        if is_struck:
            shown.append(name)
            edits = playground.LEFT_OUT[row]["edits"]
            lines = without("04_ddp", edits)["instead"].splitlines()
            instead = article.locator(".mistake").all_inner_texts()
            assert instead == [line.strip() for line in lines]
    assert shown == ["set_epoch", "ddp"]


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
    visit(page, "")
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
    check(page, "ranks=2", RIGHT)
    (digits_0, own_0, after_0), (digits_1, own_1, after_1) = lanes(page)
    assert digits_0 != digits_1 and own_0 != own_1
    means = [(one + other) / 2 for one, other in zip(own_0, own_1, strict=True)]
    assert after_0 == after_1 == pytest.approx(means, abs=0.0011)
    page.get_by_role("button", name="Step").click()
    assert page.inner_text("#figure .badge") == "= equal, bit for bit"


def test_it_can_be_used_by_keyboard_screen_reader_and_on_a_phone(page):
    check(page, "ranks=8", RIGHT)
    page.focus("#set_epoch")
    page.keyboard.press("Space")
    page.get_by_text("DIFFERENT").wait_for(timeout=120_000)
    assert page.url.endswith("#off=set_epoch&ranks=8")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no animation
        found = Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], scheme
