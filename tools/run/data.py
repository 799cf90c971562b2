"""Put MNIST where torchvision looks for it: `python -m tools.run.data [FROM]`."""

import os
import shutil
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tools.run.stages import ROOT, refuse, refuse_unwritable

FULL = ROOT / "data" / "mnist"
SAMPLE = ROOT / "data" / "sample"
OFFLINE = ROOT / "data" / ".offline"  # a download failed: do not wait for it each run
FILES = {  # name -> bytes of its IDX header, and bytes an item
    "train-images-idx3-ubyte": (16, 28 * 28),
    "train-labels-idx1-ubyte": (8, 1),
    "t10k-images-idx3-ubyte": (16, 28 * 28),
    "t10k-labels-idx1-ubyte": (8, 1),
}
SECONDS = 10  # without an answer, before a download is given up


def check(root):
    """Return how many training and how many test images the MNIST root `root` holds.

    Raises ValueError, with a message that names the file, where one of the four is
    missing, is cut short or does not go with the others.
    """
    counts = []
    for name, (header, item) in FILES.items():
        path = Path(root) / "MNIST" / "raw" / name
        if not path.is_file():
            raise ValueError(f"{path} is missing")
        with open(path, "rb") as file:
            start = file.read(8)
        # 0, 0, 8 for unsigned bytes, the number of dimensions, and the first of them
        if len(start) < 8 or start[:4] != bytes([0, 0, 8, header // 4 - 1]):
            raise ValueError(f"{path} is no MNIST file")
        counts.append(int.from_bytes(start[4:], "big"))
        size = path.stat().st_size
        expected = header + counts[-1] * item
        if size != expected:
            raise ValueError(f"{path} is damaged: {size} bytes instead of {expected}")
    train, train_labels, test, test_labels = counts
    if (train, test) != (train_labels, test_labels):
        labels = f"{train_labels} and {test_labels} labels"
        raise ValueError(f"{root} has {train} and {test} images but {labels}")
    return train, test


def shown(path):
    """Return a path as a person types it: relative to the current folder if below."""
    path = Path(path).absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def fetch(source=None):
    """Fill data/mnist from a folder `source` of the official .gz files, or by download.

    A file whose MD5 is not the official one is refused by name. Whatever goes wrong,
    data/mnist is complete afterwards or as it was before; raises OSError or ValueError.
    """
    from torchvision.datasets import MNIST
    from torchvision.datasets.utils import check_integrity, extract_archive

    FULL.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FULL.parent, prefix=".mnist-") as folder:
        raw = Path(folder) / "mnist" / "MNIST" / "raw"
        raw.mkdir(parents=True)
        if source:
            for name, md5 in MNIST.resources:
                path = Path(source) / name
                if not path.is_file():
                    raise ValueError(f"{path} is missing")
                if not check_integrity(path, md5):
                    raise ValueError(f"{path} has a wrong MD5: it is not MNIST's")
                extract_archive(path, raw)
        else:
            socket.setdefaulttimeout(SECONDS)
            print("downloading MNIST (12 MB) ...", flush=True)
            try:
                MNIST(raw.parents[1], download=True)
            except (RuntimeError, OSError) as error:
                raise OSError("the download of MNIST failed") from error
        check(raw.parents[1])
        shutil.rmtree(FULL, ignore_errors=True)
        os.replace(raw.parents[1], FULL)
    OFFLINE.unlink(missing_ok=True)


def choose():
    """Return the MNIST root for a run that names none: data/mnist, or data/sample.

    Downloads MNIST the first time. Prints a line if it is the sample. The root is not
    checked: see `verify`.
    """
    if FULL.exists():
        return FULL
    if not OFFLINE.exists() and os.access(FULL.parent, os.W_OK):
        try:
            fetch()
            return FULL
        except (OSError, ValueError) as error:
            print(f"{error}; 'make data FROM=DIR' takes the four .gz files from DIR")
            with suppress(OSError):
                OFFLINE.touch()
    print(
        "data/sample: 4000 training and 1000 test images of MNIST's 60000 and 10000; "
        "'make data' fetches them all"
    )
    return SAMPLE


def verify(root):
    """Do what `check` does, but end the program with one line if it fails."""
    try:
        return check(root)
    except (ValueError, OSError) as error:
        advice = "run 'make data', or use DATA=data/sample"
        refuse(f"no MNIST in {shown(root)} ({error}): {advice}")


def tensors(root, train=True):
    """Return the training or the test part of an MNIST root as the stages make it.

    A TensorDataset of images, N x 28 x 28, uint8, and labels, N, int64. Raises
    RuntimeError where `root` holds no MNIST.
    """
    from torch.utils.data import TensorDataset
    from torchvision.datasets import MNIST

    part = MNIST(root, train=train)
    return TensorDataset(part.data, part.targets)


def main():
    source = " ".join(sys.argv[1:])
    try:
        counts = check(FULL)
    except ValueError:
        refuse_unwritable(FULL.parent, "DATA=DIR names an MNIST root elsewhere")
        try:
            fetch(source)
        except (OSError, ValueError) as error:
            hint = "" if source else "; FROM=DIR takes the four .gz files from DIR"
            refuse(f"{error}{hint}. The stages use data/sample until then.")
        counts = check(FULL)
    print("data/mnist: {} training and {} test images".format(*counts))


if __name__ == "__main__":
    main()
