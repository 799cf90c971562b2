"""Promise: the site needs no network, fits every screen, and shows what the pages show.

It is built once, as `make site` does, but for the notebooks: other tests run those.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import call
from tools.run.stages import BEYOND, STAGES, previous

BUILD = [".venv/bin/sphinx-build", "-W", "--keep-going", "-q", "-c", "tools/site"]
BUILD += ["-D", "nb_execution_mode=off"]
LOCAL = "file:", "data:", "blob:", "about:"
PAGES = 60  # that the site has at least
LOOKED_AT = [  # one page of each kind
    "04_ddp/README.html",
    "exercises/05_no_sampler.html",
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
        page.goto(path.as_uri(), wait_until="load")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert (wide <= 0, wrong) == (True, []), path.relative_to(site)
        text = page.inner_text("body")
        for source in "flowchart LR", "flowchart TB", "sequenceDiagram":
            assert source not in text, f"{path}: a diagram as its source"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_for_those_who_do_not_see_well(site, page, scheme):
    page.emulate_media(color_scheme=scheme)
    for name in LOOKED_AT:
        page.goto((site / name).as_uri())
        serious = []
        for found in Axe().run(page).response["violations"]:
            if found["impact"] in ("serious", "critical"):
                serious.append((found["id"], found["nodes"][0]["html"]))
        assert serious == [], name


def test_a_stages_frame_shows_its_diff(site, page):
    with_diff = [stage for stage in STAGES if previous(stage)]
    folders = [*with_diff, *(f"beyond/{stage}" for stage in BEYOND.values())]
    assert len(folders) == 11
    for folder in folders:
        stage = folder.rpartition("/")[2]
        text = (site / folder / "README.html").read_text()
        assert f'side_by_side.html#{previous(stage)}-{stage}"' in text
    wrong = wrong_with(page)
    page.goto((site / "beyond/12_sharded_checkpoint/README.html").as_uri())
    page.locator("iframe.diff").scroll_into_view_if_needed()
    inside = page.frame_locator("iframe.diff")
    inside.get_by_text("07_fsdp → 12_sharded_checkpoint").wait_for()
    assert wrong == []
