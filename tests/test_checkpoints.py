"""Promise: what one stage saved, every stage loads."""

from torch.utils.data import DataLoader

from conftest import EVEN, ROOT, rows, weights
from tools.stages import STAGES, load


def test_every_checkpoint_in_every_stage(trained, data):
    first = load("01_cpu")  # evaluates all of them: no stage differs in how it counts
    loader = DataLoader(first.MNIST(data(EVEN), train=False), 1000, collate_fn=tuple)
    pairs = 0
    for saved in STAGES:
        out = trained(saved)
        expected = tuple(rows(out)[-1][2:])
        for stage in STAGES:
            model = load(stage).Net(hidden=128)
            model.load_state_dict(weights(out), strict=True)
            assert first.evaluate(model, loader) == expected, (saved, stage)
            pairs += 1
    assert pairs == 36


def test_the_network_is_the_one_of_the_readme():
    model = load("01_cpu").Net(hidden=128)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 784 * 128 + 128 + 128 * 10 + 10
    assert (ROOT / "01_cpu" / "mnist.py").exists()
