"""Promise: the same scripts run on several nodes, and give the same curve."""

import shutil
import sys

import pytest

from conftest import ENV, ROOT, assert_close, call, edited, free_port, rows, slow, start
from tools.run import gpus, launch
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.supervise import end

SIZE = 1024, 997
TWO = {"GPUS": "cpu", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "host"}
TWO |= {"DATA": "data/sample"}


@slow
def test_two_nodes_on_loopback(trained, tmp_path):
    """Two torchrun agents of two processes, in float64, with the commands of make."""
    port = str(free_port())
    root = cut(tmp_path / "data", *SIZE)
    nodes = []
    for rank in "0", "1":
        settings = {"GPUS": "cpu", "NPROC": "2", "NNODES": "2", "NODE_RANK": rank}
        settings |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "EPOCHS": "2"}
        settings |= {"DATA": str(root), "OUT": str(tmp_path / rank)}
        plan = make_plan("05_ddp_inference", settings)
        words = [*plan.launcher, "tests/stages/float64.py", plan.script, *plan.flags]
        nodes.append(start(words))
    try:
        outputs = [node.communicate(timeout=200) for node in nodes]
    finally:
        for node in nodes:
            end(node.pid)
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert ": 4 processes on cpu (gloo), 64 images a step" in outputs[0][0]
    assert "epoch" not in outputs[1][0]
    assert len(rows(tmp_path / "0")) == 2
    assert_close(tmp_path / "0", trained("01_cpu", SIZE, float64=True))


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
    started = []
    for rank, root in enumerate([ROOT, clone]):
        given = {"NODE_RANK": str(rank), "OUT": str(tmp_path / "out")}
        words = [sys.executable, "-m", "tools.run.launch", "04_ddp"]
        started.append(start(words, cwd=root, env={**ENV, **common, **given}))
    try:
        outputs = [process.communicate(timeout=200) for process in started]
    finally:
        for process in started:
            end(process.pid)
    assert [process.returncode for process in started] == [1, 1]
    for stdout, stderr in outputs:
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
