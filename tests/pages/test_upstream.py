"""Promise: the page of PyTorch's faults says what each prints on this version."""

import pytest

from conftest import ROOT
from tools.pages import upstream

PAGE = (ROOT / "beyond" / "UPSTREAM.md").read_text()


@pytest.mark.parametrize("name", upstream.names())
def test_a_fault_prints_what_the_page_says(name):
    if upstream.VERSION not in upstream.stored()[name]:
        pytest.skip(f"not stored yet for {upstream.VERSION}: tools.pages.upstream")
    lines = upstream.run(name)
    assert lines
    assert upstream.stored()[name][upstream.VERSION] == lines
    assert f"<!-- generated: upstream {name} -->\n{upstream.upstream(name)}\n" in PAGE
