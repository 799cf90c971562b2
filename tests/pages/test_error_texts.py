"""Promise: an error text that a page quotes is one that the installed packages print.

A page quotes an error text as inline code of three words or more. Numbers, devices and
names in quotation marks are placeholders. What a generated part of a page shows comes
from a run, and is not looked up.
"""

import ast
import itertools
import mmap
import re
import sysconfig
from pathlib import Path

import pytest
import torch
import torchvision

from conftest import ROOT

PAGES = "*.md", "0*/*.md", "beyond/**/*.md", "exercises/*.md"
UNWRITTEN = r"(?ms)^(<!-- generated: | *```).*?^(<!-- end -->| *```$)"
COMMAND = re.compile(
    r"[-.<]|(make|time|python|sudo|sbatch|scontrol|ps|py-spy|diff) |[A-Z_]+="
)
PREFIX = re.compile(r"^(\w+Error|error|CUDA error): ")
PLACEHOLDER = re.compile(
    r"\"[^\"]*\"|'[^']*'|--\S+|wrapper_\w+|\b(?:RANK|cpu)\b|\S*[\d…]\S*"
)
ELSEWHERE = {  # who else prints a text that is in no installed package
    "Duplicate GPU detected": "an older NCCL",
    "No space left on device": "the kernel",
    "certificate verify failed": "OpenSSL",
    "unsupported format string passed to DTensor.__format__": "Python, in C",
}
# These are put together as they are raised, so no file has them as a whole.
ASSEMBLED = b"""Attempting to deserialize object on a CUDA device but \
torch.cuda.is_available() is False
PytorchStreamReader failed reading zip archive: failed finding central directory"""


def is_code(text):
    """Return whether an inline code is a command, an option or Python."""
    for whole in (text, f"{text} pass"):
        try:
            ast.parse(whole.replace("…", "..."))
        except SyntaxError:
            continue
        return True
    return COMMAND.match(text) is not None


def quoted():
    """Return the error texts that the pages quote, sorted."""
    found = set()
    for page in itertools.chain(*(ROOT.glob(name) for name in PAGES)):
        text = re.sub(UNWRITTEN, "", page.read_text())
        for code in re.findall(r"`([^`]+)`", text):
            code = " ".join(code.split())
            if len(code.split()) >= 3 and not is_code(code):
                found.add(code)
    return sorted(found)


def pieces(text):
    """Return the literal parts of an error text that are long enough to look up."""
    parts = PLACEHOLDER.split(PREFIX.sub("", text))
    parts = [part.strip(" .,:;!()[]") for part in parts]
    longest = max(parts, key=len)
    return {part.encode() for part in parts if part == longest or " " in part}


def sources():
    """Return the Python sources of PyTorch, torchvision and Python, joined."""
    files = [*Path(torch.__file__).parent.rglob("*.py")]
    files += Path(torchvision.__file__).parent.rglob("*.py")
    for file in Path(sysconfig.get_path("stdlib")).rglob("*.py"):
        if not {"site-packages", "test"} & set(file.parts):
            files.append(file)
    text = b"\n".join(file.read_bytes() for file in files)
    return re.sub(rb'"\s+f?"', b"", text)  # literals that Python joins


def libraries():
    """Yield the shared libraries of PyTorch, NCCL and CUDA's runtime."""
    packages = Path(torch.__file__).parents[1]
    names = ["torch/lib/lib*.so", "nvidia/*/lib/libnccl.so*"]
    names.append("nvidia/*/lib/libcudart.so*")
    for file in itertools.chain(*(packages.glob(name) for name in names)):
        with open(file, "rb") as opened:
            yield mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.skipif(torch.version.cuda is None, reason="PyTorch without CUDA's texts")
def test_every_error_text_that_a_page_quotes_is_in_the_packages():
    missing = {text: pieces(text) for text in quoted()}
    for content in itertools.chain([sources(), ASSEMBLED], libraries()):
        for left in missing.values():
            left -= {piece for piece in left if content.find(piece) >= 0}
    unknown = {text for text, left in missing.items() if left}
    assert unknown == ELSEWHERE.keys(), "nobody prints these"
    assert len(missing) - len(unknown) >= 45
