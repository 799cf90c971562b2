"""Promise: every stage is on the GPUs that it should be on, on as many as there are.

The GPUs are fake (tools.lab.fake_cuda): they compute right, and refuse what CUDA and
NCCL refuse. So the tests show that each line that places something is needed.
"""

import re

import pytest
import torch

from conftest import DISTRIBUTED, MOMENTUM, assert_close, edited, off, run
from onecurve import ranks
from tools.lab import fake_cuda
from tools.run.stages import CPU_PROCESSES, STAGES, script

SIZE = 56, 21
BATCH = 40  # leaves a partial last batch
EPOCHS = 2
OLD_DRIVER = "2, by NVML alone"  # CUDA cannot use them
CPU = '"cpu"'
SAME = "Expected all tensors to be on the same device"
SERIES = "Attempting to deserialize object on a CUDA"
ORDINAL = "invalid device ordinal"
DUPLICATE = "Multiple Ranks are using the same GPU"
BOUND = "ProcessGroupNCCL is bound to device cuda:1 but an operation was issued on"
NO_BACKEND = "No backend type associated with"
AVAILABLE = r'"cuda" if torch.cuda.is_available\(\) else "cpu"'
BACKEND = r'"nccl" if DEVICE == "cuda" else "gloo"'
# What is put in place of a text, on how many GPUs, and what is then wrong. A text that
# several stages have is edited in the last of them.
EDITS = [
    (AVAILABLE, CPU, 2, "the header|module must have its parameters"),
    (AVAILABLE, '"cuda"', 0, "CUDA|NVIDIA|modulo"),
    (r"images\.to\(DEVICE\)", "images", 2, f"{SAME}|indices should be"),
    (r"labels\.to\(DEVICE\)", "labels", 2, SAME),
    (
        r"Net\(args.hidden\)\.to\(DEVICE\)",
        "Net(args.hidden)",
        2,
        f"{SAME}|module must have its parameters|{NO_BACKEND}",
    ),
    (r"\[:3\]\.to\(DEVICE\)", "[:3]", 2, SAME),
    (r"\[3:\]\.to\(SECOND\)", "[3:]", 2, SAME),
    (r"hidden\.to\(SECOND\)", "hidden", 2, SAME),
    (r"SECOND\)\)\.to\(DEVICE\)", "SECOND))", 2, SAME),
    (r", device=DEVICE", "", 2, NO_BACKEND),
    (r"tensor\.cpu\(\)", "tensor", 2, SERIES),
    (r'DEVICE == "cuda" and ', "", OLD_DRIVER, "CUDA|NVIDIA"),
    (r" and torch.cuda.device_count\(\) > 1", "", 1, ORDINAL),
    (r'"cuda:1" if .* else DEVICE', "DEVICE", 2, "the header"),
    (r'if DEVICE == "cuda":', "if True:", 0, "modulo"),
    (r" % torch.cuda.device_count\(\)", "", 1, ORDINAL),
    (r"torch.cuda.set_device\(.*", "pass", 2, BOUND),
    (BACKEND, '"nccl"', 0, "NCCL|nccl"),
    (BACKEND, '"gloo"', 2, "the header"),
    (r"\(args.backend\)", '("nccl")', 1, DUPLICATE),
    (r"default=backend", 'default="gloo"', 2, "the header"),
    (r"nn.DataParallel\(model\)", "model", 2, "the devices|device_ids"),
    (r"nn.parallel.DistributedDataParallel\(model\)", "model", 2, "the curve"),
    # what the scripts do not have
    (r"dist.all_reduce\(totals\)", "dist.all_reduce(totals.cpu())", 2, NO_BACKEND),
    (r"loss_sum, count = 0, 0", "loss_sum, count = torch.zeros(1), 0", 2, SAME),
]


def places():
    """Return (stage, edit, start and end of its text) of each line that is edited."""
    found = []
    for edit in EDITS:
        texts = {stage: script(stage).read_text() for stage in STAGES}
        *_, stage = [name for name in STAGES if re.search(edit[0], texts[name])]
        for match in re.finditer(edit[0], texts[stage]):
            label = f"{stage} {edit[0]} {match.start()} {edit[2]}"
            found.append(pytest.param(stage, edit, match.span(), id=label))
    return found


def fake(rank, folder, count, usable):
    """Have this rank believe in GPUs; write down on which of them its layers work."""
    events = open(folder / f"rank{rank}", "a", buffering=1)  # noqa: SIM115

    def note(kind, device=None, **_):
        if kind == "backward":  # evaluation is not meant
            print(device, file=events)

    if usable and count:
        fake_cuda.gpus(count, note)
    else:
        torch.cuda.device_count = lambda: count


def train(path, out, data, gpus, *flags, processes=2):
    """Run a script in float64 on fake GPUs: CompletedProcess, devices by rank.

    Ranks that share a GPU do so by gloo, as `make` has it.
    """
    out.mkdir(exist_ok=True)
    processes = processes if path.parent.name in CPU_PROCESSES else 0
    count, usable = (2, False) if gpus == OLD_DRIVER else (gpus, True)
    words = [path, "--data", data, "--out", out, "--batch-size", BATCH, *flags]
    if 0 < count < processes and "--backend" not in flags:
        words += ["--backend", "gloo"]
    written = [out / f"rank{rank}" for rank in range(processes or 1)]
    for old in written:
        old.unlink(missing_ok=True)
    result = ranks.run(words, processes, True, prepare=(fake, out, count, usable))
    used = [path.read_text().split() for path in written if path.exists()]
    return result, list(map(set, used))


def expected(stage, gpus, processes=2):
    """Return what the header says after the stage, and the devices of each rank."""
    gpus = 0 if gpus == OLD_DRIVER else gpus
    device = "cuda" if gpus and stage != "01_cpu" else "cpu"
    all_of_them = [f"cuda:{index}" for index in range(gpus)] or ["cpu"]
    if stage in CPU_PROCESSES:
        backend = "nccl" if gpus >= processes else "gloo"
        header = f"{processes} processes on {device} ({backend})"
        used = [all_of_them[rank % len(all_of_them)] for rank in range(processes)]
        return header, [{device} for device in used]
    if stage == "03_dp":
        return f"1 process on {device} ({gpus} GPUs)", [set(all_of_them)]
    if stage == "06_model_parallel":
        second = "cuda:1" if gpus > 1 else device
        return f"1 process on {device} and {second}", [set(all_of_them[:2])]
    return f"1 process on {device}", [{"cpu" if device == "cpu" else "cuda:0"}]


def fault(path, out, data, gpus, reference, processes=2):
    """Train, and return what is wrong: with the run, the header, devices, the curve."""
    stage = path.parent.name
    words = path, out, data, gpus, "--epochs", EPOCHS
    result, used = train(*words, processes=processes)
    if result.returncode:
        return result.stderr
    header, devices = expected(stage, gpus, processes)
    if not result.stdout.startswith(f"{stage}: {header}, {BATCH} images a step"):
        return f"the header is {result.stdout.splitlines()[0]}"
    if gpus not in (0, OLD_DRIVER) and used != devices:
        return f"the devices are {used} instead of {devices}"
    try:
        distance = max(off(out, reference))
    except RuntimeError as error:
        return str(error)
    return "" if distance <= 1e-12 else f"the curve is off by {distance}"


@pytest.fixture(scope="module")
def hold(data, tmp_path_factory):
    """A function that compares a script with stage 01 on the CPU: what is wrong?"""
    root = data(SIZE)
    reference = tmp_path_factory.mktemp("reference")
    words = ["--data", root, "--out", reference, "--batch-size", BATCH]
    result = run("01_cpu", *words, "--epochs", EPOCHS, float64=True)
    assert result.returncode == 0, result.stderr

    def held(path, gpus, processes=2):
        out = tmp_path_factory.mktemp("out")
        return fault(path, out, root, gpus, reference, processes)

    return held


@pytest.mark.parametrize("gpus", [0, 1, 2, 8, OLD_DRIVER])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_where_it_should_be(hold, stage, gpus):
    assert hold(script(stage), gpus) == ""


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_more_ranks_than_gpus_share_them(hold, stage):
    assert hold(script(stage), 2, processes=4) == ""


@pytest.mark.parametrize("stage", ["09_pipeline", "11_resume"])
def test_stages_beyond(hold, stage):
    """Of those, only these: streams and DTensors have no fake."""
    assert hold(script(stage), 2) == ""


def test_a_run_goes_from_gpus_to_the_cpu_and_back(data, tmp_path):
    path = edited("11_resume", tmp_path, MOMENTUM)
    reference = edited("01_cpu", tmp_path, MOMENTUM)
    words = "--data", data(SIZE), "--out", tmp_path / "01", "--batch-size", BATCH
    run("01_cpu", *words, "--epochs", 3, float64=True, path=reference)
    out = tmp_path / "out"
    for epoch, gpus in (1, 2), (2, 0), (3, 2):
        flags = "--epochs", epoch, "--resume"
        result, _ = train(path, out, data(SIZE), gpus, *flags)
        assert result.returncode == 0, result.stderr
    assert_close(out, tmp_path / "01")
    there = 'state_path, map_location="cpu"', "state_path"
    path = edited("11_resume", tmp_path, MOMENTUM, there)
    result, _ = train(path, out, data(SIZE), 0, "--epochs", 4, "--resume")
    assert SERIES in result.stderr


def test_a_checkpoint_may_hold_tensors_of_gpus(data, tmp_path):
    gpu = edited("02_single_gpu", tmp_path, ("tensor.cpu()", "tensor"))
    train(gpu, tmp_path / "gpu", data(SIZE), 1, "--epochs", 1)
    words = "--checkpoint", tmp_path / "gpu/model.pth"
    stage = "05_ddp_inference"
    cpu = (tmp_path / "cpu", data(SIZE), 0, *words)
    result, _ = train(script(stage), *cpu)
    assert result.stdout.endswith("/21\n"), result.stderr
    there = 'checkpoint, map_location="cpu"', "checkpoint"
    result, _ = train(edited(stage, tmp_path, there), *cpu)
    assert SERIES in result.stderr


@pytest.mark.parametrize(("stage", "edit", "span"), places())
def test_a_line_that_places_something_is_needed(hold, stage, edit, span, tmp_path):
    _, new, gpus, said = edit
    start, end = span
    text = script(stage).read_text()
    path = tmp_path / stage / "mnist.py"
    path.parent.mkdir()
    path.write_text(text[:start] + new + text[end:])
    assert re.search(said, hold(path, gpus)), f"{stage} without {text[start:end]}"
