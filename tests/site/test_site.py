"""Promise: the site needs no network, fits every screen, and shows what the pages show.

It is built once, as `make site` does, with the notebooks run on the sample.
"""

import re
import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from conftest import call, slow
from tools.run.stages import BEYOND, STAGES, previous

CHROMIUM = shutil.which("chromium")
pytestmark = [
    slow,
    pytest.mark.skipif(not CHROMIUM, reason="looks at pages: needs chromium"),
]
WINDOWS = [(1280, "light"), (390, "dark")]
PAGES = 60  # that the site has at least
LOOKED_AT = [  # one page of each kind
    "README.html",
    "04_ddp/README.html",
    "beyond/07_fsdp/README.html",
    "exercises/05_no_sampler.html",
    "notebooks/04_ddp.html",
    "SYMPTOMS.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, built with every warning an error."""
    out = tmp_path_factory.mktemp("site") / "html"
    words = [".venv/bin/sphinx-build", "-W", "--keep-going", "-q", "-c", "tools/site"]
    result = call([*words, ".", out], timeout=1200)
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield one
        one.close()


def opened(browser, width=1280, scheme="light"):
    """Return a browser's page, and a list of errors and foreign addresses to come."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    noted = []
    page.on("pageerror", lambda error: noted.append(str(error)))
    page.on("console", lambda m: noted.append(m.text) if m.type == "error" else None)
    page.on(
        "request",
        lambda r: noted.append(r.url) if not r.url.startswith(LOCAL) else None,
    )
    return page, noted


LOCAL = "file:", "data:", "blob:", "about:"


@pytest.mark.parametrize("width,scheme", WINDOWS)
def test_every_page_fits_and_loads_nothing_from_elsewhere(site, browser, width, scheme):
    page, noted = opened(browser, width, scheme)
    paths = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len(paths) >= PAGES
    for path in paths:
        page.goto(path.as_uri(), wait_until="load")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert (wide <= 0, noted) == (True, []), path.relative_to(site)
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_for_those_who_do_not_see_well(site, browser, scheme):
    page, _ = opened(browser, scheme=scheme)
    for name in LOOKED_AT:
        page.goto((site / name).as_uri())
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], name
    page.context.close()


def test_search_finds_a_word_of_the_scripts(site, browser):
    page, _ = opened(browser)
    page.goto((site / "search.html").as_uri() + "?q=set_epoch")
    page.wait_for_selector("ul.search li a")
    titles = page.locator("ul.search li a").all_inner_texts()
    assert any("Stage 4" in title for title in titles), titles
    page.context.close()


def test_a_stages_frame_shows_its_diff(site, browser):
    page, noted = opened(browser)
    with_diff = [stage for stage in STAGES if previous(stage)]
    folders = [*with_diff, *(f"beyond/{stage}" for stage in BEYOND.values())]
    assert len(folders) == 11
    for folder in folders:
        stage = folder.rpartition("/")[2]
        page.goto((site / folder / "README.html").as_uri())
        frame = page.locator("iframe.diff")
        frame.scroll_into_view_if_needed()
        inside = page.frame_locator("iframe.diff")
        inside.get_by_text(stage).first.wait_for()
        address = frame.get_attribute("src")
        assert address.endswith(f"side_by_side.html#{previous(stage)}-{stage}")
    assert noted == []
    page.context.close()


def test_every_notebook_has_its_figures(site):
    for stage in STAGES:
        text = (site / "notebooks" / f"{stage}.html").read_text()
        assert re.search(r'<img [^>]*src="\.\./_images/\w+\.(png|svg)"', text), stage


def test_the_first_page_is_light(site, browser):
    page, _ = opened(browser)
    loaded = []
    page.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto((site / "index.html").as_uri(), wait_until="networkidle")
    files = {site / one.partition(str(site) + "/")[2].split("?")[0] for one in loaded}
    assert len(files) > 3
    assert sum(file.stat().st_size for file in files) < 300_000
    page.context.close()


def test_texts_for_translators_come_out(tmp_path):
    words = [".venv/bin/sphinx-build", "-q", "-b", "gettext", "-c", "tools/site"]
    result = call([*words, "-D", "nb_execution_mode=off", ".", tmp_path], timeout=600)
    assert result.returncode == 0, result.stderr
    assert len(list(tmp_path.rglob("*.pot"))) >= PAGES - 10
