"""Promise: the installed packages print the error texts in SYMPTOMS.md.

An error text is inline code of three words or more at the beginning of a row.
"""

import itertools
import mmap
import re
import sysconfig
from pathlib import Path

import torch

from conftest import ROOT

ERROR = re.compile(r"^\| `((?:[^`\s]+ ){2,}[^`]+)`", re.MULTILINE)
PREFIX = re.compile(r"^(\w+Error|error|CUDA error): ")
PLACEHOLDER = re.compile(r"\"[^\"]*\"|'[^']*'|--\S+|\bRANK\b|\bcpu\b|\S*[\d…]\S*")
# These are assembled when raised, or C++'s, so no file contains them in full.
ASSEMBLED = b"""Caught StopIteration in replica
Attempting to deserialize object on a CUDA device
PytorchStreamReader failed reading zip archive: failed finding central directory
expect_autograd_hooks_ INTERNAL ASSERT FAILED
got error: Socket Timeout
terminate called without an active exception"""
# These are in libraries that only CUDA builds of PyTorch have.
OF_CUDA = "Multiple Ranks are", "ProcessGroupNCCL is bound", "Watchdog caught"


def pieces(text):
    """Return an error text's literal parts that are long enough to look up."""
    parts = PLACEHOLDER.split(PREFIX.sub("", text))
    parts = [part.strip(" .,:;!()[]") for part in parts]
    longest = max(parts, key=len)
    return {part.encode() for part in parts if part == longest or " " in part}


def sources():
    """Return the Python sources of PyTorch, torchvision and Python, joined."""
    packages = Path(torch.__file__).parents[1]
    files = [*packages.glob("torch/**/*.py"), *packages.glob("torchvision/**/*.py")]
    for file in Path(sysconfig.get_path("stdlib")).rglob("*.py"):
        if not {"site-packages", "test"} & set(file.parts):
            files.append(file)
    text = b"\n".join(file.read_bytes() for file in files)
    return re.sub(rb'"\s+f?"', b"", text)  # joins adjacent literals


def libraries():
    """Yield the shared libraries of PyTorch, NCCL and the CUDA runtime."""
    packages = Path(torch.__file__).parents[1]
    names = ["torch/lib/lib*.so", "torch/lib/lib*.dylib"]
    names += ["nvidia/*/lib/libnccl.so*", "nvidia/*/lib/libcudart.so*"]
    for file in itertools.chain(*(packages.glob(name) for name in names)):
        with open(file, "rb") as opened:
            yield mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def test_every_error_text_of_a_symptom_is_in_the_packages():
    found = ERROR.findall((ROOT / "docs/SYMPTOMS.md").read_text())
    assert len(found) >= 30
    if torch.version.cuda is None:
        found = [text for text in found if not text.startswith(OF_CUDA)]
    missing = {text: pieces(text) for text in found}
    for content in itertools.chain([sources(), ASSEMBLED], libraries()):
        for left in missing.values():
            left -= {piece for piece in left if content.find(piece) >= 0}
    assert [text for text, left in missing.items() if left] == [], "no longer printed"
