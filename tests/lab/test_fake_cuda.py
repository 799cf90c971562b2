"""Promise: fake GPUs refuse what CUDA refuses when devices mix, and nothing else.

The rules: https://docs.pytorch.org/docs/stable/notes/cuda.html, and the messages of
ATen's TensorIterator and indexing. And what is public of torch.cuda and
torch.accelerator is answered, or refused in one line.
"""

import re
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tools.lab import fake_cuda
from tools.run import ranks

ALL, INDEX = "Expected all tensors to be on the same device", "indices should be either"
RULES = [  # expression of g0, g1 (vectors on GPUs), c (CPU), n0, nc (numbers), i0, ic
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
    ("torch.zeros(2, device='cuda:2')", "invalid device ordinal"),
    ("g0.numpy()", "can't convert cuda:0 device type tensor to numpy"),
    ("torch.tensor(g0.tolist())", "cpu"),
    ("setattr(g0, 'grad', c) or g0.grad", "assigned grad has data located on a different"),
    ("torch._foreach_add([g0, g1], [g0, g1])[1]", "cuda:1"),
    ("torch._foreach_add([g0, g1], [g1, g0])[1]", ALL),
]  # fmt: skip


def judge(rank, path):
    """Write the device or the error of each rule to a file."""
    fake_cuda.gpus(2, lambda *_, **__: None)
    with open(path, "w") as file:
        for rule, _ in RULES:
            names = {
                "g0": torch.ones(2, device="cuda:0"),
                "g1": torch.ones(2, device="cuda:1"),
                "c": torch.ones(2),
                "n0": torch.ones((), device="cuda"),
                "nc": torch.ones(()),
                "i0": torch.tensor([0, 1]).cuda(),
                "ic": torch.tensor([0, 1]),
            }
            names |= {"torch": torch, "cross_entropy": cross_entropy}
            try:
                print(eval(rule, names).device, file=file)
            except (RuntimeError, TypeError) as error:
                print(error, file=file)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    (folder / "nothing.py").write_text("")
    options = {"prepare": (judge, folder / "found")}
    result = ranks.run([folder / "nothing.py"], **options)
    assert result.returncode == 0, result.stderr
    lines = (folder / "found").read_text().splitlines()
    assert len(lines) == len(RULES) == 32
    return dict(zip([rule for rule, _ in RULES], lines, strict=True))


@pytest.mark.parametrize(("rule", "said"), RULES)
def test_a_rule(found, rule, said):
    assert found[rule].startswith(said) or found[rule].endswith(said)


CALLS = {  # name -> what is called, and what it gives
    "torch.cuda": """
is_available() -> True
device_count() -> 2
synchronize() or synchronize('cuda:1') -> None
current_stream().synchronize() -> None
set_stream(Stream()) -> None
Event(enable_timing=True).query() -> True
Stream().wait_stream(current_stream()) -> None
StreamContext(Stream()).__enter__() -> None
device(1).__enter__() or current_device() -> 1
device_of(g1).__enter__() or current_device() -> 1
stream(Stream()).__enter__() -> None
default_stream(1).device -> device(type='cuda', index=1)
current_device() -> 0
set_device('cuda:1') or current_device() -> 1
get_device_properties(0).total_memory -> 17179869184
get_device_name() -> 'a fake GPU'
get_device_capability() -> (8, 0)
can_device_access_peer(0, 1) -> True
mem_get_info() -> (17179869184, 17179869184)
memory_summary() -> 'nothing is kept account of'
memory_snapshot() -> []
memory_stats()['allocated_bytes.all.peak'] -> 0
memory_allocated() -> 0
max_memory_allocated(1) -> 0
memory_reserved() -> 0
max_memory_reserved() -> 0
memory_cached() -> 0
max_memory_cached() -> 0
empty_cache() -> None
ipc_collect() -> None
reset_peak_memory_stats() -> None
reset_accumulated_memory_stats() -> None
reset_max_memory_allocated() -> None
reset_max_memory_cached() -> None
set_per_process_memory_fraction(0.5) -> None
init() -> None
is_initialized() -> True
is_bf16_supported(including_emulation=False) -> True
is_tf32_supported() -> True
is_current_stream_capturing() -> False
initial_seed() == torch.initial_seed() -> True
get_rng_state().dtype -> torch.uint8
len(get_rng_state_all()) -> 2
set_rng_state(get_rng_state()) -> None
set_rng_state_all(get_rng_state_all()) -> None
manual_seed(1) -> None
manual_seed_all(1) -> None
seed() -> None
seed_all() -> None
""",
    "torch.accelerator": """
is_available() -> True
device_count() -> 2
synchronize() -> None
current_stream().query() -> True
set_stream(torch.Stream('cuda')) -> None
current_accelerator() -> device(type='cuda')
current_device_index() -> 0
current_device_idx() -> 0
set_device_index(1) or torch.cuda.current_device() -> 1
set_device_idx(1) or torch.cuda.current_device() -> 1
device_index(1).__enter__() or current_device_index() -> 1
memory_allocated() -> 0
max_memory_allocated() -> 0
memory_reserved() -> 0
max_memory_reserved() -> 0
memory_stats()['x'] -> 0
get_memory_info() -> (17179869184, 17179869184)
empty_cache() -> None
empty_host_cache() -> None
reset_peak_memory_stats() -> None
reset_accumulated_memory_stats() -> None
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
early() -> RuntimeError: CUDA error: device not ready
waits() -> True
cuda.CUDAGraph() -> NotImplementedError: torch.cuda.CUDAGraph: the lab's fake GPU
cuda._lazy_init() -> NotImplementedError: CUDA: the lab's fake GPU does not have it
""",
}


def early():
    """Ask for a time before the GPU is there."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    weights = torch.ones(2, 2).cuda()
    weights @ weights
    end.record()
    return begin.elapsed_time(end)


def waits():
    """Return whether a number of a GPU, put into a new tensor, is waited for."""
    weights = torch.ones(2, 2).cuda()
    total = (weights @ weights).sum()
    before = fake_cuda.HERE.now
    torch.tensor([total, 1], device="cuda")
    return fake_cuda.HERE.now > before + fake_cuda.WAIT


def lines(module):
    """Return (expression, what it gives) of CALLS."""
    return [line.split(" -> ") for line in CALLS[module].strip().splitlines()]


def call_all(rank, path):
    """Write what each of CALLS gives; and whether what is refused says so in a line."""
    fake_cuda.gpus(2, lambda *_, **__: None)
    with open(path, "w") as file:
        for module in CALLS:
            for expression, _ in lines(module):
                fake_cuda.HERE.current, fake_cuda.HERE.default = 0, None
                names = {**vars(sys.modules[module]), "torch": torch}
                names |= {"early": early, "waits": waits}
                names |= {
                    "g1": torch.ones(2, device="cuda:1"),
                    "DataLoader": DataLoader,
                }
                try:
                    print(repr(eval(expression, names)), file=file)
                except (RuntimeError, ValueError, TypeError) as error:
                    print(f"{type(error).__name__}: {error}", file=file)
        for module, answers in fake_cuda.API.items():
            owner = sys.modules[module]
            for name in sorted(set(fake_cuda.public(owner)) - set(answers)):
                if callable(getattr(owner, name)) and name not in fake_cuda.AS_IS:
                    with pytest.raises(NotImplementedError, match="the lab's limit"):
                        getattr(owner, name)()
                    print(name, file=file)


def test_the_public_api_is_answered_or_refused_in_a_line(tmp_path):
    (tmp_path / "nothing.py").write_text("")
    prepare = call_all, tmp_path / "found"
    result = ranks.run([tmp_path / "nothing.py"], prepare=prepare)
    assert result.returncode == 0, result.stderr
    found = iter((tmp_path / "found").read_text().splitlines())
    for module in CALLS:
        for expression, expected in lines(module):
            assert next(found).startswith(expected), expression
    assert len(list(found)) == 60  # are refused
    for module, answers in fake_cuda.API.items():
        called = {re.match(r"(?:len\()?(\w+)", line)[1] for line, _ in lines(module)}
        assert called == set(answers)
    assert [len(answers) for answers in fake_cuda.API.values()] == [49, 21]
    assert (
        len(fake_cuda.public(torch.cuda) + fake_cuda.public(torch.accelerator)) == 141
    )
