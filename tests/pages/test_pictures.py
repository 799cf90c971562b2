"""Promise: pictures are right, and pages that show them describe them."""

import itertools
import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from test_markdown import pages

from tools.pages import pictures
from tools.run import palette


def svg(name):
    return (pictures.FOLDER / f"{name}.svg").read_text()


def data_of(name):
    """Return the list of data that a picture shows."""
    root = ElementTree.fromstring(svg(name))
    return json.loads(root.find(".//{*}description").text)


def test_every_picture_is_shown_and_described():
    shown = []
    for page in pages():
        tokens = MarkdownIt().parse(page.read_text())
        inline = []
        for token in tokens:
            inline += token.children or []
        for image in (one for one in inline if one.type == "image"):
            path = (page.parent / image.attrs["src"]).resolve()
            assert path.is_file(), f"{page}: {path}"
            assert len(image.content.split()) >= 10, f"{page}: {path.name} needs words"
            shown.append(path)
        assert "<img" not in page.read_text(), page  # its alt text would go unchecked
    assert set(shown) == set(pictures.FOLDER.glob("*.svg"))
    assert {path.stem for path in shown} > pictures.PICTURES.keys()


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in pictures.FOLDER.glob("*.svg"))
)
def test_a_picture_can_be_read_in_a_column_of_830_pixels_and_in_the_dark(name):
    text = svg(name)
    assert len(text.encode()) < 60_000
    width = ElementTree.fromstring(text).get("width")
    pixels = 96 / 72 if width.endswith("pt") else 1  # per unit
    largest = 830 / float(width.removesuffix("pt"))
    sizes = [float(size) for size in re.findall(r"font[\w -]*: ?([\d.]+)px", text)]
    assert min(sizes) * min(pixels, largest) >= 12
    assert set(re.findall(r'(?:href|src)="([^#])', text)) == set()
    drawn = text.replace(palette.stylesheet(), "", 1)
    assert drawn != text  # the stylesheet has both themes
    assert re.findall("#[0-9a-f]{6}", drawn) == []  # colors have names there


def test_pictures_show_what_is_so():
    drawn, repeated = pictures.who_gets_what()[0].values()
    twice = Counter({pair: 2 for pair in itertools.product((0, 1), (1, 2, 3, 4))})
    for epoch in drawn + repeated:  # each rank has two images in each of four steps
        assert Counter(map(tuple, epoch)) == twice
    assert repeated == [drawn[0]] * 3
    assert len({json.dumps(epoch) for epoch in drawn}) == 3
    (step,) = pictures.numbers_of_first_step()
    first, second = step["gradients"]
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    assert first != second
    assert mean == pytest.approx(step["whole"], abs=2e-4)
    assert len(mean) == len(step["biases"]) == 10
    for count, pieces in pictures.bubble()[0].items():
        end = max(start + length for _, start, length, *_ in pieces)
        work = sum(length for _, _, length, *_ in pieces)
        assert work / (2 * end) == pytest.approx(count / (count + 1))


def test_the_first_picture_moves_but_not_for_those_who_want_it_still():
    """At rest it shows the diverging curve."""
    text = svg("hero")
    still, _, moving = text.partition("@media (prefers-reduced-motion: no-preference)")
    assert ".first { opacity: 0; }" in still and "animation" not in still
    assert moving.count("animation: ") == 4
    assert "<script" not in text


def test_the_page_of_fsdp_names_the_peaks_that_its_picture_shows():
    page = (pictures.ROOT / "beyond" / "07_fsdp" / "README.md").read_text()
    (moments,) = data_of("memory")
    assert len(moments) == 2
    for steps in moments.values():
        assert len(steps) == 18  # before, forward, backward and step
        peak = max(sum(stored.values()) for stored in steps)
        assert f"{peak / 1e6:.1f} MB" in page
