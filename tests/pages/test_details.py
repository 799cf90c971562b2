"""Promise: code that a page shows, run, prints what the page shows."""

import re

import pytest

from conftest import ROOT, call, command, edited, run
from tools.pages.hangs import patched
from tools.run import ranks
from tools.run.stages import folder, script

DATA = "--data", "data/sample"
OWN = (ROOT / "beyond" / "own_script" / "DETAILS.md").read_text()
BEGIN, *PIECES = re.findall(r"(?s)```python\n(.*?)```", OWN)


def section_of(stage, heading):
    """Return what a stage's details have below a heading."""
    page = (folder(stage) / "DETAILS.md").read_text()
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def written(stage, heading, tmp_path):
    """Write a stage with the diff below a heading; return its path and that section."""
    section = section_of(stage, heading)
    (diff,) = re.findall(r"(?s)```diff\n(.*?)```", section)
    path = tmp_path / stage / "mnist.py"
    path.parent.mkdir()
    path.write_text(patched(script(stage).read_text(), diff))
    return path, section


def epochs(text):
    """Return the losses that are printed in a text, to four digits."""
    return re.findall(r"epoch \d/\d  loss \d+\.\d{4}", text)


@pytest.mark.parametrize(
    ("stage", "heading"),
    [
        ("04_ddp", "A sampler of your own"),
        ("04_ddp", "Workers and pinned memory"),
        ("04_ddp", "`torch.compile` and DDP"),
        ("07_fsdp", "`torch.compile` and FSDP"),
    ],
)
def test_a_diff_gives_the_curve_that_is_shown(stage, heading, tmp_path):
    path, section = written(stage, heading, tmp_path)
    no_compiler = '.compile(backend="aot_eager")'  # which needs none for C++
    path.write_text(path.read_text().replace(".compile()", no_compiler))
    result = run(stage, *DATA, "--out", tmp_path, path=path)
    assert len(epochs(section)) == 3
    assert epochs(result.stdout) == epochs(section), result.stderr


def test_a_grid_saves_what_other_grids_read(tmp_path):
    path, section = written(
        "10_hybrid", "Save on one grid, go on with another", tmp_path
    )
    printed = ""
    for stage, processes, *flags in (
        ("10_hybrid", 4, "--epochs=1"),
        ("10_hybrid", 2, "--epochs=2", "--resume=1"),
        ("12_sharded_checkpoint", 2, "--epochs=3", "--resume"),
    ):
        own = path if stage == "10_hybrid" else None
        flags += [*DATA, "--out", tmp_path]
        result = run(stage, *flags, processes=processes, path=own)
        assert result.returncode == 0, result.stderr
        printed += result.stdout
    assert len(epochs(section)) == 3
    assert epochs(printed) == epochs(section)


@pytest.mark.parametrize("stage", ["04_ddp", "07_fsdp"])
def test_autocast_gives_the_curve_that_is_shown(stage, tmp_path):
    (diff,) = re.findall(r"(?s)```diff\n(.*?)```", OWN)
    before = "".join(re.findall(r"(?m)^-(.*\n)", diff))
    after = "".join(re.findall(r"(?m)^\+(.*\n)", diff))
    path = edited(stage, tmp_path, (before, after))
    result = run(stage, *DATA, "--out", tmp_path, path=path)
    assert epochs(result.stdout) == epochs(OWN), result.stderr


def printed_by_two_ranks(path, code):
    """Write a script, run it, and return what it prints."""
    path.write_text(code)
    result = ranks.run([path], 2)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_gradients_come_through_all_gather(tmp_path):
    section = section_of("04_ddp", "Gradients through `all_gather`")
    (code,) = re.findall(r"(?s)```python\n(.*?)```", section)
    (shown,) = re.findall(r"(?s)```console\n(.*?)```", section)
    assert printed_by_two_ranks(tmp_path / "gather.py", code) == shown


@pytest.mark.parametrize("number", range(len(PIECES)))
def test_a_piece_for_own_scripts_prints_what_is_shown(number, tmp_path):
    _, after = OWN.split(PIECES[number])
    shown = re.match(r"```\n\n```console\n(.*?)```", after, re.DOTALL)[1]
    code = f"{BEGIN}\n{PIECES[number]}\ndist.barrier()\ndist.destroy_process_group()\n"
    assert printed_by_two_ranks(tmp_path / "piece.py", code) == shown


def test_the_lines_for_tensorboard_fit(tmp_path):
    path, _ = written("04_ddp", "Log from one rank", tmp_path)
    compile(path.read_text(), path, "exec")  # TensorBoard is not installed here


def test_the_debugger_stops_one_rank(tmp_path):
    path, section = written("04_ddp", "Stop one rank in the debugger", tmp_path)
    words = command("04_ddp", *DATA, "--epochs=1", "--out", tmp_path, path=path)
    typed = re.findall(r"\(Pdb\) (.+)", section)
    result = call(words, input="\n".join([*typed, ""]))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("(Pdb)") == len(typed) == 4
    for line in re.findall(r"^(?:tensor|\d|->|Type).*", section, re.MULTILINE):
        assert line in result.stdout
    assert "epoch 1/1  loss 1.4999" in result.stdout
