"""Promise: the site has a drawing of every Mermaid diagram, as it is now."""

from tools.pages import diagrams


def test_every_diagram_is_drawn():
    sources = diagrams.sources()
    assert len(sources) >= 13
    for source in sources:
        path = diagrams.path(source)
        assert path.exists(), "a diagram changed, run: make docs"
        assert len(diagrams.words(source)) > 20
