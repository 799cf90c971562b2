"""What CUDA accepts and refuses: fake and real GPUs must agree.

`python tests/cuda_rules.py FILE` evaluates the rules on this machine's GPUs, at most
two, and writes the results as JSON: {expression: error}.
"""

import datetime
import json
import re
import sys
import time

import torch
from torch.nn import Linear
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from tools.lab import fake_cuda

MIXED = "Expected all tensors to be on the same device"
NOT_READY = "Both events must be completed before calculating elapsed time."
LIMIT = "The lab's fake GPU does not support this"
# An expression and its result: a device, a value or part of an error message. g0 and g1
# are vectors on GPUs, c is one on the CPU; n0 and nc are scalars, i0 and ic indices.
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
    ("c[i0]", "indices should be either on cpu or on the same device as the indexed"),
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
    ("torch.Generator('cuda:2')", "cuda:2"),
    ("torch.cuda.mem_get_info()[0] <= torch.cuda.mem_get_info()[1]", "True"),
    ("torch.cuda.memory_summary()", "fake GPU"),
    ("torch.manual_seed(3) and torch.cuda.initial_seed()", "3"),
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
    ("elapsed(torch.cuda.Stream(0).synchronize)", NOT_READY),
    ("elapsed(a_stream_that_waits().synchronize)", "True"),
    ("elapsed(lambda: None)", NOT_READY),
    ("abs(datetime.now().timestamp() - time.time()) < 1", "True"),
    ("device_in_a_block()", "(1, 0)"),
]
META = torch.ones(2, 2, device="meta")  # replaces a GPU in calls of real kernels
CPU = torch.ones(2, 2)
ATEN = torch.ops.aten
# Expressions that mix devices, each with its PyTorch operator and arguments.
TEXTS = {
    "torch.addmm(g, c, g)": (ATEN.addmm.default, META, CPU, META),  # nn.Linear's
    "torch.addmm(c, c, g)": (ATEN.addmm.default, CPU, CPU, META),
    "g @ c": (ATEN.mm.default, META, CPU),
    "torch.cat([g, c])": (ATEN.cat.default, [META, CPU]),
    "g + c": (ATEN.add.Tensor, META, CPU),
    "c.add_(g)": (ATEN.add_.Tensor, CPU, META),
    "torch.where(g > 0, c, g)": (ATEN.where.self, META > 0, CPU, META),
}


SIDE = 2  # matrix width; a real GPU uses BUSY so that a product takes a while
BUSY = 8192
# Rules that need two GPUs, and rules of fake GPUs only.
SECOND = re.compile(r"g1|cuda:1|\(1\)|to\(1|in_a_block|device_count")
OF_FAKES = LIMIT, "fake", "has no attribute 'set_device'"


def elapsed(wait):
    """Return whether two events, read after `wait()`, time a product correctly."""
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    weights = torch.ones(SIDE, SIDE).cuda()
    weights @ weights
    end.record()
    wait()
    return begin.elapsed_time(end) > fake_cuda.MATMUL - 1e-6


def ask_until_it_is_done():
    """Wait for the current stream by polling an event."""
    event = torch.Event("cuda")
    event.record()
    while not event.query():
        pass


def a_stream_that_waits():
    """Return a stream that waits for the current one."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return stream


def device_in_a_block():
    """Return the current device inside a block for another device, and after it."""
    with torch.cuda.device(1):
        within = torch.cuda.current_device()
    return within, torch.cuda.current_device()


def data_parallel(images):
    """Return the gradient of a layer that ran on both GPUs."""
    layer = torch.nn.Linear(2, 2).cuda()
    torch.nn.DataParallel(layer)(images).sum().backward()
    return layer.weight.grad


HELPERS = [cross_entropy, DataLoader, Linear, elapsed, data_parallel]
HELPERS += [a_stream_that_waits, ask_until_it_is_done, device_in_a_block]
NAMES = {"torch": torch, "time": time}
NAMES |= {helper.__name__: helper for helper in HELPERS}


def tensors():
    """Return the tensors named in RULES; without a second GPU, g1 is on the first."""
    second = torch.device("cuda", torch.cuda.device_count() - 1)
    return {
        "g0": torch.ones(2, device="cuda:0"),
        "g1": torch.ones(2, device=second),
        "c": torch.ones(2),
        "n0": torch.ones((), device="cuda"),
        "nc": torch.ones(()),
        "i0": torch.tensor([0, 1]).cuda(),
        "ic": torch.tensor([0, 1]),
    }


def words_of_the_kernel(expression):
    """Return why PyTorch's kernel refuses one of TEXTS, without using a GPU."""
    operation, *arguments = TEXTS[expression]
    try:
        operation._op_dk(torch._C.DispatchKey.CUDA, *arguments)
    except RuntimeError as error:
        return str(error).replace("meta", "cuda:0")
    return f"{expression} is not refused"


def asked_of(gpus):
    """Return the (expression, text) pairs of RULES that `gpus` real GPUs must meet."""
    kept = []
    for expression, expected in RULES:
        is_of_fakes = any(text in expected for text in OF_FAKES)
        takes_two = SECOND.search(f"{expression} {expected}")
        if not is_of_fakes and (gpus > 1 or not takes_two):
            kept.append((expression, expected))
    return kept


def evaluate(rules):
    """Return {expression: error} with the GPUs' results of `rules` and TEXTS."""
    NAMES["datetime"] = datetime.datetime  # what a script would import now
    square = {"g": torch.ones(2, 2).cuda(), "c": torch.ones(2, 2)}
    found = {}
    for expression in [*dict(rules), *TEXTS]:
        torch.cuda.set_device(0)
        names = square if expression in TEXTS else tensors()
        try:
            result = eval(expression, NAMES | names)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            result = error
        found[expression] = str(getattr(result, "device", result))
    return found


if __name__ == "__main__":
    SIDE = BUSY
    with open(sys.argv[1], "w") as file:
        json.dump(evaluate(asked_of(torch.cuda.device_count())), file)
