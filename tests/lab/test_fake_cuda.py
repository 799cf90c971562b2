"""Promise: fake GPUs refuse what CUDA and NCCL refuse, in their words, and no more.

The rules: https://docs.pytorch.org/docs/stable/notes/cuda.html, and the kernels of the
installed PyTorch, whose checks of devices work without a GPU. tests/stages/test_devices
has what NCCL refuses.
"""

import datetime
import importlib.util
import json
import mmap
import time
from pathlib import Path

import pytest
import torch
from torch.nn import Linear
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from onecurve import ranks
from tools.lab import fake_cuda
from tools.lab.fake_cuda.devices import STATE
from tools.lab.fake_cuda.parallel import BOUND, SHARED

MIXED = "Expected all tensors to be on the same device"
NOT_READY = "CUDA error: device not ready"
LIMIT = "The lab's fake GPU does not have this"
# An expression, and the device of what it gives, its value, or a part of its error. g0
# and g1 are vectors on GPUs, c is one on the CPU; n0 and nc are numbers, i0 and ic are
# indices.
RULES = [
    ("g0 + g1", f"{MIXED}, but found at least two devices, cuda:0 and cuda:1!"),
    ("g0 + nc", "cuda:0"),
    ("nc + n0", "cuda:0"),
    ("c + n0", MIXED),
    ("g0.add_(nc)", "cuda:0"),
    ("g0.copy_(c)", "cuda:0"),
    ("g0.to(g1)", "cuda:1"),
    ("c.to(1, torch.float64)", "cuda:1"),
    ("c.to(device='cuda', dtype=torch.float64)", "cuda:0"),
    ("g0.to(dtype=torch.float64, device='cpu') + g0", MIXED),
    ("c.to('cpu', copy=True) is c", "False"),
    ("g0.to('cuda', copy=True) + c", MIXED),
    ("c.to('gpu')", "at start of device string: gpu"),
    ("c.to('cuda', nonblocking=True)", "invalid combination of arguments"),
    ("Linear(2, 2).to(device='cuda', dtype=torch.float64).weight", "cuda:0"),
    ("Linear(2, 2).to(device='cuda')(c)", MIXED),
    ("c.type_as(g1)", "cuda:1"),
    ("g0.new_tensor([1.0]) + c", MIXED),
    ("(g0.is_cpu, c.is_cpu)", "(False, True)"),
    ("torch.randn(2, device='cuda', generator=torch.Generator())", "for generator but"),
    ("g0[ic]", "cuda:0"),
    ("c[i0]", MIXED),
    ("cross_entropy(g0.view(1, 2), ic[:1])", MIXED),
    ("cross_entropy(g0.view(1, 2), i0[:1])", "cuda:0"),
    ("torch.zeros_like(g1)", "cuda:1"),
    ("torch.zeros(2, device='cuda:2')", "CUDA error: invalid device ordinal"),
    ("torch.tensor(g0.tolist())", "cpu"),
    ("g0.numpy()", "can't convert cuda:0 device type tensor to numpy"),
    ("c.pin_memory().cuda(non_blocking=True)", "cuda:0"),
    ("next(iter(DataLoader(c, pin_memory=True)))", "cpu"),
    ("data_parallel(torch.ones(3, 2))", "cuda:0"),
    ("torch.set_default_device('cuda')", LIMIT),
    ("torch.cuda.CUDAGraph()", LIMIT),
    ("torch.randn(2, device='cuda', generator=torch.Generator('cuda'))", "cuda:0"),
    ("torch.randn(2, generator=torch.Generator('cuda'))", "but found 'cuda'"),
    ("torch.Generator('cuda:2')", "CUDA error: invalid device ordinal"),
    ("torch.cuda.mem_get_info()[0] <= torch.cuda.mem_get_info()[1]", "True"),
    ("torch.cuda.memory_summary()", "fake GPU"),
    ("torch.cuda.initial_seed() == torch.initial_seed()", "True"),
    ("torch.cuda.get_rng_state()", "cpu"),
    ("torch.cuda.init()", "None"),
    ("torch.cuda.device_count()", "2"),
    ("torch.cuda.set_device(1) or torch.cuda.current_device()", "1"),
    ("torch.cuda.get_device_name(1)", "a fake cuda:1"),
    ("torch.accelerator.set_device_index(1) or c.cuda()", "cuda:1"),
    ("torch.accelerator.current_device_index()", "0"),
    ("c.to(torch.accelerator.current_accelerator())", "cuda:0"),
    ("torch.accelerator.set_device(1)", "has no attribute 'set_device'"),
    ("torch.cuda.Stream(2)", "CUDA error: invalid device ordinal"),
    ("elapsed(torch.cuda.synchronize)", "True"),
    ("elapsed(torch.accelerator.synchronize)", "True"),
    ("elapsed(torch.cuda.current_stream().synchronize)", "True"),
    ("elapsed(ask_until_it_is_done)", "True"),
    ("elapsed(torch.cuda.Stream(0).synchronize)", "True"),
    ("elapsed(lambda: None)", NOT_READY),
    ("(datetime.now() - datetime.fromtimestamp(time.time())).days == 0", "True"),
    ("device_in_a_block()", "(1, 0)"),
]
META = torch.ones(2, 2, device="meta")  # in place of a GPU, for the real kernels
CPU = torch.ones(2, 2)
ATEN = torch.ops.aten
# What mixes devices, and the same as an operation of PyTorch with its arguments.
TEXTS = {
    "torch.addmm(g, c, g)": (ATEN.addmm.default, META, CPU, META),  # nn.Linear's
    "torch.addmm(c, c, g)": (ATEN.addmm.default, CPU, CPU, META),
    "g @ c": (ATEN.mm.default, META, CPU),
    "torch.cat([g, c])": (ATEN.cat.default, [META, CPU]),
    "g + c": (ATEN.add.Tensor, META, CPU),
    "c.add_(g)": (ATEN.add_.Tensor, CPU, META),
    "torch.where(g > 0, c, g)": (ATEN.where.self, META > 0, CPU, META),
}


def elapsed(wait):
    """Return whether a product took its time, by two events, after a wait."""
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    weights = torch.ones(2, 2).cuda()
    weights @ weights
    end.record()
    wait()
    return begin.elapsed_time(end) >= fake_cuda.MATMUL


def ask_until_it_is_done():
    """Wait for the current stream by asking an event."""
    event = torch.Event("cuda")
    event.record()
    while not event.query():
        pass


def device_in_a_block():
    """Return the current device within a block of another one, and after it."""
    with torch.cuda.device(1):
        within = torch.cuda.current_device()
    return within, torch.cuda.current_device()


def data_parallel(images):
    """Return the gradient of a layer that has worked on both GPUs."""
    layer = torch.nn.Linear(2, 2).cuda()
    torch.nn.DataParallel(layer)(images).sum().backward()
    return layer.weight.grad


HELPERS = [cross_entropy, DataLoader, Linear, elapsed, data_parallel]
HELPERS += [ask_until_it_is_done, device_in_a_block]
NAMES = {"torch": torch, "time": time}
NAMES |= {helper.__name__: helper for helper in HELPERS}


def tensors():
    """Return the tensors that RULES and TEXTS name."""
    return {
        "g0": torch.ones(2, device="cuda:0"),
        "g1": torch.ones(2, device="cuda:1"),
        "c": torch.ones(2),
        "n0": torch.ones((), device="cuda"),
        "nc": torch.ones(()),
        "i0": torch.tensor([0, 1]).cuda(),
        "ic": torch.tensor([0, 1]),
    }


def write_results(rank, path):
    """Write what RULES and TEXTS give on two fake GPUs to a file."""
    fake_cuda.two_gpus(lambda *_, **__: None)
    NAMES["datetime"] = datetime.datetime  # as a script would import it now
    found = {}
    square = {"g": torch.ones(2, 2).cuda(), "c": torch.ones(2, 2)}
    for expression in [*dict(RULES), *TEXTS]:
        STATE.current = 0
        names = square if expression in TEXTS else tensors()
        try:
            result = eval(expression, NAMES | names)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            result = error
        found[expression] = str(getattr(result, "device", result))
    path.write_text(json.dumps(found))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each expression of RULES and TEXTS gives, as a text."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "nothing.py").write_text("")
    prepare = write_results, folder / "found.json"
    result = ranks.run([folder / "nothing.py"], prepare=prepare)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(("expression", "expected"), RULES)
def test_what_is_answered_and_what_is_refused(results, expression, expected):
    assert expected in results[expression]


NO_CUDA = "this PyTorch is for CPUs alone: it has no kernels of CUDA to ask"


@pytest.mark.skipif(not torch.version.cuda, reason=NO_CUDA)
@pytest.mark.parametrize("expression", TEXTS)
def test_the_words_are_those_of_the_kernels(results, expression):
    operation, *arguments = TEXTS[expression]
    with pytest.raises(RuntimeError) as caught:
        operation._op_dk(torch._C.DispatchKey.CUDA, *arguments)
    assert results[expression] == str(caught.value).replace("meta", "cuda:0")


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
