"""Promise: the page of `make side_by_side` shows every pair, alone, to everybody."""

import re
import shutil
import subprocess
from itertools import permutations

import pytest

from conftest import ROOT, call
from tools.pages import side_by_side
from tools.pages.blocks import reasons
from tools.run import diffs
from tools.run.stages import EVERY, previous, script

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
    opened = browser.new_page(viewport={"width": 1440, "height": 900})
    wrong = []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    requests = []
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


@pytest.mark.parametrize("pair", diffs.EXPLAINED, ids="->".join)
def test_hunks_are_those_of_diff(pair):
    """Of the explained pairs. For others diff may align the lines differently."""
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
    ddp = "03_dp-04_ddp"
    halves = "02_single_gpu-06_model_parallel"
    fsdp = "05_ddp_inference-07_fsdp"
    tensor = "07_fsdp-08_tensor_parallel"
    assert walked("01_cpu", "06_model_parallel")[0] <= {"01_cpu-02_single_gpu", halves}
    assert walked("03_dp", "06_model_parallel") == [{halves}, {"02_single_gpu-03_dp"}]
    assert walked("08_tensor_parallel", "10_hybrid")[1] == {tensor}
    assert {ddp, fsdp} <= walked("06_model_parallel", "07_fsdp")[0]


def test_a_hunk_has_the_title_that_its_page_gives_it(page):
    """Also where another pair of stages shows the reason of that hunk."""
    show(page, "04_ddp")
    found = page.locator(".group h3").all_inner_texts()
    titles = [re.sub("`", "", reason.title) for reason in reasons("03_dp", "04_ddp")]
    assert len(found) == len(titles) > 0
    assert all(map(str.__contains__, found, titles))
    show(page, "02_single_gpu-04_ddp")
    told = page.locator("aside >> text=From 04_ddp.").all_inner_texts()
    for line in told:
        number = int(re.search(r"04_ddp\.(\d+)", line)[1])
        assert line.endswith(f": {titles[number - 1]}")
    assert len(told) > 5


def test_lines_of_a_hunk_stand_beside_each_other(page):
    """A changed line is at the height of the line that it was, also where they wrap."""
    show(page, "04_ddp")
    pairs = page.evaluate("""() => [...document.querySelectorAll('.group .l.left')]
      .map(left => [left, [...left.parentNode.querySelectorAll('.l.right')]
        .find(right => right.style.gridRow === left.style.gridRow)])
      .map(both => both.map(one => one.getBoundingClientRect().top))""")
    rows = [
        row
        for hunk in diffs.hunks("03_dp", "04_ddp")
        for row in side_by_side.rows("03_dp", "04_ddp", hunk)
    ]
    assert len(pairs) >= len(rows) > 0
    assert all(left == right for left, right in pairs)


def test_changed_words_are_marked(page):
    show(page, "04_ddp")
    marks = page.eval_on_selector_all(
        ".text",
        "all => all.map(one => [...one.querySelectorAll('mark')].map(part =>"
        " part.textContent).join(''))",
    )
    assert "// world_size" in marks
    assert any("parallel.DistributedDataParallel" in words for words in marks)
    assert not any("BatchSampler" in words for words in marks)  # in both scripts
    blank = page.locator("mark.blank").all_text_contents()  # indented: not underlined
    assert len(blank) > 0 and not "".join(blank).strip()


def test_the_next_stage_begins_at_its_top(page):
    show(page, "03_dp")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.keyboard.press("ArrowRight")
    bar, head = (page.locator(one).bounding_box() for one in (".bar", "main h2"))
    assert 0 <= head["y"] - (bar["y"] + bar["height"]) < 40


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
    box, bar = (page.locator(one).bounding_box() for one in ("#hunk-3", ".bar"))
    assert 0 <= box["y"] - bar["height"] < 100  # scrolled to, and not behind the bar
    page.select_option("#from", label="02_single_gpu")
    assert page.evaluate(address) == "#02_single_gpu-04_ddp"
    page.click("#down")
    assert page.evaluate(address) == "#02_single_gpu-04_ddp.1"
    show(page, "nonsense.7")
    assert page.locator(".group").count() == len(diffs.hunks(*STAGES[:2]))


def test_sections_are_in_the_order_of_each_script():
    order = side_by_side.all_sections(STAGES)
    assert order[0] == "imports"
    assert order[-1] == "start"
    for stage in STAGES:
        own = list(dict.fromkeys(diffs.sections(stage)))
        assert sorted(own, key=order.index) == own


def test_overview_leads_to_the_lines(page):
    cells = page.locator("#overview td a")
    total = sum(int(cells.nth(n).inner_text()) for n in range(cells.count()))
    assert total == sum(diffs.changed_lines(previous(b), b) for b in STAGES[1:])
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


def test_on_a_phone_no_word_is_broken(page):
    """A word has one rectangle, where it is not cut in two lines."""
    page.set_viewport_size({"width": 390, "height": 844})
    words = 0
    for stage in "04_ddp", "06_model_parallel", "10_hybrid":
        show(page, stage)
        found = page.evaluate("""() => {
          const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
          const found = [];
          while (walker.nextNode()) {
            const text = walker.currentNode, range = document.createRange();
            if (!text.parentElement.closest('.group .text')) continue;
            for (const word of text.data.matchAll(/\\w+/g)) {
              range.setStart(text, word.index);
              range.setEnd(text, word.index + word[0].length);
              found.push([word[0], range.getClientRects().length]);
            }
          }
          return found.filter(([, count]) => count);
        }""")
        assert [word for word, count in found if count > 1] == [], stage
        words += len(found)
    assert words > 500


def test_the_bar_is_narrow_where_the_window_is_low(page):
    for width in 568, 844, 1366:  # two phones on their sides, and a laptop
        heights = []
        for height in 390, 844:
            page.set_viewport_size({"width": width, "height": height})
            heights.append(page.locator(".bar").bounding_box()["height"])
        assert heights[0] < 40 and heights[0] < 0.7 * heights[1]


def luminance(color):
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in color
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(page, scheme):
    """4.5:1 between each text and what is behind it, as WCAG 2 asks."""
    page.emulate_media(color_scheme=scheme)
    pairs = set()
    for link in "04_ddp", "03_dp-06_model_parallel":
        show(page, link)
        pairs |= set(
            map(
                tuple,
                page.evaluate("""() => {
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          const found = new Set(), clear = 'rgba(0, 0, 0, 0)';
          while (walker.nextNode()) {
            const own = walker.currentNode.parentElement;
            if (!walker.currentNode.data.trim() || !own.checkVisibility()) continue;
            let behind = own;
            while (getComputedStyle(behind).backgroundColor === clear)
              behind = behind.parentElement;
            found.add([own.closest('mark') ? 'mark' : '', getComputedStyle(own).color,
              getComputedStyle(behind).backgroundColor].join(';'));
          }
          return [...found].map(one => one.split(';'));
        }"""),
            )
        )
    assert len(pairs) > 30 and len([kind for kind, *_ in pairs if kind]) > 5
    for kind, *colors in pairs:
        parts = [[float(n) for n in re.findall(r"[\d.]+", one)][:3] for one in colors]
        parts = [
            part if "srgb" in one else [n / 255 for n in part]
            for one, part in zip(colors, parts, strict=True)
        ]
        dark, light = sorted(map(luminance, parts))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (kind, colors)


def test_headings_and_landmarks(page):
    """Headings in order; each landmark but the banner and the footer has a name."""
    show(page, "04_ddp")
    levels = page.eval_on_selector_all(
        "h1, h2, h3, h4", "all => all.map(one => Number(one.tagName[1]))"
    )
    assert levels == [1, 2] + [3] * len(diffs.hunks("03_dp", "04_ddp"))
    tree = page.locator("body").aria_snapshot()
    landmarks = re.findall(r"- '?(main|navigation|region|complementary)\b(.*)", tree)
    assert len(landmarks) == 3 + 2 * levels.count(3)
    names = [name for _, name in landmarks]
    assert len(set(names)) == len(names) and all('"' in name for name in names)
    legend, table = (
        page.locator(one).bounding_box() for one in (".legend", "#overview")
    )
    assert legend["y"] < table["y"]


def test_paper_is_filled(page):
    """A hunk may go on on the next sheet: hunks that stay whole would take more."""

    def sheets():
        return len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True)))

    show(page, "09_pipeline")
    count = sheets()
    page.add_style_tag(content="@media print { .group { break-inside: avoid } }")
    assert 1 < count < sheets()


def test_on_a_projector_type_is_large(page):
    def size():
        return page.eval_on_selector(
            ".text", "one => parseFloat(getComputedStyle(one).fontSize)"
        )

    show(page, "04_ddp.2")
    desk = size()
    page.click("#size")
    page.wait_for_selector(".projector #hunk-2.current")
    assert size() > 1.5 * desk
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    page.click("#size")
    page.wait_for_selector("html:not(.projector) #hunk-2.current")
    assert size() == desk
