"""Promise: the same scripts run on several nodes, and give the same curve."""

import shutil
import sys

import pytest

from conftest import ENV, ROOT, assert_close, call, edited, free_port, rows, start
from tools.run import gpus, launch
from tools.run.plan import make_plan
from tools.run.supervise import end

SIZE = 1024, 997
TWO = {"GPUS": "cpu", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "host"}
TWO |= {"DATA": "data/sample"}


def launch_on_two_nodes(stage, roots, out, settings):
    """Launch a stage in the folder of each node; return (status, stdout, stderr)."""
    nodes = []
    for rank, root in enumerate(roots):
        given = {**settings, "NODE_RANK": str(rank), "OUT": str(out / str(rank))}
        words = [sys.executable, "-m", "tools.run.launch", stage]
        nodes.append(start(words, cwd=root, env={**ENV, **given}))
    try:
        outputs = [node.communicate(timeout=200) for node in nodes]
    finally:
        for node in nodes:
            end(node.pid)
    return [
        (node.returncode, *output) for node, output in zip(nodes, outputs, strict=True)
    ]


def test_two_nodes_give_the_curve_of_stage_01(data, trained, tmp_path):
    common = {"GPUS": "cpu", "NPROC": "2", "EPOCHS": "2", "DATA": str(data(SIZE))}
    common |= {"NNODES": "2", "MASTER_ADDR": "127.0.0.1"}
    common["MASTER_PORT"] = str(free_port())
    outputs = launch_on_two_nodes("05_ddp_inference", [ROOT, ROOT], tmp_path, common)
    assert [status for status, _, _ in outputs] == [0, 0], outputs
    assert ": 4 processes on cpu (gloo), 64 images a step" in outputs[0][1]
    assert "epoch 1/" not in outputs[1][1]
    assert len(rows(tmp_path / "0")) == 2
    # In float32: the ranks add up in another order than stage 01.
    assert_close(tmp_path / "0", trained("01_cpu", SIZE), apart=1e-6)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"NODE_RANK": "", "MASTER_ADDR": ""}, "several nodes need NODE_RANK and"),
        ({"MASTER_ADDR": ""}, "several nodes need MASTER_ADDR too"),
        ({"NNODES": "x"}, "NNODES='x' must be"),
        ({"NODE_RANK": "2"}, "NODE_RANK='2' must be"),
        ({"MASTER_PORT": "x"}, "MASTER_PORT='x' must be a port"),
        ({"NNODES": "3"}, "6 processes cannot share a batch of 64 images"),
    ],
)
def test_refusals(change, line):
    with pytest.raises(SystemExit, match=f"^{line}"):
        make_plan("04_ddp", {**TWO, **change})


@pytest.mark.parametrize(("wait", "seconds"), [(None, 450), ("60", 30), ("1", 1)])
def test_wait_limits_what_torchrun_waits_too(wait, seconds):
    plan = make_plan("04_ddp", {**TWO, "WAIT": wait or ""})
    words = f"--nnodes=2 --node-rank=1 --rdzv-conf=timeout={seconds} "
    assert words + "--master-addr=host --master-port=29500" in " ".join(plan.command)


def test_master_port_is_handed_to_torchrun():
    command = make_plan("04_ddp", {**TWO, "MASTER_PORT": "31234"}).command
    assert "--master-port=31234" in command
    assert not any("29500" in word for word in command)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"ARGS": "--lr 0.5"}, "--lr"),
        ({"EPOCHS": "5"}, "--epochs"),
        ({"NPROC": "4"}, "the number of processes"),
        ({"NNODES": "16"}, "the number of nodes"),
        ({"DATA": "another set"}, "the data"),
        ({"OUT": "elsewhere", "NODE_RANK": "0", "WAIT": "60"}, None),
    ],
)
def test_what_must_be_the_same_on_all_nodes(change, name, data):
    if "DATA" in change:
        change = {"DATA": str(data(SIZE))}
    one = launch.fingerprint(make_plan("04_ddp", TWO))
    other = launch.fingerprint(make_plan("04_ddp", {**TWO, **change}))
    assert [key for key in one if one[key] != other[key]] == ([name] if name else [])
    assert len(one) >= 10


def test_nodes_with_different_scripts_are_refused(tmp_path):
    """The second node has a clone in which somebody has changed the script."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "tools", clone / "tools")
    for name in ".venv", "data", "beyond":
        (clone / name).symlink_to(ROOT / name)
    edited("04_ddp", clone, ("lr=args.lr)", "lr=args.lr / 2)"))
    common = {**TWO, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    outputs = launch_on_two_nodes("04_ddp", [ROOT, clone], tmp_path, common)
    for status, stdout, stderr in outputs:
        assert status == 1
        assert "its script must be the same on all nodes: SHA-256 " in stderr
        assert stderr.count("\n") == 1
        assert "$ " not in stdout


def test_nodes_agree_on_the_backend(monkeypatch):
    """One node has fewer GPUs than processes, another enough."""
    given = {**TWO, "GPUS": "", "NPROC": "2"}
    backends = []
    for count in 1, 2:
        monkeypatch.setattr(gpus, "count_gpus", lambda count=count: count)
        plan = make_plan("04_ddp", given)
        backends.append(launch.fingerprint(plan)["--backend"])
    assert backends == ["gloo", "nccl"]


def test_shell_scripts_pass_shellcheck():
    scripts = ["tools/run/slurm.sh", "tests/cluster/up.sh", ".ci/run"]
    result = call([f"{sys.prefix}/bin/shellcheck", *scripts])
    assert result.returncode == 0, result.stdout
