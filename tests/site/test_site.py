"""Promise: the site needs no network, fits every screen, and shows what the pages show.

It is built once, as `make site` does, but for the notebooks: other tests run those.
"""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import ROOT, call
from tools.lab.exercise import along_the_path
from tools.pages import essence
from tools.run import diffs
from tools.run.stages import previous
from tools.site import additions

BUILD = [".venv/bin/sphinx-build", "-W", "--keep-going", "-q", "-c", "tools/site"]
BUILD += ["-D", "nb_execution_mode=off"]
LOCAL = "file:", "data:", "blob:", "about:"
PAGES = 60  # that the site has at least
LOOKED_AT = [  # one page of each kind
    "index.html",
    "04_ddp/README.html",
    "exercises/04_nothing_gained.html",
    "notebooks/04_ddp.html",
    "SYMPTOMS.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, built with every warning an error."""
    out = tmp_path_factory.mktemp("site") / "html"
    result = call([*BUILD, ".", out], timeout=600)
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    yield page
    page.close()


def show(page, path, query=""):
    page.goto(path.as_uri() + query, wait_until="domcontentloaded")


def wrong_with(page):
    """Return a list that gets errors, and requests that leave the machine."""
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
    paths = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len(paths) >= PAGES
    for path in paths:
        show(page, path)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert (wide <= 0, wrong) == (True, []), path.relative_to(site)
        text = page.inner_text("body")
        for source in "flowchart LR", "flowchart TB", "sequenceDiagram":
            assert source not in text, f"{path}: a diagram as its source"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_for_those_who_do_not_see_well(site, page, scheme):
    page.emulate_media(color_scheme=scheme)
    for name in LOOKED_AT[: 2 if scheme == "dark" else None]:
        show(page, site / name)
        serious = []
        for found in Axe().run(page).response["violations"]:
            if found["impact"] in ("serious", "critical"):
                serious.append((found["id"], found["nodes"][0]["html"]))
        assert serious == [], name


def test_a_stages_page_has_its_diff_idea_by_idea(site, page):
    wrong = wrong_with(page)
    for folder in "04_ddp", "beyond/12_sharded_checkpoint":
        show(page, site / folder / "README.html")
        stage = Path(folder).name
        base = previous(stage)
        lines = page.locator(".part .l:is(.old, .new)").count()
        assert lines == diffs.changed_lines(base, stage)
        words = f"changed lines from {base} to {stage}"
        assert page.get_by_role("link", name=words).count() == 1
        ideas = page.locator(".head .lead li").all_inner_texts()
        assert ideas == [idea.title for idea, _ in diffs.by_idea(base, stage)]
        hrefs = "all => all.map(one => one.href.replace('file://', '').split('#')[0])"
        files = page.eval_on_selector_all(".sbs a[href^='../']", hrefs)
        assert [name for name in files if not Path(name).exists()] == []
    assert wrong == []


def test_the_front_page_opens_with_eleven_lines_and_their_curve(site, page):
    show(page, site / "index.html")
    assert page.locator(".home .idea > .code .new").count() == 11
    assert page.locator(".home .idea > h3").count() == len(essence.STEPS)
    curve = page.locator("aside.curve")
    assert "0.436164" in curve.inner_text()
    page.get_by_role("switch", name="Without set_epoch").click()
    assert "0.439645" not in curve.inner_text()  # first one guesses
    page.get_by_role("button", name="nothing").click()
    assert "0.439645" in curve.inner_text()


def test_exercises_are_in_order_and_fold_what_they_break(site, page):
    show(page, site / "exercises/06_same_order.html")
    links = "all => all.map(one => one.getAttribute('href'))"
    listed = page.eval_on_selector_all(".sidebar-tree .toctree-l2 > a", links)
    listed = [page.url.rpartition("/")[2] if one == "#" else one for one in listed]
    names = [f"{one.name}.html" for one in along_the_path()]
    assert [name for name in listed if "/" not in name] == names
    assert "make exercise E=06" in page.locator("article").inner_text()
    change = page.get_by_text("-        sampler.set_epoch(epoch)")
    assert not change.is_visible()
    page.get_by_text("This gives the mistake away").click()
    assert change.is_visible()


def test_what_one_looks_for_is_found(site, page):
    """The page that explains it first, whole words, and rows of the symptoms."""
    show(page, site / "SYMPTOMS.html", "?highlight=hang")
    page.locator("article span.highlighted").first.wait_for()
    marked = set(page.locator("article span.highlighted").all_inner_texts())
    assert {word.lower()[:4] for word in marked} == {"hang"}
    rows = page.locator("article tbody tr:visible")
    before = rows.count()
    page.get_by_label("Only rows with").fill("module.layers")
    assert 0 < rows.count() < before
    show(page, site / "search.html", "?q=set_epoch")
    first = page.locator("#search-results li a").first
    assert first.get_attribute("href").startswith("04_ddp/README.html#")


def test_a_page_says_in_its_head_what_it_is_about(site, page):
    show(page, site / "04_ddp" / "README.html")
    said = page.locator("meta[name=description]").get_attribute("content")
    assert 0 < len(said) <= additions.DESCRIPTION
    assert said in " ".join(page.locator("article").inner_text().split())


def test_no_page_has_a_path_of_this_machine(site):
    for path in site.rglob("*.html"):
        assert str(ROOT) not in path.read_text(), path


def test_what_one_types_can_be_copied(site, page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show(page, site / "index.html")
    page.locator(".copy").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == "make ddp\n"
