"""Promise: every rank needs the memory, and sends the bytes, that the page says."""

import pytest

from conftest import ROOT
from tools.bench import figures, memory
from tools.run.stages import EVERY, RESUMES


def rows_of_the_page():
    """Return {stage: the cells that follow} of the table in SCALING.md."""
    found = {}
    for line in (ROOT / "SCALING.md").read_text().splitlines():
        name, *cells = line.strip("| ").split(" | ")
        if name.strip("`") in EVERY.values():
            found[name.strip("`")] = cells
    return found


def test_every_stage_stores_what_the_page_says(tmp_path, capsys):
    """The layer in use is what FSDP does not save on, and tensor parallelism does."""
    found = memory.measure_all()
    assert [*found, *RESUMES] == list(EVERY.values())
    page = rows_of_the_page()
    assert list(page) == list(found)
    layers = {}
    for stage, ranks in found.items():
        parameters = [sizes["parameters"] for sizes in ranks]
        totals = []
        for sizes in ranks:
            assert sizes["gradients"] == sizes["momentum"] == sizes["parameters"]
            totals.append(sizes["parameters"] + sizes["gradients"] + sizes["Adam"])
        for numbers, cell in (parameters, page[stage][1]), (totals, page[stage][2]):
            assert " and ".join(f"{n:,}" for n in dict.fromkeys(numbers)) == cell
        layers[stage] = [sizes["layer"] for sizes in ranks]
    assert layers["04_ddp"] == layers["07_fsdp"] == [4 * 785 * 128] * 2
    assert layers["08_tensor_parallel"] == [4 * 785 * 64] * 2
    assert capsys.readouterr().out.count("   50.0%\n") == 4
    figures.draw_memory(found, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 10_000


def test_every_stage_sends_what_the_page_says():
    """The bytes of the messages that tests/beyond counts, one rank's.

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
        "03_dp": 4 * 2 * (first + last) + 32 * 784 + 4 * 2 * outputs / 2,
        "04_ddp": 4 * (first + last),
        "05_ddp_inference": 4 * (first + last),
        "06_model_parallel": 4 * 2 * (activations + outputs),
        "07_fsdp": 4 * 3 * (first + last) / 2,
        "08_tensor_parallel": 4 * 640,
        "09_pipeline": 4 * activations,
        "10_hybrid": 4 * (3 * column + 320),
    }
    sent = {}
    for stage, cells in rows_of_the_page().items():
        sent[stage] = int(cells[3].replace(",", ""))
    assert sent == expected


def test_memory_of_a_wider_network():
    one, other = memory.measure("09_pipeline", ["--hidden", "131"])
    assert one["parameters"] == 4 * 785 * 131
    steps = 2 * 4  # of its two tensors
    assert other["Adam"] == 2 * 4 * 132 * 10 + steps
    with pytest.raises(SystemExit, match="^01_cpu failed:\n(.|\n)*--hiden"):
        memory.measure("01_cpu", ["--hiden", "9"])
