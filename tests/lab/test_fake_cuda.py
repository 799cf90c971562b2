"""Promise: fake GPUs refuse exactly what CUDA and NCCL refuse, in the same words.

The rules come from https://docs.pytorch.org/docs/stable/notes/cuda.html and from the
installed PyTorch's kernels, whose device checks work without a GPU. tests/gpus checks
them on a real GPU. tests/stages/test_devices.py covers NCCL's refusals.
"""

import importlib.util
import json
import mmap
from pathlib import Path

import pytest
import torch

from cuda_rules import RULES, TEXTS, evaluate, words_of_the_kernel
from onecurve import api
from tools.lab import fake_cuda
from tools.lab.fake_cuda.parallel import BOUND, SHARED


def write_results(rank, path):
    """Write the results of RULES and TEXTS on two fake GPUs to a file."""
    fake_cuda.two_gpus(lambda *_, **__: None)
    path.write_text(json.dumps(evaluate(RULES)))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return {expression: result} for RULES and TEXTS on two fake GPUs."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "nothing.py").write_text("")
    prepare = write_results, folder / "found.json"
    result = api.run([folder / "nothing.py"], prepare=prepare)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(("expression", "expected"), RULES)
def test_what_is_answered_and_what_is_refused(results, expression, expected):
    assert expected in results[expression]


NO_CUDA = "this PyTorch is a CPU build and has no CUDA kernels to compare with"


@pytest.mark.skipif(not torch.version.cuda, reason=NO_CUDA)
@pytest.mark.parametrize("expression", TEXTS)
def test_the_words_are_those_of_the_kernels(results, expression):
    assert results[expression] == words_of_the_kernel(expression)


@pytest.mark.skipif(not torch.version.cuda, reason=NO_CUDA)
def test_the_words_are_those_of_nccl():
    nccl = Path(importlib.util.find_spec("nvidia.nccl").submodule_search_locations[0])
    torch_cuda = Path(torch.__file__).with_name("lib") / "libtorch_cuda.so"
    looked_up = {SHARED: nccl / "lib/libnccl.so.2"}
    for part in BOUND.split("{}")[:2]:
        looked_up[part] = torch_cuda
    for text, library in looked_up.items():
        with open(library, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            assert content.find(text.encode()) > 0, f"{library} has no {text!r}"
