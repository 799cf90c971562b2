"""Promise: fake GPUs refuse what CUDA refuses when devices mix, and nothing else.

The rules: https://docs.pytorch.org/docs/stable/notes/cuda.html, and the messages of
ATen's TensorIterator. All public names of torch.cuda and torch.accelerator are
answered, or refused in one line.
"""

import json
import os
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tools.lab import fake_cuda
from tools.lab.fake_cuda.api import ANSWERS
from tools.lab.fake_cuda.state import STATE
from tools.run import ranks

ALL = "Expected all tensors to be on the same device"
# An expression, and the device of what it gives or how its error begins. g0 and g1 are
# vectors on GPUs, c is one on the CPU; n0 and nc are numbers, i0 and ic are indices.
RULES = [
    ("g0 + c", ALL),
    ("g0 + g1", ALL),
    ("g0 + nc", "cuda:0"),
    ("nc + n0", "cuda:0"),
    ("c + n0", ALL),
    ("g1 * n0", ALL),
    ("g0.add_(nc)", "cuda:0"),
    ("nc.add_(n0)", ALL),
    ("g0.copy_(c)", "cuda:0"),
    ("c.copy_(g1)", "cpu"),
    ("g0.to(g1)", "cuda:1"),
    ("g0[ic]", "cuda:0"),
    ("c[i0]", ALL),
    ("g1[i0]", ALL),
    ("g0.index_put_((ic,), g0[ic])", "cuda:0"),
    ("torch.cat([g0, c])", ALL),
    ("torch.stack([g0, g0])", "cuda:0"),
    ("torch.where(g0 > 0, g0, nc)", "cuda:0"),
    ("cross_entropy(g0.view(1, 2), ic[:1])", ALL),
    ("cross_entropy(g0.view(1, 2), i0[:1])", "cuda:0"),
    ("torch.zeros_like(g1)", "cuda:1"),
    ("torch.zeros(2, device='cuda:2')", "CUDA error: invalid device ordinal"),
    ("g0.numpy()", "can't convert cuda:0 device type tensor to numpy"),
    ("torch.tensor(g0.tolist())", "cpu"),
    ("torch._foreach_add([g0, g1], [g0, g1])[1]", "cuda:1"),
    ("torch._foreach_add([g0, g1], [g1, g0])[1]", ALL),
]
# What is called of a module, and how what it gives begins.
CALLS = {
    "torch.cuda": """
is_available() -> True
device_count() -> 2
synchronize('cuda:1') -> None
current_stream().synchronize() -> None
Event(enable_timing=True).synchronize() -> None
Stream().wait_stream(current_stream()) -> None
device(1).__enter__() -> None
stream(Stream()).__enter__() -> None
current_device() -> 0
set_device('cuda:1') or current_device() -> 1
get_device_name() -> 'a fake cuda:0'
get_device_properties(1).name -> 'a fake cuda:1'
memory_allocated() -> 0
max_memory_allocated(1) -> 0
empty_cache() -> None
reset_peak_memory_stats() -> None
get_device_capability() -> (8, 0)
is_initialized() -> True
is_bf16_supported(including_emulation=False) -> True
is_current_stream_capturing() -> False
manual_seed(1) -> None
manual_seed_all(1) -> None
CUDAGraph() -> NotImplementedError: torch.cuda.CUDAGraph: the lab's fake GPU
mem_get_info() -> NotImplementedError: torch.cuda.mem_get_info: the lab's fake GPU
_lazy_init() -> NotImplementedError: CUDA: the lab's fake GPU does not have it
""",
    "torch.accelerator": """
current_accelerator() -> device(type='cuda')
current_device_index() -> 0
set_device_index(1) or torch.cuda.current_device() -> 1
device_index(1).__enter__() -> None
memory_stats() -> NotImplementedError: torch.accelerator.memory_stats: the lab's
""",
    "torch": """
ones(2).pin_memory().cuda(non_blocking=True).get_device() -> 0
next(iter(DataLoader(ones(2), pin_memory=True))).get_device() -> -1
empty(2, pin_memory=True).get_device() -> -1
ones(2).to(1, non_blocking=True).get_device() -> 1
ones(2).cuda(device='cuda:1').get_device() -> 1
ones(2).to(0).record_stream(cuda.current_stream()) -> None
set_default_device('cuda') -> NotImplementedError: torch.set_default_device: the lab's
autocast('cuda', dtype=bfloat16).__enter__().device -> 'cuda'
amp.GradScaler().scale(ones(1).cuda()).get_device() -> 0
nn.DataParallel(nn.Linear(2, 2).cuda())(ones(3, 2)).get_device() -> 0
Event().elapsed_time(Event()) -> ValueError: Both events must be created with
elapsed_too_early() -> RuntimeError: CUDA error: device not ready
device_in_blocks() -> [1, 1, 0]
""",
}


def elapsed_too_early():
    """Ask for a time before the GPU is there."""
    begin = torch.Event(enable_timing=True)
    end = torch.Event(enable_timing=True)
    begin.record()
    weights = torch.ones(2, 2).cuda()
    weights @ weights
    end.record()
    return begin.elapsed_time(end)


def device_in_blocks():
    """Return the current device in a block of a device, of a stream, and after both."""
    found = []
    with torch.cuda.device(1):
        found.append(torch.cuda.current_device())
    stream = torch.cuda.Stream(1)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() is stream
        found.append(torch.cuda.current_device())
    assert torch.cuda.current_stream(1) is not stream
    return [*found, torch.cuda.current_device()]


NAMES = {"torch": torch, "cross_entropy": cross_entropy, "DataLoader": DataLoader}
NAMES |= {helper.__name__: helper for helper in (elapsed_too_early, device_in_blocks)}


def calls():
    """Return (module, expression, what it gives) of CALLS."""
    found = []
    for module, lines in CALLS.items():
        for line in lines.strip().splitlines():
            found.append((module, *line.split(" -> ")))
    return found


def tensors():
    """Return the tensors that RULES names."""
    return {
        "g0": torch.ones(2, device="cuda:0"),
        "g1": torch.ones(2, device="cuda:1"),
        "c": torch.ones(2),
        "n0": torch.ones((), device="cuda"),
        "nc": torch.ones(()),
        "i0": torch.tensor([0, 1]).cuda(),
        "ic": torch.tensor([0, 1]),
    }


def evaluate(expression, names):
    """Return what an expression gives, or its error, with the first GPU current."""
    STATE.current = 0
    try:
        return eval(expression, NAMES | names)
    except (RuntimeError, ValueError, TypeError) as error:
        return error


def judge(rank, path):
    """Write what RULES and CALLS give to a file."""
    fake_cuda.two_gpus(lambda *_, **__: None)
    found = []
    for rule, _ in RULES:
        result = evaluate(rule, tensors())
        found.append(str(getattr(result, "device", result)))
    for module, expression, _ in calls():
        result = evaluate(expression, vars(sys.modules[module]))
        said = repr(result)
        if isinstance(result, Exception):
            said = f"{type(result).__name__}: {result}"
        found.append(said)
    path.write_text(json.dumps(found))


def test_what_is_answered_and_what_is_refused(tmp_path):
    (tmp_path / "nothing.py").write_text("")
    prepare = judge, tmp_path / "found.json"
    result = ranks.run([tmp_path / "nothing.py"], prepare=prepare)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    expected = RULES + [call[1:] for call in calls()]
    assert len(found) == len(expected) > 60
    for (expression, said), result in zip(expected, found, strict=True):
        assert result.startswith(said), expression


@pytest.mark.parametrize("module", ANSWERS)
def test_each_name_that_is_answered_is_called(module):
    called = [call[1] for call in calls() if call[0] in (module, "torch.cuda")]
    for name in ANSWERS[module]:
        assert any(expression.startswith(f"{name}(") for expression in called), name


@pytest.mark.parametrize(("rank", "machine", "local"), [(1, 0, 1), (2, 1, 0)])
def test_ranks_of_several_machines(monkeypatch, rank, machine, local):
    monkeypatch.setattr(os, "environ", {"RANK": str(rank)})
    fake_cuda.machines(None, ranks=2)
    assert os.environ == {
        "RANK": str(rank),
        "GROUP_RANK": str(machine),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": "2",
    }
