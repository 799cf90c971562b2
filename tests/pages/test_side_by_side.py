"""Promise: the page of `make side_by_side` shows every pair, alone, to everybody."""

import re
import shutil
import subprocess
from itertools import combinations, permutations

import pytest

from conftest import call
from tools.pages import side_by_side
from tools.pages.blocks import anchor, base
from tools.run import diffs
from tools.run.stages import EVERY, script

STAGES = list(EVERY.values())
BROWSERS = "chromium", "chromium-browser", "google-chrome"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync", "--no-first-run"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("page") / "side_by_side.html"
    side_by_side.write(target)
    return target


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        pytest.skip("there is no Chromium here: Debian has it as the package chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=QUIET)


@pytest.fixture
def page(browser, path):
    """The page, opened from disk; fails on an error or on a request that leaves it."""
    opened, wrong = browser.new_page(viewport={"width": 1440, "height": 900}), []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    requests = []
    opened.goto(path.as_uri())
    yield opened
    assert wrong == []
    assert {url.partition("#")[0] for url in requests} == {path.as_uri()}
    opened.close()


def show(page, link):
    page.evaluate("link => { location.hash = link; read() }", link)


def test_make_prints_the_path_of_one_small_file():
    result = call(["make", "side_by_side"])
    assert result.returncode == 0, result.stderr
    name = result.stdout.strip()
    assert name.endswith("runs/side_by_side.html")
    with open(name) as file:
        text = file.read()
    assert len(text.encode()) < 500_000
    assert not re.search(r"<link|<img|src=|@import|url\(", text)


@pytest.mark.parametrize("pair", list(combinations(STAGES, 2)), ids="->".join)
def test_hunks_are_those_of_diff(pair):
    words = ["diff", "-U1", *map(script, pair)]
    result = subprocess.run(words, capture_output=True, text=True)
    heads = [line for line in result.stdout.splitlines() if line.startswith("@@")]
    assert len(diffs.hunks(*pair)) == len(heads) > 0


def test_every_pair_shows_both_scripts_whole(page):
    """In both directions, with every line where it belongs and every hunk explained."""
    texts = {stage: script(stage).read_text().splitlines() for stage in STAGES}
    for a, b in permutations(STAGES, 2):
        show(page, f"{a}-{b}")
        for stage, side in (a, "left"), (b, "right"):
            found = page.eval_on_selector_all(
                f"main .{side} .text",
                "all => all.map(one => [parseInt(one.previousSibling.textContent),"
                " one.textContent])",
            )
            assert [number for number, _ in found] == list(range(1, len(found) + 1))
            assert [text.rstrip() for _, text in found] == texts[stage], (a, b)
        hunks = diffs.hunks(*sorted((a, b)))
        assert page.locator(".group").count() == len(hunks)
        reasons = page.locator(".group aside").all_inner_texts()
        assert [text for text in reasons if len(text.split()) < 5] == [], (a, b)
        assert len(reasons) == len(hunks)
        marked = page.locator("main .old, main .new").count()
        assert marked == diffs.changed_lines(a, b)
    show(page, "04_ddp-04_ddp")
    assert page.locator(".group").count() == 0


def walked(a, b):
    """Return the lessons whose reasons the hunks of a pair show, and those undone."""
    shown = [why for hunk in side_by_side.hunks(a, b) for why in hunk["why"]]
    steps = {(one["of"], one["undone"]) for one in shown}
    return [{of for of, undone in steps if undone == which} for which in (False, True)]


def test_reasons_are_those_on_the_way_from_stage_to_stage():
    ddp, halves = "03_dp-04_ddp", "02_single_gpu-06_model_parallel"
    fsdp, tensor = "05_ddp_inference-07_fsdp", "07_fsdp-08_tensor_parallel"
    assert walked("01_cpu", "06_model_parallel")[0] <= {"01_cpu-02_single_gpu", halves}
    assert walked("03_dp", "06_model_parallel") == [{halves}, {"02_single_gpu-03_dp"}]
    assert walked("08_tensor_parallel", "10_hybrid")[1] == {tensor}
    assert {ddp, fsdp} <= walked("06_model_parallel", "07_fsdp")[0]


def test_lines_of_a_hunk_stand_beside_each_other(page):
    """A changed line is at the height of the line that it was, also where they wrap."""
    show(page, "04_ddp")
    pairs = page.evaluate("""() => [...document.querySelectorAll('.group .l.left')]
      .map(left => [left, [...left.parentNode.querySelectorAll('.l.right')]
        .find(right => right.style.gridRow === left.style.gridRow)])
      .map(both => both.map(one => one.getBoundingClientRect().top))""")
    rows = [row for hunk in diffs.hunks("03_dp", "04_ddp")
            for row in side_by_side.rows("03_dp", "04_ddp", hunk)]  # fmt: skip
    assert len(pairs) >= len(rows) > 0
    assert all(left == right for left, right in pairs)


def test_changed_words_are_marked(page):
    show(page, "04_ddp")
    marks = page.locator("mark").all_inner_texts()
    assert "set_epoch" in marks
    assert "DistributedDataParallel" in " ".join(marks)
    assert side_by_side.changed_words("a = one(2)", "a = two(2)") == (
        [[4, 7]],
        [[4, 7]],
    )


def test_keys_and_links(page):
    address = "location.hash"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(address) == "#03_dp"
    for key, expected in [
        ("n", "#03_dp.1"),
        ("n", "#03_dp.2"),
        ("p", "#03_dp.1"),
        ("p", "#03_dp.1"),
        ("ArrowRight", "#04_ddp"),
        ("ArrowLeft", "#03_dp"),
        ("ArrowLeft", "#02_single_gpu"),
        ("ArrowLeft", "#02_single_gpu"),
    ]:
        page.keyboard.press(key)
        assert page.evaluate(address) == expected, key
    page.goto(f"{page.url.partition('#')[0]}#04_ddp.3")
    page.wait_for_selector("#hunk-3.current")
    box = page.locator("#hunk-3").bounding_box()
    assert 0 <= box["y"] < 200  # it is scrolled to, and not hidden by the bar
    page.select_option("#from", label="02_single_gpu")
    assert page.evaluate(address) == "#02_single_gpu-04_ddp"
    page.click("#down")
    assert page.evaluate(address) == "#02_single_gpu-04_ddp.1"
    show(page, "nonsense.7")
    assert page.locator(".group").count() == len(diffs.hunks(*STAGES[:2]))


def test_overview_leads_to_the_lines(page):
    cells = page.locator("#overview td a")
    total = sum(int(cells.nth(n).inner_text()) for n in range(cells.count()))
    assert total == sum(diffs.changed_lines(base(b), b) for b in STAGES[1:])
    cells.last.click()
    last = len(diffs.hunks("05_ddp_inference", "07_fsdp"))  # below is `start`
    assert page.evaluate("location.hash") == f"#07_fsdp.{last}"
    page.click("#overview th a >> text=06")
    assert "from 02" in page.locator("#overview th.here").inner_text()
    assert page.input_value("#from") == str(STAGES.index("02_single_gpu"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, "04_ddp")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width == 390
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", paper))) < 60) == (scheme == "dark")
    assert page.locator(".same.left").first.is_hidden()


def test_links_in_the_pages_lead_to_the_same_hunks():
    """What a stage's page calls its hunks, the browser page calls them too."""
    for a, b in diffs.EXPLAINED:
        expected = b if a == base(b) else "05_ddp_inference-06_model_parallel"
        assert anchor(a, b) == expected
