"""Promise: slurm.sh gives the same curve, and ends or continues after a failure.

It runs on real Slurm daemons; the two nodes are namespaces on this machine: see up.sh.
"""

import os
import re
import shutil
import subprocess
import sys

import psutil
import pytest

from conftest import EVEN, ROOT, assert_close, call, until
from tools.run.sample import cut

pytestmark = pytest.mark.slow
NEEDED = "slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter"
CPUS = "--gpus-per-node=0", "--cpus-per-task=2"
SLURM = "tools/run/slurm.sh"
UNFINISHED = "PENDING", "RUNNING", "COMPLETING"
TORCHRUN = """#!/usr/bin/env bash
step=$SLURM_JOB_ID.$SLURM_STEP_ID
task=$(scontrol show step "$step" | grep -o 'PerTask=.*' | tr : =)
echo "$SLURMD_NODENAME $task $OMP_NUM_THREADS $*"
while [[ -e hold ]]; do sleep 0.05; done
[[ ! -e fail ]]
"""
PYTHON = """#!/usr/bin/env bash
echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $*
"""


class Cluster:
    """Nodes n0 and n1; jobs are submitted from `folder`."""

    def __init__(self, place, process):
        self.place = place
        (first,) = psutil.Process(process.pid).children()
        self.first = first.pid  # process 1 on n0

    def run(self, *words, folder="/"):
        """Return the output of a command on n0."""
        enter = "nsenter", "--target", self.first, "--all", f"--wd={folder}"
        environment = {**os.environ, "SLURM_CONF": str(self.place / "slurm.conf")}
        result = call([*enter, *words], env=environment)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def sbatch(self, folder, *words):
        """Submit a job and return its number."""
        return self.run("sbatch", "--parsable", *words, folder=folder).strip()

    def about(self, job):
        """Return Slurm's information about a job, {field: value}."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(\w+)=(\S*)", shown))

    def wait(self, job, state):
        """Wait until a job ends and assert that its state is `state`."""
        until(lambda: self.about(job)["JobState"] not in UNFINISHED)
        assert self.about(job)["JobState"] == state

    def wait_for_both_nodes(self, folder, job):
        """Wait until a job has started `told`'s torchrun on both nodes."""
        until(lambda: self.printed(folder, job).count("--nnodes") == 2)

    def printed(self, folder, job):
        """Return a job's output so far; each job of an array has its own."""
        path = folder / f"slurm-{self.about(job)['JobId']}.out"
        return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a Slurm cluster of namespaces needs Linux and root")
    absent = [name for name in NEEDED if not shutil.which(name)]
    if absent:
        packages = "slurmctld slurmd slurm-client munge iproute2"
        pytest.skip(f"no {', '.join(absent)}: apt-get install {packages}")
    place = tmp_path_factory.mktemp("cluster")
    words = ["unshare", "--mount", "--uts", "--net", "--pid"]
    words += ["--fork", "--kill-child", "--mount-proc"]
    process = subprocess.Popen(
        [*words, ROOT / "tests/cluster/up.sh", place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if "idle" not in process.stdout.readline():
        reason = process.communicate()[1].strip()
        if "unshare: " in reason:
            pytest.skip(f"no namespaces here: {reason}")
        pytest.fail(reason)
    yield Cluster(place, process)
    process.communicate()  # ends it by closing its standard input


@pytest.fixture
def folder(tmp_path):
    """Return the root of a fresh clone with an even smaller sample."""
    for name in "04_ddp", "beyond/11_resume", "01_cpu":
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / SLURM).parent.mkdir(parents=True)
    shutil.copy(ROOT / SLURM, tmp_path / SLURM)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    cut(tmp_path / "data/sample", *EVEN)
    return tmp_path


@pytest.fixture
def told(folder):
    """Add fake programs that print their words; torchrun waits while `hold` exists."""
    (folder / ".venv").unlink()
    (folder / ".venv/bin").mkdir(parents=True)
    for name, text in ("torchrun", TORCHRUN), ("python", PYTHON):
        program = folder / ".venv/bin" / name
        program.write_text(text)
        program.chmod(0o755)
    return folder


def test_sbatch_gives_the_curve_of_stage_01(cluster, folder, trained):
    """In float32, the ranks add in another order than stage 01."""
    job = cluster.sbatch(folder, *CPUS, SLURM, "04_ddp", "--epochs", "2")
    cluster.wait(job, "COMPLETED")
    shown = cluster.printed(folder, job)
    assert ": 4 processes on cpu (gloo), 64 images a step" in shown
    assert_close(folder / "runs/04_ddp", trained("01_cpu", EVEN), apart=1e-6)
    assert not (folder / "runs/04_ddp/unfinished").exists()


def test_what_torchrun_is_told(cluster, told):
    """It gets the same after a requeue, which keeps the earlier output."""
    out = told / "runs/11_resume"
    out.mkdir(parents=True)
    state = out / "state.pth"
    checkpoints = out / "checkpoints"
    state.write_text("of an earlier run")
    checkpoints.mkdir()
    (told / "hold").touch()
    job = cluster.sbatch(told, SLURM, "11_resume", "--epochs", "3")
    cluster.wait_for_both_nodes(told, job)
    # A stage that continues must not find an earlier run's state.
    assert not state.exists()
    assert not checkpoints.exists()
    assert (out / "before/state.pth").exists()
    assert (out / "unfinished").exists()
    cluster.run("scontrol", "requeue", job)
    until(lambda: cluster.about(job)["JobState"] == "PENDING")
    # Slurm would wait two minutes. A node refuses a job in the second another one ends.
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    (told / "hold").unlink()
    cluster.wait(job, "COMPLETED")
    assert not (out / "unfinished").exists()
    words = "beyond/11_resume/mnist.py --data data/sample --out runs/11_resume"
    lines = []
    for more in "", " --resume":
        for rank in 0, 1:
            lines.append(
                f"n{rank} PerTask=cpu=16 4 --nnodes=2 --node-rank={rank} "
                f"--nproc-per-node=4 --master-addr=n0 --master-port={20000 + int(job)} "
                f"{words} --epochs 3{more}"
            )
    shown = cluster.printed(told, job).splitlines()
    assert sorted(line for line in shown if "--nnodes" in line) == sorted(lines)


def test_a_job_that_failed_leaves_a_mark_and_the_earlier_result_aside(cluster, told):
    out = told / "runs/04_ddp"
    out.mkdir(parents=True)
    (out / "metrics.csv").write_text("of an earlier run")
    (told / "fail").touch()
    job = cluster.sbatch(told, *CPUS, SLURM, "04_ddp")
    cluster.wait(job, "FAILED")
    assert {path.name for path in out.iterdir()} == {"before", "unfinished"}
    assert (out / "before/metrics.csv").read_text() == "of an earlier run"


def test_refusals(cluster, folder):
    """Each in one line, before torchrun starts."""

    def assert_refused(line, *words, where=folder, options=()):
        words = words or ["04_ddp"]
        job = cluster.sbatch(where, *CPUS, *options, folder / SLURM, *words)
        cluster.wait(job, "FAILED")
        assert re.fullmatch(f"slurm.sh: {line}\n", cluster.printed(where, job))

    assert_refused("4 tasks on 2 nodes: .*", options=["--ntasks-per-node=2"])
    assert_refused("name a stage first, such as: sbatch .*", "--epochs", "3")
    assert_refused("name a stage first, such as: sbatch .*", "13_nothing")
    assert_refused("01_cpu runs on one machine: .*", "01_cpu")
    assert_refused("04_ddp does not save its state: .*", "04_ddp", "--resume")
    anew = "an --array continues one run: take 11_resume, with --resume at the end"
    assert_refused(anew, "11_resume", options=["--array=1-1"])
    assert_refused("--out is the job's name: .*", "04_ddp", "--out", "elsewhere")
    nowhere = "04_ddp", "--data", "nowhere"
    assert_refused("n0 lacks nowhere/MNIST, n1 lacks nowhere/MNIST in .*", *nowhere)
    assert_refused(f"{folder}/data is not the root of .*", where=folder / "data")


def test_srun_starts_the_ranks_as_the_page_shows(cluster, told):
    """Each gets the variables that torchrun would set: 2 ranks on each of 2 nodes."""
    page = (ROOT / "04_ddp/CLUSTERS_DETAILS.md").read_text()
    (command,) = re.findall(r"```bash\n(srun .*?)```", page, re.DOTALL)
    shown = sorted(cluster.run("bash", "-c", command, folder=told).splitlines())
    assert len(shown) == 4
    words = "04_ddp/mnist.py --data data/sample"
    for rank, line in enumerate(shown):
        assert re.fullmatch(rf"{rank} {rank % 2} 4 2 n0 2\d{{4}} {words}", line)


def test_a_chain_goes_on_after_a_job_that_was_ended(cluster, told):
    """It was ended by its time limit, say; the next job uses the state it left."""
    (told / "hold").touch()
    state = told / "runs/11_resume/state.pth"
    state.parent.mkdir(parents=True)
    state.write_text("of the job before")
    words = SLURM, "11_resume", "--resume"
    chain = cluster.sbatch(told, "--array=1-2%1", *CPUS, *words)
    first = f"{chain}_1"
    second = f"{chain}_2"
    cluster.wait_for_both_nodes(told, first)
    cluster.run("scancel", first)
    cluster.wait(first, "CANCELLED")
    cluster.wait_for_both_nodes(told, second)
    (told / "hold").unlink()
    cluster.wait(second, "COMPLETED")
    assert cluster.printed(told, second).count(" --resume") == 2
    assert state.read_text() == "of the job before"
