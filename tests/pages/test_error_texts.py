"""Promise: an error text that a page quotes is one that the installed packages print.

A page quotes an error text as inline code of three words or more. Numbers, names in
quotation marks, devices and paths in it are placeholders. What a generated part of a
page shows is not looked up, because it comes from a run.
"""

import ast
import mmap
import re
import sys
import sysconfig
from pathlib import Path

import torch
import torchvision

from conftest import ROOT, call

UNWRITTEN = re.compile(r"^(<!-- generated: | *```).*?^(<!-- end -->| *```$)", re.M | re.S)
COMMAND = re.compile(r"[-.<]|(make|sudo|sbatch|scontrol|ps|py-spy|diff) |[A-Z_]+=")
PREFIX = re.compile(r"^(\w+Error|error|CUDA error): ")
PLACEHOLDER = re.compile(r"\"[^\"]*\"|'[^']*'|--\S+|\b(?:RANK|cpu)\b|\S*[\d…]\S*")
ADJACENT = re.compile(rb'"\s+f?"')  # two string literals that Python joins
# The texts of others than the packages that pip has installed.
ELSEWHERE = {
}


def is_code(text):
    """Return whether an inline code is a command, an option or Python."""
    text = text.replace("…", "...")
    for whole in (text, f"{text} pass", f"{text} ..."):
        try:
            ast.parse(whole)
        except SyntaxError:
            continue
        return True
    return COMMAND.match(text) is not None


def quoted():
    """Return the error texts that the pages quote, sorted."""
    names = call(["git", "ls-files", "-co", "--exclude-standard", "*.md"]).stdout
    found = set()
    for name in names.splitlines():
        text = UNWRITTEN.sub("", (ROOT / name).read_text())
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
    return [part.encode() for part in parts if part == longest or " " in part]


def installed():
    """Yield what the packages can print: Python's sources, then each shared library."""
    standard = Path(sysconfig.get_path("stdlib"))
    packages = Path(torch.__file__).parents[1]
    sources = [*Path(torch.__file__).parent.rglob("*.py"), *ROOT.glob("tools/**/*.py")]
    sources += Path(torchvision.__file__).parent.rglob("*.py")
    for file in standard.rglob("*.py"):
        if not {"site-packages", "test"} & set(file.parts):
            sources.append(file)
    yield ADJACENT.sub(b"", b"\n".join(file.read_bytes() for file in sources))
    files = [*packages.glob("torch/lib/lib*.so"), Path(sys.executable).resolve()]
    files += packages.glob("nvidia/*/lib/libnccl.so*")
    files += packages.glob("nvidia/*/lib/libcudart.so*")
    files += Path(sysconfig.get_config_var("LIBDIR")).glob("libpython3*.so*")
    for file in files:
        with open(file, "rb") as opened:
            yield mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def test_every_error_text_that_a_page_quotes_is_in_the_packages():
    texts = quoted()
    missing = {text: set(pieces(text)) for text in texts}
    import time
    for content in installed():
        t=time.time()
        for left in missing.values():
            left -= {piece for piece in left if content.find(piece) >= 0}
        print(len(content)/1e6, time.time()-t)
    unknown = {text: left for text, left in missing.items() if left}
    for t in unknown.items(): print(t)
    print(len(texts))
    assert 0
