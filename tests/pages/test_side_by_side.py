"""Promise: the page of `make side_by_side` shows every pair, alone, to everybody."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT, call
from tools.run import diffs
from tools.run.stages import script

# Drawn in the browser: two that the pages explain, one that they do not, the way back.
DRAWN = [
    ("03_dp", "04_ddp"),
    ("07_fsdp", "10_hybrid"),
    ("03_dp", "06_model_parallel"),
    ("12_sharded_checkpoint", "01_cpu"),
]


@pytest.fixture(scope="module")
def path():
    """Return the path of the page, as `make side_by_side` prints it in a link."""
    result = call(["make", "side_by_side"])
    assert result.returncode == 0, result.stderr
    path = ROOT / "runs" / "side_by_side.html"
    assert result.stdout.strip() == path.as_uri()
    return path


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


def test_changed_words_are_marked(page):
    show(page, "04_ddp")
    marks = page.eval_on_selector_all(
        ".text",
        "all => all.map(one => [...one.querySelectorAll('mark')].map(part =>"
        " part.textContent).join(''))",
    )
    assert "// world_size, sampler=sampler)" in marks
    assert not any("DataLoader" in words for words in marks)  # in both scripts


def test_keys_and_links(page):
    for key, expected in [
        ("ArrowRight", "#03_dp"),
        ("n", "#03_dp.1"),
        ("n", "#03_dp.2"),
        ("p", "#03_dp.1"),
        ("ArrowRight", "#04_ddp"),
        ("ArrowLeft", "#03_dp"),
    ]:
        page.keyboard.press(key)
        assert page.evaluate("location.hash") == expected, key
    page.goto(f"{page.url.partition('#')[0]}#04_ddp.3")
    page.wait_for_selector("#hunk-3.current")
    page.select_option("#from", label="02_single_gpu")
    assert page.evaluate("location.hash") == "#02_single_gpu-04_ddp"


def test_it_fits_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, "10_hybrid")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_everybody_can_read_it(page):
    """Contrast, headings in order, and names, by the rules of axe-core."""
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        show(page, "04_ddp")
        response = Axe().run(page).response
        assert [one["id"] for one in response["violations"]] == [], scheme
        passed = {one["id"] for one in response["passes"]}
        assert passed >= {"color-contrast", "heading-order", "landmark-unique"}
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        darkest = max(map(int, re.findall(r"\d+", paper)))
        assert (darkest < 60) == (scheme == "dark")
