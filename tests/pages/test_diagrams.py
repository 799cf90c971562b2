"""Promise: the site has a drawing of every Mermaid diagram, as it is now."""

import re
from xml.etree import ElementTree

from tools.pages import diagrams

LABEL = re.compile(r'"([^"\n]+)"|->>?[+-]?\w+: (.+)')


def test_every_diagram_is_drawn_as_its_source_says():
    sources = diagrams.sources()
    assert len(sources) >= 1
    for source in sources:
        path = diagrams.path(source)
        assert path.exists(), f"a diagram changed, run: make docs\n{source}"
        root = ElementTree.parse(path).getroot()
        drawn = re.sub(r"\W", "", "".join(root.itertext()))
        assert root.findall(".//{*}path"), path  # an arrow
        labels = [quoted or said for quoted, said in LABEL.findall(source)]
        assert labels
        for label in labels:
            for line in label.split("<br>"):
                plain = re.sub(r"<.*?>|\W", "", line)
                assert plain in drawn, f"{path}: {label}"
    drawn = {diagrams.path(source) for source in sources}
    assert set(diagrams.FOLDER.iterdir()) == drawn
