"""Cut small MNIST roots from data/sample for the tests, the lab and the benchmark."""

import math
import struct
from pathlib import Path

from tools.run.data import SAMPLE


def write_part(root, part, images, labels):
    """Write `train` or `t10k` of a torchvision MNIST root, from bytes or integers.

    Uses MNIST's IDX format: a magic number, big-endian sizes, then unsigned bytes.
    """
    raw = Path(root) / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    count = len(labels)
    head = struct.pack(">4I", 0x803, count, 28, 28)
    (raw / f"{part}-images-idx3-ubyte").write_bytes(head + bytes(images))
    head = struct.pack(">2I", 0x801, count)
    (raw / f"{part}-labels-idx1-ubyte").write_bytes(head + bytes(labels))


def cut(root, train, test):
    """Return a new torchvision MNIST root with the first images of data/sample.

    Images are repeated if `train` or `test` are more than it has.
    """
    source = SAMPLE / "MNIST" / "raw"
    for part, count in ("train", train), ("t10k", test):
        images = (source / f"{part}-images-idx3-ubyte").read_bytes()[16:]
        labels = (source / f"{part}-labels-idx1-ubyte").read_bytes()[8:]
        times = math.ceil(count / len(labels))
        images = (images * times)[: count * 784]
        write_part(root, part, images, (labels * times)[:count])
    return Path(root)
