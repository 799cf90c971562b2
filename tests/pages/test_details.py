"""Promise: code on a page prints the output that the page shows.

Each such piece of code is a case in the table CASES.
"""

import re

import pytest
from markdown_it import MarkdownIt

from conftest import ROOT, call, command, run
from onecurve import api
from tools.pages import hangs
from tools.run.edit import patched
from tools.run.stages import folder, script

DATA = "--data", "data/sample"
GRIDS = "Save on one grid, go on with another"
OWN = (ROOT / "beyond" / "own_script" / "DETAILS.md").read_text()
BEGIN, *PIECES = re.findall(r"(?s)```python\n(.*?)```", OWN)


def section_of(stage, heading):
    """Return the section below a heading of a stage's DETAILS.md."""
    page = (folder(stage) / "DETAILS.md").read_text()
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def written(stage, heading, tmp_path):
    """Write a stage with the diff below a heading; return its path and the section."""
    section = section_of(stage, heading)
    (diff,) = re.findall(r"(?s)```diff\n(.*?)```", section)
    path = tmp_path / stage / "mnist.py"
    path.parent.mkdir()
    path.write_text(patched(script(stage).read_text(), diff))
    return path, section


def epochs(text):
    """Return the epochs and losses printed in an output, to four digits."""
    return re.findall(r"epoch \d/\d  loss \d+\.\d{4}", text)


def a_diff_gives_the_curve(tmp_path, stage, heading):
    path, section = written(stage, heading, tmp_path)
    no_compiler = '.compile(backend="aot_eager")'  # needs no C++ compiler
    path.write_text(path.read_text().replace(".compile()", no_compiler))
    result = run(stage, *DATA, "--out", tmp_path, path=path)
    assert len(epochs(section)) == 3
    assert epochs(result.stdout) == epochs(section), result.stderr


def a_grid_saves_what_other_grids_read(tmp_path):
    path, section = written("10_hybrid", GRIDS, tmp_path)
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


def printed_by_two_ranks(path, code):
    """Write a script, run it on two ranks and return its output."""
    path.write_text(code)
    result = api.run([path], 2)
    assert result.returncode == 0, result.stderr
    return result.stdout


def gradients_come_through_all_gather(tmp_path):
    section = section_of("04_ddp", "Gradients through `all_gather`")
    (code,) = re.findall(r"(?s)```python\n(.*?)```", section)
    (shown,) = re.findall(r"(?s)```console\n(.*?)```", section)
    assert printed_by_two_ranks(tmp_path / "gather.py", code) == shown


def a_piece_for_own_scripts_prints(tmp_path, number):
    _, after = OWN.split(PIECES[number])
    shown = re.match(r"```\n\n```console\n(.*?)```", after, re.DOTALL)[1]
    code = f"{BEGIN}\n{PIECES[number]}\ndist.barrier()\ndist.destroy_process_group()\n"
    assert printed_by_two_ranks(tmp_path / "piece.py", code) == shown


def the_debugger_stops_one_rank(tmp_path):
    path, section = written("04_ddp", "Stop one rank in the debugger", tmp_path)
    words = command("04_ddp", *DATA, "--epochs=1", "--out", tmp_path, path=path)
    typed = re.findall(r"\(Pdb\) (.+)", section)
    result = call(words, input="\n".join([*typed, ""]))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("(Pdb)") == len(typed) == 4
    for line in re.findall(r"^(?:tensor|\d|->|Type).*", section, re.MULTILINE):
        assert line in result.stdout
    assert "epoch 1/1  loss 1.4999" in result.stdout


def shown_of_hangs():
    """Return the lines of output shown on the page of hangs."""
    lines = []
    for token in MarkdownIt().parse(hangs.PAGE.read_text()):
        if token.type == "fence" and token.info == "console":
            lines += [line for line in token.content.splitlines() if line[0] != "$"]
    return [line for line in lines if line != "…"]


def pattern(line):
    """Return a regular expression that matches a line of output like this one.

    Numbers of lines, seconds and processes may differ. … matches anything.
    """
    return re.sub(r"\d+", r"\\d+", re.escape(line)).replace("…", ".*")


def runs_that_hang_print(tmp_path):
    printed = "\n".join(hangs.outputs())
    lines = shown_of_hangs()
    assert len(lines) >= 15
    missing = [line for line in lines if not re.search(pattern(line), printed)]
    assert missing == [], "run: python -m tools.pages.hangs"


CASES = {  # name -> check and its arguments, except the folder for files
    "hangs": (runs_that_hang_print,),
    "own sampler": (a_diff_gives_the_curve, "04_ddp", "A sampler of your own"),
    "workers": (a_diff_gives_the_curve, "04_ddp", "Workers and pinned memory"),
    "compile": (a_diff_gives_the_curve, "04_ddp", "`torch.compile` and DDP"),
    "compile FSDP": (a_diff_gives_the_curve, "07_fsdp", "`torch.compile` and FSDP"),
    "grids": (a_grid_saves_what_other_grids_read,),
    "all_gather": (gradients_come_through_all_gather,),
    "debugger": (the_debugger_stops_one_rank,),
}
for number in range(len(PIECES)):
    CASES[f"piece {number}"] = a_piece_for_own_scripts_prints, number


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_code_of_a_page_prints_what_the_page_shows(name, tmp_path):
    check, *arguments = CASES[name]
    check(tmp_path, *arguments)


def test_every_section_with_a_diff_or_an_output_is_run():
    headings = {case[2] for case in CASES.values() if len(case) == 3}
    headings |= {GRIDS, "Stop one rank in the debugger"}
    headings |= {"Gradients through `all_gather`"}
    for stage in "04_ddp", "07_fsdp", "10_hybrid":
        page = (folder(stage) / "DETAILS.md").read_text()
        page = re.sub(r"(?s)<!-- generated.*?<!-- end -->", "", page)
        for section in page.split("\n## ")[1:]:
            if "```diff" in section or "```console" in section:
                assert section.partition("\n")[0] in headings
