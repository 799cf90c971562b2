"""Promise: the pictures are right, and every page that shows one describes it."""

import itertools
import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from test_markdown import pages

from tools.bench import tables
from tools.pages import pictures
from tools.run.stages import STAGES

NAMES = list(pictures.PICTURES)


def svg(name):
    return (pictures.FOLDER / f"{name}.svg").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_fresh(name):
    """Its data and words. Their places may differ with another matplotlib."""
    old = svg(name)
    new = pictures.draw(name)
    stale = f"{name}.svg is stale, run: make docs"
    assert pictures.held(old) == pictures.held(new), stale
    assert pictures.words(old) == pictures.words(new), stale
    assert len(pictures.words(old)) > 10


def test_stale_pictures_are_drawn_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pictures, "ROOT", tmp_path)
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    data = pictures.bubble()
    entry = lambda: data, pictures.drawing.schedules
    monkeypatch.setattr(pictures, "PICTURES", {"bubble": entry})
    pictures.write()
    pictures.write()
    data[1] = "milliseconds"
    pictures.write()
    assert "milliseconds" in pictures.held(svg("bubble"))
    told = capsys.readouterr().out.splitlines()
    fresh = "1 pictures are fresh"
    stale = "bubble.svg was stale"
    assert told == [stale, fresh, fresh, stale, fresh]


def test_every_picture_is_shown_and_described():
    shown = []
    for page in pages():
        tokens = MarkdownIt().parse(page.read_text())
        inline = []
        for token in tokens:
            inline += token.children or []
        for image in (part for part in inline if part.type == "image"):
            path = (page.parent / image.attrs["src"]).resolve()
            assert path.is_file(), f"{page}: {path}"
            assert len(image.content.split()) >= 10, f"{page}: {path.name} needs words"
            shown.append(path)
        assert "<img" not in page.read_text(), page  # whose words nobody would check
    assert set(shown) == {pictures.FOLDER / f"{name}.svg" for name in NAMES}
    assert set(shown) == set(pictures.FOLDER.glob("*.svg"))


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_can_be_read_in_a_column_of_830_pixels_and_in_the_dark(name):
    text = svg(name)
    assert len(text.encode()) < 60_000
    width = float(ElementTree.fromstring(text).get("width").removesuffix("pt"))
    sizes = [float(size) for size in re.findall(r"font[\w -]*: ?([\d.]+)px", text)]
    assert min(sizes) * min(96 / 72, 830 / width) >= 12
    assert set(re.findall(r'(?:href|src)="([^#])', text)) == set()
    rules = text.partition("prefers-color-scheme: dark")[2].partition("</style>")[0]
    checked = 0
    for words in re.findall(r"<text.*?>", text):
        (color,) = re.findall(r"fill: (#\w+)", words)
        if color != "#fefefe":  # on a bar that is dark in both
            assert f'[style*="fill: {color}"]' in rules, words
            checked += 1
    assert checked > 8


def test_pictures_show_what_is_so():
    (curves,) = pictures.curves()
    assert list(curves) == STAGES
    assert [len(curve) for curve in curves.values()] == [3] * 6
    drawn, repeated = pictures.who_gets_what()[0].values()
    twice = Counter({pair: 2 for pair in itertools.product((0, 1), (1, 2, 3, 4))})
    for epoch in drawn + repeated:  # each rank has two images in each of four steps
        assert Counter(map(tuple, epoch)) == twice
    assert repeated == [drawn[0]] * 3
    assert len({json.dumps(epoch) for epoch in drawn}) == 3
    before, (mean, also), whole = pictures.gradients()
    assert before[0] != before[1]
    assert mean == also == pytest.approx(whole, abs=2e-4)
    assert len(mean) == 10
    for count, pieces in pictures.bubble()[0].items():
        end = max(start + length for _, start, length, *_ in pieces)
        work = sum(length for _, _, length, *_ in pieces)
        assert work / (2 * end) == pytest.approx(count / (count + 1))
    several = [row[4] for row in tables.steps(tables.published()) if row[2] == 2]
    points = itertools.chain(*pictures.speedups()[0].values())
    shown = [f"{middle:.2f}" for _, middle, _, _ in points]
    assert shown == several
    assert len(shown) == 11
