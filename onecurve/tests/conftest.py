"""Shared by the tests: how to run a command, and which tests are slow."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).resolve().parents[1]
# With PyTorch's default threads, several processes on two cores slow each other down.
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
ENV.pop("RANK", None)
os.environ.update(ENV)
torch.set_num_threads(1)


def pytest_collection_modifyitems(config, items):
    """Deselect slow tests unless ALL=1."""
    if os.environ.get("ALL"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


def call(words, timeout=300, **options):
    """Run a command and return a CompletedProcess."""
    options = {"env": ENV, "capture_output": True, "text": True, **options}
    return subprocess.run([str(word) for word in words], timeout=timeout, **options)


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a script's text and returns its path."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
