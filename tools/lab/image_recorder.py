"""A rank's recorder that knows MNIST: which images reach the network, what it drops."""

import resource

import torch

from onecurve.events import digest, local_part
from tools.lab import fake_cuda
from tools.lab.recorder import Recorder, array

PIXELS = 28 * 28
CLASSES = 10
LARGEST = 2**28  # bytes of a file: a script that prints for ever must not fill the disk


def fingerprints(images):
    """Return which pixels of each image differ from its corner, as bytes.

    They identify an image, whatever data set has it, and however it is scaled.
    """
    with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
        pixels = local_part(images).reshape(-1, PIXELS)
        differ = pixels != pixels[:, :1]
        return [array(row).tobytes() for row in differ]


def known_images(root):
    """Return {fingerprint: (is it for training?, its index)} of MNIST in a folder."""
    from torchvision import datasets  # here: only a rank needs it at once

    found = {}
    for train in True, False:
        images = datasets.MNIST(root, train).data
        for index, fingerprint in enumerate(fingerprints(images)):
            found[fingerprint] = (train, index)
    return found


class ImageRecorder(Recorder):
    """A Recorder of a script that trains on the MNIST of folder/data."""

    def __init__(self, rank, folder, path):
        super().__init__(rank, folder, path)
        self.images = known_images(folder / "data")

    def inputs(self, values):
        """Return which images are among a network's arguments, one row per image."""
        found = []
        for value in values:
            is_batch = isinstance(value, torch.Tensor) and value.dim() > 1
            if is_batch and len(value) * PIXELS == value.numel() > 0:
                found += fingerprints(value)
        return {"images": [self.images[one] for one in found if one in self.images]}

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the last layer makes the scores of ten digits."""
        if args and getattr(module, "out_features", None) == CLASSES:
            self.units(args[0])
        return super().module_call(original, module, *args, **kwargs)

    def units(self, hidden):
        """Before the layer that makes the scores: which units of each image are 0."""
        with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
            zero = local_part(hidden) == 0
            grad = torch.is_grad_enabled()
            self.log.write(
                "units",
                grad=grad,
                zeros=int(array(zero).sum()),  # item() would wait for a GPU
                count=zero.numel(),
                digests=[digest(row) for row in zero] if grad else [],
            )


def record(rank, folder, path, fake=""):
    """Have this process write what it does to folder/rankN; MNIST is in folder/data.

    `path` is the script's. `fake` names a function of tools.lab.fake_cuda, called with
    the function that writes an event.
    """
    recorder = ImageRecorder(rank, folder, path)
    recorder.install()
    if fake:
        getattr(fake_cuda, fake)(recorder.log.write)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
