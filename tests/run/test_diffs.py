"""Promise: the diff between two stages contains the lesson and nothing else."""

import ast
import re
import subprocess
import sys

import pytest

from conftest import ENV, ROOT
from tools.run import diffs, essence
from tools.run.stages import BY_NAME, CPU_PROCESSES, EVERY, find_stage, script

LIMITS = {  # maximum number of lines, and of lines changed from the stage before
    "01_cpu": (115, 0),
    "02_single_gpu": (117, 6),
    "03_dp": (118, 5),
    "04_ddp": (142, 45),
    "05_ddp_inference": (153, 17),
    "06_model_parallel": (121, 10),
    "07_fsdp": (155, 40),
    "08_tensor_parallel": (145, 35),
    "09_pipeline": (165, 70),
    "10_hybrid": (165, 45),
    "11_resume": (170, 40),
    "12_sharded_checkpoint": (185, 45),
    "13_gpt": (156, 0),
    "14_data_parallel": (178, 26),
    "15_sequence_parallel": (197, 29),
    "16_pipeline_1f1b": (193, 37),
    "17_context_parallel": (237, 67),
    "18_moe": (175, 21),
    "19_expert_parallel": (229, 58),
    "20_grid": (240, 27),
    "21_lost_rank": (227, 75),
}
COLUMNS = 88
SECTIONS = ["Net", "train_epoch", "evaluate", "report", "save", "main", "parse_args"]
TEXTS = ["draw_batch", "split_heads", "Attention", "MLP", "Block", "Embedding", "GPT"]
TEXTS += ["share_of_loss", "train", "report", "main", "parse_args"]
ADDED = {  # extra sections in stages of the second curve
    "15_sequence_parallel": {"make_plan"},
    "17_context_parallel": {"ring", "pass_on", "PassOn", "ring_attention"},
    "18_moe": {"Experts"},
    "19_expert_parallel": {"Experts", "AllToAll"},
    "20_grid": {"ring", "pass_on", "PassOn", "ring_attention"},
    "21_lost_rank": {"find_survivors", "go_on"},
}


def sections(stage):
    """Return {section name: lines} for a stage, in order."""
    found = {}
    for name, line in zip(diffs.sections(stage), diffs.lines(stage), strict=True):
        found.setdefault(name, []).append(line)
    return found


@pytest.mark.parametrize("pair", diffs.EXPLAINED, ids="->".join)
def test_budget_of_changed_lines(pair):
    result = subprocess.run(
        ["diff", *map(script, pair)], capture_output=True, text=True
    )
    marked = [line for line in result.stdout.splitlines() if line[:1] in "<>"]
    assert 0 < len(marked) <= LIMITS[pair[1]][1]
    assert diffs.changed_lines(*pair) == len(marked)  # our count matches diff's


@pytest.mark.parametrize("stage", LIMITS)
def test_the_form_of_a_script(stage):
    lines = diffs.lines(stage)
    assert len(lines) <= LIMITS[stage][0]
    assert max(map(len, lines)) <= COLUMNS
    tree = ast.parse(script(stage).read_text())
    first = BY_NAME[stage].curve.replace("18_moe", "13_gpt")
    assert ast.get_docstring(tree) == diffs.lines(first)[0].strip('"')
    added = ADDED.get(stage, set())
    assert added < set(sections(stage)) or not added
    usual = SECTIONS if first == "01_cpu" else TEXTS
    found = [name for name in sections(stage) if name not in added]
    assert found == ["imports", *usual, "start"]
    kinds = [isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body[1:]]
    assert kinds == sorted(kinds, reverse=True)  # imports come first
    assert isinstance(tree.body[-1], ast.If)
    last = "dist.destroy_process_group()"  # only after a successful run
    assert (lines[-1].strip() == last) == (stage in CPU_PROCESSES)
    own = r"^(from|import) (tools|tests)\b"  # self-contained
    assert not any(re.match(own, line) for line in lines)


@pytest.mark.parametrize("plain", ["", "1"])
def test_a_terminal_shows_colors_unless_it_asks_for_none(plain, monkeypatch, capsys):
    diffs.show("02_single_gpu", "04_ddp")
    piped = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", plain)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    diffs.show("02_single_gpu", "04_ddp")
    shown = capsys.readouterr().out
    assert re.sub(r"\033\[[\d;]*m", "", shown) == piped
    assert (shown == piped) == bool(plain)


@pytest.mark.parametrize("pair", diffs.EXPLAINED, ids="->".join)
def test_ideas_show_each_changed_line_once_the_plumbing_last(pair, capsys):
    diffs.show(*pair)
    printed = capsys.readouterr().out.splitlines()
    changed = [line for hunk in diffs.hunks(*pair) for line in hunk.changed()]
    shown = [line for line in printed if re.match(r"[-+](?!-- |\+\+ )", line)]
    assert sorted(shown) == sorted(changed)
    found = [idea for idea, _ in diffs.by_idea(*pair)]
    assert all(idea.title for idea in found)
    order = [idea.is_plumbing for idea in found]
    assert order == sorted(order)


@pytest.mark.parametrize("pair", diffs.EXPLAINED, ids="->".join)
def test_a_run_shows_essential_lines_that_fit_a_screen(pair, capsys):
    """Check words of changed lines under the page's titles, and the line count."""
    essence.show(pair[1])
    said, *shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= essence.ROOM
    assert all(len(line) <= essence.COLUMNS for line in shown)
    titles = [title for title, _ in essence.groups_of(*pair)]
    changed = [line for hunk in diffs.hunks(*pair) for line in hunk.changed()]
    of_the_diff = {word for line in changed for word in line[1:].split()}
    for line in shown:
        words = line[1:].split()
        assert line in titles or (line[0] in "+-" and of_the_diff.issuperset(words))
    assert shown[0] == titles[0] and shown[-1] not in titles
    a, b = pair
    assert said.startswith(f"{len(changed)} lines changed from {a}")
    assert said.endswith(f" All: make diff A={a} B={b}") == ("," in said)


def test_every_target_has_a_name_of_its_own():
    """Otherwise `make pipeline` would silently run only one of two stages."""
    assert len(EVERY) == len(BY_NAME) == 21
    assert LIMITS.keys() == BY_NAME.keys()


def test_an_edited_script_still_shows_its_diff(monkeypatch, capsys):
    """Deleted lines cause no error."""
    kept = [line for line in diffs.lines("04_ddp") if "totals" not in line]
    edited = [line.replace("set_epoch(epoch)", "set_epoch(0)") for line in kept]
    lines = {"02_single_gpu": diffs.lines("02_single_gpu"), "04_ddp": edited}
    monkeypatch.setattr(diffs, "lines", lines.get)
    essence.show("04_ddp")
    printed = capsys.readouterr().out
    assert printed.index("Join the process group") < printed.index("set_epoch(0)")
    assert "set_epoch(epoch)" not in printed and "Report" not in printed


@pytest.mark.parametrize("name", ["7", "07", "fsdp", "07_fsdp", "beyond/07_fsdp/"])
def test_a_stage_has_names_and_does_not_differ_from_itself(name, capsys):
    diffs.show(find_stage(name), "07_fsdp")
    assert capsys.readouterr().out == "\nFrom 07_fsdp to 07_fsdp: 0 changed lines.\n"


def test_head_ends_it_in_silence():
    """This includes make, which would report an end by SIGPIPE as an error."""
    words = "make diff A=2 B=4 | head -n 1"
    result = subprocess.run(words, shell=True, cwd=ROOT, env=ENV, capture_output=True)
    assert (result.stdout, result.stderr) == (b"\n", b"")
