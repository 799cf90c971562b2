"""Promise: the site needs no network, fits every screen and matches the pages.

It is built once, as `make site` does. Other tests run the notebooks.
"""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT
from tools import maintain
from tools.bench import planned
from tools.lab.exercise import along_the_path
from tools.pages import stored
from tools.pages.switches import read_outcomes
from tools.run import diffs, essence
from tools.run.stages import previous
from tools.site import additions

pytestmark = pytest.mark.slow
BELOW = "/" + stored.address().rpartition("/")[2]  # as on GitHub Pages
LOCAL = "file:", "data:", "blob:", "about:"
VERDICTS = {"moves": "the curve moves", "crashes": "It crashes", "nothing": "No effect"}
PAGES = 60  # the site has at least this many
LOOKED_AT = [  # one page of each kind
    ("index.html", "light"),
    ("04_ddp/README.html", "light"),
    ("exercises/04_nothing_gained.html", "light"),
    ("index.html", "dark"),
    ("notebooks/04_ddp.html", "light"),
    ("docs/SYMPTOMS.html", "light"),
    ("04_ddp/README.html", "dark"),
    ("tools/site/playground.html", "light"),
    ("tools/site/side_by_side.html", "dark"),
    ("docs/SCALING.html", "light"),
    ("transformer/README.html", "dark"),
    ("search.html", "light"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the site's folder, built with warnings as errors."""
    out = tmp_path_factory.mktemp("site") / "_site"
    assert maintain.site(out) == 0
    return out


class Host(SimpleHTTPRequestHandler):
    """Serve a folder below BELOW, and its 404.html for any other path."""

    def translate_path(self, path):
        return super().translate_path(path.removeprefix(BELOW))

    def send_error(self, code, *_):
        content = Path(self.directory, "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Print nothing between tests."""


@pytest.fixture(scope="module")
def served(site):
    """Yield the site's address on a server that works like GitHub Pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Host, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{BELOW}/"
        server.shutdown()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    yield page
    page.close()


def show(page, path):
    page.goto(path.as_uri(), wait_until="domcontentloaded")


def wrong_with(page):
    """Return a list that collects errors and requests that leave the machine."""
    wrong = []

    def note_error(message):
        if message.type == "error":
            wrong.append(message.text)

    def note_foreign(request):
        if not request.url.startswith(LOCAL):
            wrong.append(request.url)

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", note_error)
    page.on("request", note_foreign)
    return wrong


def test_every_page_fits_a_phone_and_loads_nothing_from_elsewhere(site, page):
    wrong = wrong_with(page)
    page.set_viewport_size({"width": 390, "height": 844})
    elsewhere = {site / "404.html", *site.rglob("_static/**/*.html")}  # 404: served
    paths = sorted(set(site.rglob("*.html")) - elsewhere)
    assert len(paths) >= PAGES
    for path in paths:
        show(page, path)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert (wide <= 0, wrong) == (True, []), path.relative_to(site)


@pytest.mark.parametrize("name, scheme", LOOKED_AT)
def test_nothing_bars_those_who_do_not_see_well(site, page, name, scheme):
    # Elements that fade in lack contrast until they are fully visible.
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    wrong = []
    for width in 1280, 390:
        page.set_viewport_size({"width": width, "height": 900})
        show(page, site / name)
        if "playground" in name:  # its table appears after a run
            page.wait_for_selector("#curve[data-done=true]")
        for found in Axe().run(page).response["violations"]:
            wrong.append((width, found["id"], found["nodes"][0]["html"]))
    assert wrong == []


def test_a_stages_page_has_its_diff_idea_by_idea(site, page):
    wrong = wrong_with(page)
    for folder in "04_ddp", "beyond/12_sharded_checkpoint":
        show(page, site / folder / "README.html")
        stage = Path(folder).name
        base = previous(stage)
        lines = page.locator(".part .l:is(.old, .new)").count()
        assert lines == diffs.changed_lines(base, stage)
        words = f"{diffs.changed_lines(base, stage)} lines changed"
        assert page.get_by_role("link", name=words).count() == 1
        ideas = page.locator(".head li").all_inner_texts()
        assert ideas == [idea.title for idea, _ in diffs.by_idea(base, stage)]
        hrefs = "all => all.map(one => one.href.replace('file://', '').split('#')[0])"
        folded = page.locator("article details .part")
        assert 1 <= folded.count() < page.locator(".part").count()
        assert not folded.first.is_visible()
        files = page.eval_on_selector_all(".sbs a[href^='../']", hrefs)
        assert [name for name in files if not Path(name).exists()] == []
    assert wrong == []


SIZES = [(1440, 900), (1024, 768), (390, 844)]
BOX = (
    "one => { const box = one.getBoundingClientRect(); return [box.top, box.bottom]; }"
)


@pytest.mark.parametrize("width, height", SIZES)
def test_the_first_screen_has_lines_switches_and_the_curve(site, page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    show(page, site / "index.html")
    curve = page.locator(".hero svg").first.evaluate(BOX)
    line = page.locator(".hero .block .l").first.evaluate(BOX)
    switch = page.locator(".hero [role=switch]").first.evaluate(BOX)
    assert all(0 < end < height for _, end in (curve, line, switch))
    assert page.locator(".hero .block .new").count() == 11
    titles = page.locator(".hero .bar h2").all_inner_texts()
    assert [titles[-1], *titles[1:-1], titles[0]] == list(essence.STEPS)
    top, _ = page.locator("h1").evaluate(BOX)
    _, bottom = page.locator(".hero .block").evaluate(BOX)
    assert bottom - top <= 700 or width == 390


def losses_of(run):
    """Return the losses that the front page shows for a run, or dashes if missing."""
    losses = [f"{loss:.6f}" for loss, *_ in run["curve"]]
    return losses + ["–"] * (3 - len(losses))


def test_the_front_pages_curve_is_what_the_last_switch_did(site, page):
    """Earlier switches don't matter. Reduced motion draws it at once."""
    page.emulate_media(reduced_motion="reduce")
    show(page, site / "index.html")
    stored = read_outcomes()["switches"]
    switches = page.locator(".hero [role=switch]")
    seen = set()
    for switch in [*switches.all(), *reversed(switches.all()[:-1])]:
        switch.click()
        page.locator(".guess").get_by_role("button", name="it hangs").click()
        runs = stored[switch.input_value()]
        kind = runs["2"]["kind"]
        drawn = page.locator(".hero svg").first.locator("polyline").nth(1)
        points = drawn.get_attribute("points").split()
        assert len(points) == len(runs["2"]["steps"])
        heights = [float(point.split(",")[1]) for point in points]
        expected = [6 + 162 * (1 - loss / 2.5) for loss in runs["2"]["steps"]]
        assert heights == pytest.approx(expected, abs=0.1)
        assert VERDICTS[kind] in page.inner_text(".hero .title")
        for row, ranks in (2, "2"), (3, "4"):
            cells = page.locator(f".losses tbody tr:nth-child({row}) td")
            assert cells.all_inner_texts() == losses_of(runs[ranks])
        marks = [page.locator(f".hero {one}").count() > 0 for one in (".far", "g.end")]
        assert marks == [kind == "moves", kind == "crashes"]
        seen.add(kind)
    assert seen == {"moves", "crashes", "nothing"}
    switches.first.uncheck()
    assert page.inner_text(".hero .title") == "One curve"


SIZE = "one => [one.clientWidth, one.clientHeight]"
MASK = "one => parseFloat(getComputedStyle(one).maskSize.split(' ')[1])"


def test_a_digit_is_shown_whole_and_a_bug_in_its_phase(site, page):
    show(page, site / "tools/site/playground.html")
    page.wait_for_selector("#curve[data-done=true]", timeout=120_000)
    digit = page.locator("#figure .card i").first
    assert digit.evaluate(MASK) == digit.evaluate(SIZE)[1]
    for name, phase, words in ("set_epoch", "1", "the deck"), ("sampler", "1", "same"):
        page.goto("about:blank")
        page.goto(f"{(site / 'tools/site/playground.html').as_uri()}#off={name}")
        page.wait_for_selector("#curve[data-done=true]", timeout=120_000)
        assert page.locator("#figure .table").get_attribute("data-phase") == phase
        assert words in page.locator("#figure .says.wrong").inner_text()


def test_a_phone_has_one_line_of_title_large_switches_and_the_contents(site, page):
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, site / "index.html")
    _, height = page.locator("h1").evaluate(SIZE)
    assert height < 50
    for label in page.locator(".hero .bar label").all():
        assert label.bounding_box()["height"] >= 44
    captions = page.locator(".hero .charts text").all_text_contents()
    assert {"loss", "distance from one process", "rounding"} <= set(captions)
    show(page, site / "04_ddp/README.html")
    page.locator("label.toc-overlay-icon:visible").first.click()
    section = page.locator(".toc-drawer a").last
    section.wait_for()
    page.keyboard.press("Escape")
    section.wait_for(state="hidden")


def test_a_guess_is_announced_and_comes_after_its_switch(site, page):
    show(page, site / "index.html")
    page.locator(".hero [role=switch]").first.focus()
    page.keyboard.press("Space")
    told = page.locator(".hero .told[aria-live=polite]:has(.guess)")
    after = "one => document.activeElement.compareDocumentPosition(one) & 4"
    assert told.evaluate(after)


def test_paper_has_large_charts_a_mistake_and_no_navigation(site, page):
    show(page, site / "index.html")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".hero .charts svg").first.bounding_box()["height"] > 150
    assert VERDICTS["moves"] in page.inner_text(".hero .title")
    for name in ".skip-to-content", ".top", ".hero .bar label":
        assert not page.locator(name).first.is_visible()


def test_every_picture_is_well_formed(site):
    for path in site.rglob("*.svg"):
        ElementTree.parse(path)


def test_exercises_are_listed_in_order(site, page):
    show(page, site / "exercises/06_same_order.html")
    links = "all => all.map(one => one.getAttribute('href'))"
    listed = page.eval_on_selector_all(".sidebar-tree .toctree-l2 > a", links)
    listed = [page.url.rpartition("/")[2] if one == "#" else one for one in listed]
    names = [f"{one.name}.html" for one in along_the_path()]
    assert [name for name in listed if "/" not in name] == names


def test_scalings_calculator_says_what_its_page_derives(site, page):
    show(page, site / "docs/SCALING.html")
    headings, *rows = planned.cut_rows()
    for cards, heading in ("1", "two, one card each, s"), ("8", "two machines, s"):
        page.get_by_label("Network cards of each").select_option(cards)
        for row in rows:
            expected = map(float, row[headings.index(heading)].split(" to "))
            cells = page.locator(".calculator tbody tr", has_text=row[0]).locator("td")
            told = map(float, cells.nth(0).inner_text().split(" to "))
            assert list(told) == pytest.approx(list(expected), abs=0.05)
    assert "116 / 178" in page.locator(".calculator tr", has_text="DDP").inner_text()
    page.get_by_label("Parameters").select_option("65 billion")
    too_large = page.locator(".calculator .fits-no")
    names = too_large.locator("th").all_inner_texts()
    assert names == ["DDP", "HSDP", "context", "experts"]
    assert too_large.locator("td:nth-child(2)").all_inner_texts() == ["doesn't fit"] * 4
    page.get_by_label("Machines of").select_option("8")
    page.get_by_label("Sequences per").select_option("16")
    assert page.inner_text(".calculator tbody th") == "grid"  # DDP and FSDP need 64


def test_a_search_on_a_phone_finds_lessons_while_you_type(served, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{served}search.html?q=hangs")
    page.get_by_label("Search for").fill("set_epoch")
    found = page.locator("#found > li:has(> small):has(> p)")
    assert (found.count(), "Stage 4" in found.nth(1).inner_text()) == (10, True)
    page.get_by_role("button", name="More").click()
    assert page.inner_text("#count") == f"Pages found: {found.count()}"
    page.get_by_role("radio", name="notebooks").check(force=True)
    assert set(found.locator("small").all_inner_texts()) == {"notebook"}


@pytest.mark.parametrize("folder", ["", BELOW])
def test_an_unknown_address_leads_back(served, page, folder):
    site = served.replace(BELOW, folder)
    for way in "gone.html", "beyond/gone/at all?x=1":
        assert page.goto(site + way).status == 404
        page.get_by_label("Search for").fill("gloo")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site}search.html?q=gloo")
        page.go_back()
        page.get_by_role("link", name="Home Remove").click()
        assert page.url == site


def test_a_page_says_in_its_head_what_it_is_about(site, page):
    show(page, site / "04_ddp" / "README.html")
    said = page.locator("meta[name=description]").get_attribute("content")
    assert said.startswith("At best, a second GPU halves your training")
    shared = page.locator("meta[property='og:description']").get_attribute("content")
    assert shared == said


def test_nothing_published_has_a_path_of_this_machine(site, tmp_path):
    """The same goes for notebook output, although this build runs no notebook."""
    page = tmp_path / "page.html"
    page.write_text(f"In {ROOT} is {ROOT}/runs.")
    additions.mend(page)
    assert page.read_text() == "In (where you cloned it) is runs."
    for path in site.rglob("*.*"):
        assert path.is_dir() or str(ROOT).encode() not in path.read_bytes(), path
