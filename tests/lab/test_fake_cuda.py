"""Promise: fake GPUs refuse what CUDA refuses when devices mix, and nothing else.

The rules: https://docs.pytorch.org/docs/stable/notes/cuda.html, and the messages of
ATen's TensorIterator and indexing. All public names of torch.cuda and torch.accelerator
are answered, or refused in one line.
"""

import json
import re
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tools.lab import fake_cuda
from tools.lab.fake_cuda.api import ANSWERS, public_names, refused_names
from tools.lab.fake_cuda.state import STATE, WAIT
from tools.run import ranks

ALL = "Expected all tensors to be on the same device"
INDEX = "indices should be either"
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
    ("g0.cpu()", "cpu"),
    ("g0[ic]", "cuda:0"),
    ("c[i0]", INDEX),
    ("g1[i0]", INDEX),
    ("g0.index_select(0, ic)", ALL),
    ("g0.index_put_((ic,), g0[ic])", "cuda:0"),
    ("g0.index_put_((i0,), c)", ALL),
    ("torch.cat([g0, c])", ALL),
    ("torch.stack([g0, g0])", "cuda:0"),
    ("torch.where(g0 > 0, g0, nc)", "cuda:0"),
    ("torch.where(g0 > 0, g0, c)", ALL),
    ("cross_entropy(g0.view(1, 2), ic[:1])", ALL),
    ("cross_entropy(g0.view(1, 2), i0[:1])", "cuda:0"),
    ("torch.zeros(2, device='cuda')", "cuda:0"),
    ("torch.zeros_like(g1)", "cuda:1"),
    ("torch.zeros(2, device='cuda:2')", "CUDA error: invalid device ordinal"),
    ("g0.numpy()", "can't convert cuda:0 device type tensor to numpy"),
    ("torch.tensor(g0.tolist())", "cpu"),
    ("setattr(g0, 'grad', c) or g0.grad", "assigned grad has data located on a"),
    ("torch._foreach_add([g0, g1], [g0, g1])[1]", "cuda:1"),
    ("torch._foreach_add([g0, g1], [g1, g0])[1]", ALL),
]
# What is called of a module, and how what it gives begins.
CALLS = {
    "torch.cuda": """
is_available() -> True
device_count() -> 2
synchronize() or synchronize('cuda:1') -> None
current_stream().synchronize() -> None
set_stream(Stream()) -> None
Event(enable_timing=True).query() -> True
Stream().wait_stream(current_stream()) -> None
device(1).__enter__() -> None
stream(Stream()).__enter__() -> None
default_stream(1).device -> device(type='cuda', index=1)
current_device() -> 0
set_device('cuda:1') or current_device() -> 1
get_device_properties(0).total_memory -> 17179869184
get_device_name() -> 'a fake GPU'
get_device_capability() -> (8, 0)
mem_get_info() -> (17179869184, 17179869184)
memory_allocated() -> 0
max_memory_allocated(1) -> 0
memory_reserved() -> 0
max_memory_reserved() -> 0
empty_cache() -> None
reset_peak_memory_stats() -> None
init() -> None
is_initialized() -> True
is_bf16_supported(including_emulation=False) -> True
is_current_stream_capturing() -> False
get_rng_state().dtype -> torch.uint8
len(get_rng_state_all()) -> 2
set_rng_state(get_rng_state()) -> None
set_rng_state_all(get_rng_state_all()) -> None
manual_seed(1) -> None
manual_seed_all(1) -> None
""",
    "torch.accelerator": """
is_available() -> True
device_count() -> 2
synchronize() -> None
current_stream().query() -> True
set_stream(torch.Stream('cuda')) -> None
current_accelerator() -> device(type='cuda')
current_device_index() -> 0
set_device_index(1) or torch.cuda.current_device() -> 1
device_index(1).__enter__() -> None
memory_allocated() -> 0
max_memory_allocated() -> 0
memory_reserved() -> 0
max_memory_reserved() -> 0
empty_cache() -> None
reset_peak_memory_stats() -> None
""",
    "torch": """
ones(2).pin_memory().is_pinned() -> True
ones(2).is_pinned() -> False
empty(2, pin_memory=True).is_pinned() -> True
next(iter(DataLoader(ones(2), pin_memory=True))).is_pinned() -> True
ones(2).pin_memory().cuda(non_blocking=True).get_device() -> 0
ones(2).to(1, non_blocking=True).get_device() -> 1
ones(2).cuda(device='cuda:1').get_device() -> 1
ones(2).to(0).record_stream(cuda.current_stream()) -> None
set_default_device('cuda:1') or ones(2).get_device() -> 1
Event(enable_timing=True).record() -> None
autocast('cuda', dtype=bfloat16).__enter__().device -> 'cuda'
amp.GradScaler().scale(ones(1).cuda()).get_device() -> 0
nn.DataParallel(nn.Linear(2, 2).cuda())(ones(3, 2)).get_device() -> 0
Event().elapsed_time(Event()) -> ValueError: Both events must be created with
elapsed_too_early() -> RuntimeError: CUDA error: device not ready
device_in_blocks() -> [1, 1, 0]
number_is_waited_for() -> True
cuda.CUDAGraph() -> NotImplementedError: torch.cuda.CUDAGraph: the lab's fake GPU
cuda._lazy_init() -> NotImplementedError: CUDA: the lab's fake GPU does not have it
""",
}


def elapsed_too_early():
    """Ask for a time before the GPU is there."""
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
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


def number_is_waited_for():
    """Return whether a number of a GPU, put into a new tensor, is waited for."""
    weights = torch.ones(2, 2).cuda()
    total = (weights @ weights).sum()
    before = STATE.now
    torch.tensor([total, 1], device="cuda")
    return STATE.now > before + WAIT


HELPERS = [elapsed_too_early, device_in_blocks, number_is_waited_for]


def calls_of(module):
    """Return (expression, what it gives) of CALLS."""
    return [line.split(" -> ") for line in CALLS[module].strip().splitlines()]


def tensors():
    """Return the tensors that RULES and CALLS name."""
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
    STATE.default = None
    try:
        return eval(expression, names | tensors())
    except (RuntimeError, ValueError, TypeError) as error:
        return error


def judge(rank, path):
    """Write what RULES, CALLS and the refused names give to a file."""
    fake_cuda.gpus(2, lambda *_, **__: None)
    found = {"rules": [], "calls": {}, "refused": []}
    names = {"torch": torch, "cross_entropy": cross_entropy}
    for rule, _ in RULES:
        result = evaluate(rule, names)
        found["rules"].append(str(getattr(result, "device", result)))
    names = {"torch": torch, "DataLoader": DataLoader}
    names |= {helper.__name__: helper for helper in HELPERS}
    for module in CALLS:
        found["calls"][module] = []
        for expression, _ in calls_of(module):
            result = evaluate(expression, vars(sys.modules[module]) | names)
            if isinstance(result, Exception):
                said = f"{type(result).__name__}: {result}"
            else:
                said = repr(result)
            found["calls"][module].append(said)
    for module in ANSWERS:
        for name in refused_names(module):
            with pytest.raises(NotImplementedError, match="the lab's limit"):
                getattr(sys.modules[module], name)()
            found["refused"].append(f"{module}.{name}")
    path.write_text(json.dumps(found))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake")
    (folder / "nothing.py").write_text("")
    prepare = judge, folder / "found.json"
    result = ranks.run([folder / "nothing.py"], prepare=prepare)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("number", range(len(RULES)), ids=[rule for rule, _ in RULES])
def test_a_rule(found, number):
    _, said = RULES[number]
    assert found["rules"][number].startswith(said)


@pytest.mark.parametrize("module", CALLS)
def test_calls_are_answered(found, module):
    expected = calls_of(module)
    assert len(found["calls"][module]) == len(expected)
    for (expression, said), result in zip(
        expected, found["calls"][module], strict=True
    ):
        assert result.startswith(said), expression


def test_each_public_name_is_called_or_refused(found):
    for module, answers in ANSWERS.items():
        called = set()
        for expression, _ in calls_of(module):
            called.add(re.match(r"(?:len\()?(\w+)", expression)[1])
        assert called == set(answers)
    assert [len(answers) for answers in ANSWERS.values()] == [32, 15]
    assert len(found["refused"]) == 83
    assert len(public_names(torch.cuda) + public_names(torch.accelerator)) == 141
