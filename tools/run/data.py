"""Fill data/mnist with all of MNIST: `python -m tools.run.data [FROM]`.

The stages use data/sample, unless they get another MNIST root: DATA=data/mnist.
"""

import os
import shutil
import socket
import tempfile
from pathlib import Path

from tools.run.stages import ROOT, refuse, refuse_unwritable

FULL = ROOT / "data" / "mnist"
SAMPLE = ROOT / "data" / "sample"
FILES = {  # name -> how it begins, bytes of its IDX header, and bytes an item
    "train-images-idx3-ubyte": (b"\0\0\x08\x03", 16, 28 * 28),
    "train-labels-idx1-ubyte": (b"\0\0\x08\x01", 8, 1),
    "t10k-images-idx3-ubyte": (b"\0\0\x08\x03", 16, 28 * 28),
    "t10k-labels-idx1-ubyte": (b"\0\0\x08\x01", 8, 1),
}


def check(root):
    """Return how many training and how many test images the MNIST root `root` holds.

    Raises ValueError, with a message that names the file, where one of the four is
    missing, cut short or another, or there is not one label for each image.
    """
    counts = []
    for name, (magic, header, item) in FILES.items():
        path = Path(root) / "MNIST" / "raw" / name
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        content = path.read_bytes()
        if not content.startswith(magic):
            raise ValueError(f"{path} is damaged: it begins as no such file does")
        counts.append(int.from_bytes(content[4:8], "big"))
        expected = header + counts[-1] * item
        if len(content) != expected:
            why = f"{len(content)} bytes instead of {expected}"
            raise ValueError(f"{path} is damaged: {why}")
        if "labels" in name and counts[-1] != counts[-2]:
            why = f"{counts[-1]} labels for {counts[-2]} images"
            raise ValueError(f"{path} is another: {why}")
    return counts[0], counts[2]


def verify(root):
    """Do what `check` does, but end the program with one line if it fails."""
    try:
        return check(root)
    except (ValueError, OSError) as error:
        advice = "DATA=data/sample, or 'make data' and DATA=data/mnist"
        refuse(f"no MNIST in {shown(root)} ({error}): {advice}")


def shown(path):
    """Return a path as a person types it: relative to the current folder if below."""
    path = Path(path).absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def tensors(root, train=True):
    """Return the training or the test part of an MNIST root as the stages make it.

    A TensorDataset of images, N x 28 x 28, uint8, and labels, N, int64. Raises
    RuntimeError where `root` holds no MNIST.
    """
    from torch.utils.data import TensorDataset
    from torchvision.datasets import MNIST

    part = MNIST(root, train=train)
    return TensorDataset(part.data, part.targets)


def fill(root, given):
    """Make an MNIST root of .gz files, paths, and a download of those that lack.

    torchvision looks at the MD5 of each. Returns what `check` does.
    """
    from torchvision.datasets import MNIST  # which takes seconds

    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for path in given:
        shutil.copy(path, raw)
    try:
        MNIST(root, download=True)
        return check(root)
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        advice = "FROM=DIR takes the four official .gz files from DIR"
        refuse(f"{reason}; {advice}. The stages use data/sample.")


def main(source):
    """Fill data/mnist, from a folder if one is given.

    Whatever goes wrong, it is complete afterwards, or as before.
    """
    given = list(Path(source).glob("*.gz")) if source else []
    if source and not given:
        refuse(f"FROM={source}: there is no .gz file of MNIST")
    refuse_unwritable(FULL.parent, "DATA=DIR names an MNIST root elsewhere")
    socket.setdefaulttimeout(10)  # seconds without an answer
    with tempfile.TemporaryDirectory(dir=FULL.parent, prefix=".mnist-") as folder:
        train, test = fill(Path(folder) / "mnist", given)
        shutil.rmtree(FULL, ignore_errors=True)
        os.replace(Path(folder) / "mnist", FULL)
    print(f"data/mnist: {train} training and {test} test images, with DATA=data/mnist")
