"""Fill data/mnist with all of MNIST: `make data`.

The stages use data/sample unless DATA=data/mnist gives them another MNIST root.
"""

import os
import shutil
import socket
import tempfile
from pathlib import Path

from tools.run.stages import ROOT, refuse, refuse_unwritable

FULL = ROOT / "data" / "mnist"
SAMPLE = ROOT / "data" / "sample"
FILES = {  # name -> magic number, bytes of the IDX header, bytes per item
    "train-images-idx3-ubyte": (b"\0\0\x08\x03", 16, 28 * 28),
    "train-labels-idx1-ubyte": (b"\0\0\x08\x01", 8, 1),
    "t10k-images-idx3-ubyte": (b"\0\0\x08\x03", 16, 28 * 28),
    "t10k-labels-idx1-ubyte": (b"\0\0\x08\x01", 8, 1),
}


def check(root):
    """Return the numbers of training and test images in the MNIST root `root`.

    Raises ValueError, naming the file, if one of the four files is missing, truncated
    or of another kind, or if the numbers of labels and images differ.
    """
    counts = []
    for name, (magic, header, item) in FILES.items():
        path = Path(root) / "MNIST" / "raw" / name
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        content = path.read_bytes()
        if not content.startswith(magic):
            raise ValueError(f"{path} is damaged: its header is wrong")
        counts.append(int.from_bytes(content[4:8], "big"))
        expected = header + counts[-1] * item
        if len(content) != expected:
            why = f"{len(content)} bytes instead of {expected}"
            raise ValueError(f"{path} is damaged: {why}")
        if "labels" in name and counts[-1] != counts[-2]:
            why = f"{counts[-1]} labels for {counts[-2]} images"
            raise ValueError(f"{path} does not match its images: {why}")
    return counts[0], counts[2]


def verify(root):
    """Return what `check` returns, or exit with a one-line message if it fails."""
    try:
        return check(root)
    except (ValueError, OSError) as error:
        advice = "Use DATA=data/sample, or 'make data' and DATA=data/mnist"
        refuse(f"no MNIST in {shown(root)} ({error}). {advice}")


def shown(path):
    """Return a path as a user would type it: relative if below the current folder."""
    path = Path(path).absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def tensors(root, train=True):
    """Return the training or test set of an MNIST root as the stages build it.

    A TensorDataset of images (N x 28 x 28, uint8) and labels (N, int64). Raises
    RuntimeError if `root` contains no MNIST.
    """
    from torch.utils.data import TensorDataset
    from torchvision.datasets import MNIST

    part = MNIST(root, train=train)
    return TensorDataset(part.data, part.targets)


def fill(root, given):
    """Create an MNIST root from .gz files, a list of paths; download missing ones.

    torchvision checks each file's MD5. Returns what `check` returns.
    """
    from torchvision.datasets import MNIST  # importing it takes seconds

    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for path in given:
        shutil.copy(path, raw)
    try:
        MNIST(root, download=True)
        return check(root)
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        advice = "FROM=DIR reads the four official .gz files from DIR"
        refuse(f"{reason}; {advice}. Until then, the stages use data/sample.")


def main(source):
    """Fill data/mnist, from the folder `source` if given.

    If anything fails, data/mnist stays as it was.
    """
    given = list(Path(source).glob("*.gz")) if source else []
    if source and not given:
        refuse(f"FROM={source}: no .gz files of MNIST there")
    refuse_unwritable(FULL.parent, "DATA=DIR can name an MNIST root elsewhere")
    socket.setdefaulttimeout(10)  # seconds without an answer
    with tempfile.TemporaryDirectory(dir=FULL.parent, prefix=".mnist-") as folder:
        train, test = fill(Path(folder) / "mnist", given)
        shutil.rmtree(FULL, ignore_errors=True)
        os.replace(Path(folder) / "mnist", FULL)
    print(f"data/mnist: {train} training, {test} test images. Use: DATA=data/mnist")
