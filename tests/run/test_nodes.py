"""Promise: the same scripts run on several nodes and give the same curve."""

import socket

import pytest
from torch.distributed import TCPStore

from conftest import EVEN, ROOT, assert_close, call, start
from tools.run.plan import make_plan
from tools.run.results import HEADS


def free_port():
    """Return the number of an unused port on this machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.slow
def test_two_nodes_give_the_curve_of_stage_01(data, trained, tmp_path):
    """Use the page's command; rank 0 may be on either node."""
    address = f"127.0.0.1:{free_port()}"
    words = ["make", "ddp_inference", "GPUS=cpu", "NPROC=1", "EPOCHS=2", "NNODES=2"]
    words += [f"DATA={data(EVEN)}", f"MASTER_ADDR={address}"]
    outs = tmp_path / "0", tmp_path / "1"
    nodes = []
    for rank, out in enumerate(outs):
        nodes.append(start([*words, f"NODE_RANK={rank}", f"OUT={out}"]))
    try:
        outputs = [node.communicate(timeout=200) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()  # make's children end with it
    assert [node.returncode for node in nodes] == [0, 0], outputs
    together = "".join(stdout for stdout, _ in outputs)
    assert together.count(": 2 processes on cpu (gloo), 64 images a step") == 1
    assert together.count("epoch 1/2") == 1
    (out,) = [out for out in outs if (out / "metrics.csv").exists()]
    # In float32, the ranks add in another order than stage 01.
    assert_close(out, trained("01_cpu", EVEN), apart=1e-6)
    page = (ROOT / "04_ddp/CLUSTERS.md").read_text()
    for word in f"--rdzv-backend=c10d --rdzv-endpoint={address}".split():
        assert together.count(f"{word} ") == 2
        assert word.replace(address, "node0") in page


def test_only_node_0_makes_the_folder_ready(tmp_path):
    """The nodes may share a disk."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = f"127.0.0.1:{store.port}"  # as if node 0 ran another command
    given = {"NNODES": "2", "MASTER_ADDR": address, "WAIT": "1", "NODE_RANK": "1"}
    given |= {"GPUS": "cpu", "EPOCHS": "1", "OUT": str(tmp_path)}
    (tmp_path / "metrics.csv").write_text(HEADS[0])
    words = [f"{name}={text}" for name, text in given.items()]
    result = call(["make", "ddp", *words])
    assert result.returncode != 0
    assert "RendezvousTimeoutError" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]
    assert make_plan("04_ddp", {**given, "NODE_RANK": "0"}).writes
