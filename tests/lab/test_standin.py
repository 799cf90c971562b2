"""Promise: pretended GPUs refuse what CUDA refuses when devices mix, and nothing else.

The rules: https://docs.pytorch.org/docs/stable/notes/cuda.html, and the messages of
ATen's TensorIterator and indexing.
"""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tools.lab import standin
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
    standin.gpus(2, lambda *_, **__: None)
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
