"""Promise: every variant that the pages show runs, and does what its page says."""

import re

import pytest

from conftest import ROOT, rows, run
from tools.lab.exercise import patched
from tools.pages import blocks, variants
from tools.run.stages import EVERY, script

NAMES = sorted(path.stem for path in variants.VARIANTS.glob("*.patch"))
# A data set as most are: it takes one index.
ITEMS = """class Items:
    def __init__(self, images, labels):
        self.items = list(zip(images, labels, strict=True))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Net(nn.Module):
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_is_shown_with_its_diff_and_its_curve(name):
    stage = variants.variant_stage(name)
    assert stage in EVERY.values()
    original = script(stage).read_text()
    assert patched(original, variants.VARIANTS / f"{name}.patch", stage) != original
    diffs = 0
    curves = 0
    for page in blocks.PAGES:
        for part, text in blocks.PART.findall((ROOT / page).read_text()):
            if part == f"variant {name}":
                diffs += 1
            if part.startswith("variants "):
                curves += len(re.findall(rf"^{name} +\d\.\d{{6}}", text, re.MULTILINE))
    assert (diffs, curves) == (1, 1)


def with_items(text):
    """Return a script whose training set takes one index at a time."""
    changes = [
        ("class Net(nn.Module):\n", ITEMS),
        ("train = TensorDataset(", "train = Items("),
    ]
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_the_usual_loader_takes_a_data_set_of_single_items(trained, tmp_path):
    """And trains as the stage does; the stage's own loader fails on such a data set."""
    original = script("04_ddp").read_text()
    variant = patched(original, variants.VARIANTS / "usual_loader.patch", "04_ddp")
    path = tmp_path / "mnist.py"
    flags = ["--data", ROOT / "data/sample", "--out", tmp_path, "--epochs", 2]
    path.write_text(with_items(variant))
    result = run("04_ddp", *flags, path=path)
    assert result.returncode == 0, result.stderr
    assert rows(tmp_path) == rows(trained("04_ddp", None))
    path.write_text(with_items(original))
    result = run("04_ddp", *flags, path=path)
    error = "TypeError: list indices must be integers or slices, not list"
    assert result.returncode != 0
    assert error in result.stderr
    assert error in (ROOT / "04_ddp/README.md").read_text()
