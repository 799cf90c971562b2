"""Promise: the page of `make side_by_side` shows every pair, alone, to everybody."""

import re
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT, call
from tools.pages import side_by_side
from tools.run import diffs
from tools.run.stages import EVERY, script

STAGES = list(EVERY.values())
# Drawn in the browser: what the pages explain, what they do not, and the way back.
DRAWN = [
    *diffs.EXPLAINED,
    ("03_dp", "06_model_parallel"),
    ("12_sharded_checkpoint", "01_cpu"),
    ("04_ddp", "03_dp"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("page") / "side_by_side.html"
    side_by_side.write(target)
    return target


@pytest.fixture
def page(browser, path):
    """The page, opened from disk; fails on an error or on a request that leaves it."""
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    wrong = []
    requests = []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(path.as_uri())
    yield opened
    assert wrong == []
    assert {re.split("[?#]", url)[0] for url in requests} == {path.as_uri()}
    opened.close()


def show(page, link):
    page.evaluate("link => { location.hash = link; read() }", link)


def test_make_prints_a_link_to_one_small_file():
    result = call(["make", "side_by_side"])
    assert result.returncode == 0, result.stderr
    link = result.stdout.strip()
    assert link == (ROOT / "runs/side_by_side.html").as_uri()
    text = (ROOT / "runs/side_by_side.html").read_text()
    assert len(text.encode()) < 500_000
    assert not re.search(r"<link|<img|src=|@import|url\(", text)


def test_hunks_are_those_of_diff():
    """Of the explained pairs. For others diff may align the lines differently."""
    for pair in diffs.EXPLAINED:
        words = ["diff", "-U1", *map(script, pair)]
        result = subprocess.run(words, capture_output=True, text=True)
        heads = [line for line in result.stdout.splitlines() if line.startswith("@@")]
        assert len(diffs.hunks(*pair)) == len(heads) > 0


def test_pairs_show_both_scripts_whole(page):
    """With every line where it belongs, and each hunk with its reason."""
    for a, b in DRAWN:
        show(page, f"{a}-{b}")
        for stage, side in (a, "left"), (b, "right"):
            found = page.eval_on_selector_all(
                f"main .{side} .text",
                "all => all.map(one => [parseInt(one.previousSibling.textContent),"
                " one.textContent])",
            )
            assert [number for number, _ in found] == list(range(1, len(found) + 1))
            text = [line.rstrip() for _, line in found]
            assert text == script(stage).read_text().splitlines(), (a, b)
        told = page.locator(".group aside").all_inner_texts()
        assert len(told) == len(diffs.hunks(*sorted((a, b))))
        assert [text for text in told if len(text.split()) < 5] == [], (a, b)
        marked = page.locator("main .old, main .new").count()
        assert marked == diffs.changed_lines(a, b)
    show(page, "04_ddp-04_ddp")
    assert page.locator(".group").count() == 0


def test_changed_words_are_marked(page):
    show(page, "04_ddp")
    marks = page.eval_on_selector_all(
        ".text",
        "all => all.map(one => [...one.querySelectorAll('mark')].map(part =>"
        " part.textContent).join(''))",
    )
    assert "// world_size" in marks
    assert not any("DataLoader" in words for words in marks)  # in both scripts
    blank = page.locator("mark.blank").all_text_contents()  # indented: not underlined
    assert len(blank) > 0 and not "".join(blank).strip()


def test_keys_and_links(page):
    address = "location.hash"
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.keyboard.press("ArrowRight")
    bar, head = (page.locator(one).bounding_box() for one in (".bar", "main h2"))
    assert 0 <= head["y"] - (bar["y"] + bar["height"]) < 40  # at the top of the stage
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
    box, bar = (page.locator(one).bounding_box() for one in ("#hunk-3", ".bar"))
    assert 0 <= box["y"] - bar["height"] < 100  # scrolled to, and not behind the bar
    page.select_option("#from", label="02_single_gpu")
    assert page.evaluate(address) == "#02_single_gpu-04_ddp"
    page.click("#down")
    assert page.evaluate(address) == "#02_single_gpu-04_ddp.1"
    show(page, "nonsense.7")
    assert page.locator(".group").count() == len(diffs.hunks(*STAGES[:2]))


def test_it_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, "10_hybrid")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_everybody_can_read_it(page):
    """Contrast, headings in order, and names, by the rules of axe-core."""
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        for link in "04_ddp", "03_dp-06_model_parallel":
            show(page, link)
            response = Axe().run(page).response
            wrong = [one["id"] for one in response["violations"]]
            passed = {one["id"] for one in response["passes"]}
            assert wrong == [], (scheme, link)
            assert passed >= {"color-contrast", "heading-order", "landmark-unique"}
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        darkest = max(map(int, re.findall(r"\d+", paper)))
        assert (darkest < 60) == (scheme == "dark")
