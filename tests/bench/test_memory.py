"""Promise: every rank needs the memory, and sends the bytes, that the page says."""

import pytest

from tools.bench import figures, memory
from tools.run.stages import EVERY


def test_every_stage_holds_what_the_formula_says(tmp_path):
    """With 131 hidden units, which halves share unevenly."""
    found = {stage: memory.measure(stage, 131) for stage in memory.MEASURED}
    for stage, ranks in found.items():
        for rank, sizes in enumerate(ranks):
            assert memory.formula(stage, 131, rank).items() <= sizes.items()
    layers = {}  # in use; for FSDP more than it keeps of the whole model
    for stage, ranks in found.items():
        layers[stage] = [sizes["layer"] for sizes in ranks]
    assert layers["04_ddp"] == layers["07_fsdp"] == [4 * 785 * 131] * 2
    assert layers["08_tensor_parallel"] == [4 * 785 * 66, 4 * 785 * 65]
    figures.draw_memory(found, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 10_000


def test_the_table_of_all_stages():
    """The bytes of the messages that tests/beyond counts, one rank's."""
    rows = [line.split(" | ") for line in memory.overview().splitlines()[2:]]
    stages = [row[0].strip("| `") for row in rows]
    assert stages == memory.MEASURED
    assert [*memory.MEASURED, *memory.SAME_AS] == list(EVERY.values())
    numbers = [int(row[4].replace(",", "")) for row in rows]
    sent = dict(zip(stages, numbers, strict=True))
    first = 785 * 128
    last = 129 * 10
    assert sent["04_ddp"] == 4 * (first + last)
    assert sent["07_fsdp"] == 4 * (2 * (first // 2 + last // 2) + (first + last) // 2)
    assert sent["08_tensor_parallel"] == 4 * 640
    assert sent["09_pipeline"] == 4 * 4 * 16 * 128
    first = 785 * 64
    last = 65 * 10
    shards = 2 * (first // 2 + last // 2) + (first + last) // 2
    assert sent["10_hybrid"] == 4 * (shards + 320)
    assert rows[8][2:4] == ["401,920 and 5,160", "1,607,688 and 20,648"]


def test_memory_refuses_what_is_no_width(monkeypatch):
    monkeypatch.setenv("ARGS", "--hidden 0")
    with pytest.raises(SystemExit, match="^ARGS='--hidden 0': memory takes the width"):
        memory.main()


def test_memory_that_differs_from_the_formula_is_an_error(monkeypatch, capsys):
    wrong = {**memory.formula("01_cpu", 128, 0), "layer": 7, "gradients": 5}
    monkeypatch.setattr(memory, "measure", lambda stage, hidden: [wrong])
    with pytest.raises(SystemExit, match="^01_cpu, rank 0: by the formula it is"):
        memory.measure_all(128)
    assert "     407,080           5" in capsys.readouterr().out
