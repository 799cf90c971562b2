"""Promise: torchrun takes the number of nodes from PET_* variables, without a flag."""

import subprocess
import sys

import pytest

from conftest import ENV, EVEN, ROOT, free_port, rows


def test_torchrun_with_the_variables_of_kubeflow_trainer(data, trained, tmp_path):
    port = str(free_port())
    nodes = []
    for rank in "0", "1":
        variables = {"NNODES": "2", "NODE_RANK": rank, "NPROC_PER_NODE": "2"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables = {f"PET_{name}": value for name, value in variables.items()}
        words = [f"{sys.prefix}/bin/torchrun", "04_ddp/mnist.py", "--epochs", "2"]
        words += ["--data", data(EVEN), "--out", tmp_path / "not" / "there" / rank]
        nodes.append(subprocess.Popen(words, cwd=ROOT, env={**ENV, **variables}))
    try:
        assert [node.wait(timeout=100) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.terminate()  # torchrun ends its ranks
    ours = rows(tmp_path / "not/there/0")
    theirs = rows(trained("01_cpu", EVEN))
    assert len(ours) == len(theirs) == 2
    for one, other in zip(ours, theirs, strict=True):
        assert one == [other[0], pytest.approx(other[1], abs=1e-6), *other[2:]]
    assert not list((tmp_path / "not/there/1").iterdir())
