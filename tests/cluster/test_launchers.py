"""Promise: torchrun takes the number of nodes from PET_* variables, without a flag."""

import subprocess
import sys

from conftest import ENV, free_port

# Stands for a stage: it says which rank it is, without importing PyTorch.
SCRIPT = """
import os
from pathlib import Path

numbers = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
Path(__file__).with_name(f"rank{numbers[0]}").write_text(" ".join(numbers))
"""


def test_torchrun_with_the_variables_of_kubeflow_trainer(tmp_path):
    (tmp_path / "mnist.py").write_text(SCRIPT)
    port = str(free_port())
    nodes = []
    for rank in "0", "1":
        variables = {"NNODES": "2", "NODE_RANK": rank, "NPROC_PER_NODE": "2"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables = {f"PET_{name}": value for name, value in variables.items()}
        words = [f"{sys.prefix}/bin/torchrun", tmp_path / "mnist.py"]
        nodes.append(subprocess.Popen(words, env={**ENV, **variables}))
    try:
        assert [node.wait(timeout=100) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.terminate()  # torchrun ends its ranks
    found = sorted(path.read_text() for path in tmp_path.glob("rank*"))
    assert found == ["0 0 4", "1 1 4", "2 0 4", "3 1 4"]
