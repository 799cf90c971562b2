"""Which images each rank of a run took: `ImageRun`.

Its methods `expect_...` raise Wrong where the script is wrong.
"""

from dataclasses import dataclass

from tools.lab.run_record import Limit, RunRecord, Wrong
from tools.lab.setting import Setting


@dataclass(kw_only=True, eq=False)
class ImageRun(RunRecord):
    """The record of a run of a script that trains on MNIST, by an ImageRecorder."""

    setting: Setting  # how the script was run

    @property
    def epochs(self):
        """Return how many epochs the run was to train."""
        return self.setting.epochs - self.setting.resume

    def passes(self, rank=0, train=True):
        """Return the indices of the images that reached the network: a list per pass.

        With `train`, the training images of passes with gradients. Otherwise the test
        images of all passes.
        """
        found = []
        for event in self.of("pass", rank):
            images = [i for is_train, i in event["images"] if is_train == train]
            if images and (event["grad"] or not train):
                found.append(images)
        return found

    def training_passes(self, rank=0):
        """Return the events of the passes that `passes` returns the images of."""
        found = []
        for event in self.of("pass", rank):
            if event["grad"] and any(is_train for is_train, _ in event["images"]):
                found.append(event)
        return found

    def in_epochs(self, passes):
        """Return the passes of a rank as one list per epoch, equally long.

        There are more lists than epochs where some passes are left over.
        """
        size = len(passes) // self.epochs or 1
        return [passes[n : n + size] for n in range(0, len(passes), size)]

    def trained(self):
        """Return the training images that reached each rank's network.

        A list for each rank of a list for each epoch of a list for each pass. Raises
        Wrong where the epochs of a rank differ in length, Limit if no image was seen.
        """
        found = [self.in_epochs(self.passes(rank)) for rank in self.ranks]
        if not any(found):
            if not self.rows:
                raise Wrong(
                    "The run ends without an error, but it has not trained: no image "
                    "reached the network, and metrics.csv has no epoch."
                )
            raise Limit(
                "No training image was seen to reach a network: the lab looks at what "
                "is given to an nn.Module, N x 28 x 28 or N x 784, one image a row."
            )
        for rank, passes in enumerate(found):
            if len(passes) != self.epochs:
                count = sum(map(len, passes))
                raise Wrong(
                    f"In {self.epochs} epochs rank {rank} trained on {count} batches: "
                    "not as many in each."
                )
        return found

    def expect_partition(self, twice=0):
        """Raise Wrong unless in each epoch one rank uses each training image, once.

        So many images may be used `twice`, as DistributedSampler does.
        """
        train, _ = self.setting.images
        found = self.trained()
        for epoch in range(self.epochs):
            parts = [flat(passes[epoch]) for passes in found]
            where = f"In epoch {epoch + 1}"
            expect_no_overlap(parts, twice, where)
            together = flat(parts)
            distinct = len(set(together))
            if distinct != train:
                raise Wrong(
                    f"{where} the ranks together saw {distinct} of {train} training "
                    "images."
                )
            if len(together) > train + twice:
                raise Wrong(
                    f"{where} the ranks trained on {len(together)} images, of which "
                    f"there are {train}: on some more than once, or in more epochs."
                )

    def expect_new_order(self):
        """Raise Wrong where a rank has the same order of images in epochs 1 and 2."""
        for rank, (first, second, *_) in enumerate(self.trained()):
            if flat(first) == flat(second):
                raise Wrong(
                    "Epoch 2 has the images in the order of epoch 1: rank "
                    f"{rank} begins with images {first[0][:4]} … in both."
                )

    def expect_evaluation_partition(self):
        """Raise Wrong unless the ranks share the test images out.

        Those left over, where the number of ranks does not divide that of the images,
        may be used twice to make parts equally large, or be evaluated by all ranks. A
        rank has the same part in all epochs.
        """
        _, test = self.setting.images
        ranks = len(self.ranks)
        parts = [set(flat(self.passes(rank, train=False))) for rank in self.ranks]
        distinct = len(set().union(*parts))
        if distinct != test:
            raise Wrong(
                f"The ranks together evaluate {distinct} of {test} test images."
            )
        sizes = [len(part) for part in parts]
        twice = sum(sizes) - test
        left_over = test % ranks
        allowed = max(-test % ranks, left_over * (ranks - 1))
        if twice > allowed or max(sizes) - min(sizes) >= ranks:
            told = ", ".join(map(str, sizes[:-1]))
            raise Wrong(
                f"The ranks do not share the {test} test images out: they evaluate "
                f"{told} and {sizes[-1]} different ones."
            )


def flat(lists):
    """Return the items of lists in one list."""
    return [item for items in lists for item in items]


def expect_no_overlap(parts, twice, where):
    """Raise Wrong where two ranks trained on more than `twice` images in common."""
    for rank, part in enumerate(parts):
        for other in range(rank):
            common = len(set(part) & set(parts[other]))
            if common > twice:
                raise Wrong(
                    f"{where} rank {rank} trained on {common} images that rank {other} "
                    f"trained on too (of its {len(part)})."
                )
