"""Promise: every rank needs the memory, and sends the bytes, that the page says."""

from conftest import ROOT
from tools.bench import memory
from tools.run.stages import MNIST, RESUMES


def rows_of_the_page():
    """Return {stage: the cells that follow} of the table in SCALING.md."""
    found = {}
    for line in (ROOT / "SCALING.md").read_text().splitlines():
        name, *cells = line.strip("| ").split(" | ")
        if name.strip("`") in MNIST.values():
            found[name.strip("`")] = cells
    return found


def test_every_stage_stores_what_the_page_says():
    """The layer in use is what FSDP does not save on, and tensor parallelism does."""
    found = {stage: memory.measure(stage) for stage in memory.MEASURED}
    assert [*found, *RESUMES] == list(MNIST.values())
    page = rows_of_the_page()
    assert list(page) == list(found)
    for stage, ranks in found.items():
        parameters = [sizes["parameters"] for sizes in ranks]
        assert [sizes["gradients"] for sizes in ranks] == parameters
        totals = [2 * sizes["parameters"] + sizes["Adam"] for sizes in ranks]
        for numbers, cell in (parameters, page[stage][1]), (totals, page[stage][2]):
            assert " and ".join(f"{n:,}" for n in dict.fromkeys(numbers)) == cell
    for stage, width in ("04_ddp", 128), ("07_fsdp", 128), ("08_tensor_parallel", 64):
        assert [sizes["layer"] for sizes in found[stage]] == [4 * 785 * width] * 2


def test_every_stage_sends_what_the_page_says():
    """The bytes of the messages that tests/beyond counts, one rank's, one direction.

    The copy of a batch from the CPU to a GPU is in no row. The images that stage 3
    sends on from its first GPU to the second one are.
    """
    first = 785 * 128
    last = 129 * 10
    activations = 64 * 128
    outputs = 64 * 10
    column = (785 * 64 + 65 * 10) / 2  # the half of half a network that a rank stores
    expected = {
        "01_cpu": 0,
        "02_single_gpu": 0,
        "03_dp": 4 * (first + last) + 32 * 784 + 4 * outputs / 2,
        "04_ddp": 4 * (first + last),
        "05_ddp_inference": 4 * (first + last),
        "06_model_parallel": 4 * (activations + outputs),
        "07_fsdp": 4 * 3 * (first + last) / 2,
        "08_tensor_parallel": 4 * 640,
        "09_pipeline": 4 * 64 * 128,
        "10_hybrid": 4 * (3 * column + 320),
    }
    sent = {}
    for stage, cells in rows_of_the_page().items():
        sent[stage] = int(cells[3].replace(",", ""))
    assert sent == expected


def test_memory_takes_nproc_and_args(monkeypatch):
    monkeypatch.setenv("NPROC", "4")
    monkeypatch.setenv("ARGS", "--hidden 132")
    found = [sizes["parameters"] for sizes in memory.measure("08_tensor_parallel")]
    assert found == [4 * (785 * 33 + 330 + 10)] * 4
    last = memory.measure("09_pipeline")[1]  # on two ranks, always
    assert last["parameters"] == 4 * 1330
