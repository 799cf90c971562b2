"""Promise: stage 05 counts every test image once, on any number of ranks."""

import re

import pytest

from conftest import EVEN, rows, run


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_every_image_counts_once(trained, data, processes):
    """Of 997, a prime: a sampler that pads would count up to 1,000."""
    out = trained("01_cpu")
    flags = ["--checkpoint", out / "model.pth", "--data", data(EVEN)]
    result = run("05_ddp_inference", *flags, processes=processes)
    assert result.returncode == 0, result.stderr
    found = re.fullmatch(r".*model\.pth  test (\d+)/(\d+)\n", result.stdout)
    assert [int(found[1]), int(found[2])] == rows(out)[-1][2:]
    assert int(found[2]) == 997
