"""Promise: `make` runs every stage on the hardware it finds and says what it runs."""

import pytest

from conftest import ENV, ROOT, call, rows
from tools.run import launch, results
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, EVERY, script

FEW = "GPUS=cpu", "EPOCHS=1"


def make(*words, **options):
    return call(["make", *words], **options)


def test_make_shows_the_diff_and_runs_a_stage(tmp_path):
    """It makes a new folder and exits cleanly: PyTorch may abort after a gloo run.

    torchrun's own files are deleted.
    """
    out = tmp_path / "not" / "there"
    (tmp_path / "temporary").mkdir()
    environment = {**ENV, "TMPDIR": str(tmp_path / "temporary")}
    data = cut(tmp_path / "data", 64, 10)
    result = make("ddp", *FEW, f"DATA={data}", f"OUT={out}", env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    for name in "torchelastic_*", "tmp*":
        assert list((tmp_path / "temporary").glob(name)) == []
    diff, _, run = result.stdout.partition("\n\n$ ")
    assert "\n+dist.init_process_group(args.backend)\n" in diff
    assert len(result.stdout.splitlines()) <= 30  # diff and run on one screen
    assert "\033" not in diff  # a pipe gets no colors
    flags = f"04_ddp/mnist.py --data {data} --out {out} --epochs 1"
    torchrun = ".venv/bin/torchrun --standalone --nproc-per-node=2"
    start = f"CUDA_VISIBLE_DEVICES= {torchrun} {flags}\n04_ddp: 2 processes on cpu "
    assert run.startswith(start)
    assert run.endswith(f"saved {out}/model.pth\n")
    assert len(rows(out)) == 1


def test_each_stage_has_a_command(tmp_path):
    """Check only the commands' words; the tests of the stages run the scripts."""
    for stage in EVERY.values():
        command = make_plan(stage, {"OUT": str(tmp_path), "GPUS": "cpu"}).command
        path = str(script(stage).relative_to(ROOT))
        assert path in command and command[-2:] == ["--out", str(tmp_path)]
        assert ("--standalone" in command) == (stage in CPU_PROCESSES)


@pytest.mark.slow
def test_make_runs_every_stage(tmp_path):
    """Three targets run all twenty-one, and each compares the curves."""
    for words, count in (
        (["all", "beyond", *FEW], 12),
        (["transformer", "GPUS=cpu", "ARGS=--steps 30"], 7),
    ):
        result = make(*words, f"OUT={tmp_path}", timeout=900)
        assert result.returncode == 0, result.stderr
        assert f"\n{count} scripts, one loss curve\n" in result.stdout


def test_the_shell_s_variables_do_not_count():
    shell = {"NPROC": "3", "EPOCHS": "x", "ARGS": "--wide", "DATA": "nowhere"}
    result = make("ddp", *FEW, "OUT=Makefile/x", env={**ENV, **shell})
    assert result.stderr.startswith("cannot write to Makefile/x (No")  # only OUT counts


WRONG = [  # what a user types, and the error line, which says what works
    ("cpu NPROC=4", "NPROC=4: 01_cpu runs in one process. For more, try make ddp"),
    ("cpu EPOCHS=0", "EPOCHS=0: expected a whole number of at least 1"),
    ("ddp NPROC=3", "04_ddp: 3 processes cannot share 64 images a step. Try: NPROC=2 "),
    ("all OUT=o ARGS='--out e'", "ARGS contains --out e: use OUT=DIR for all stages"),
    ("cpu DATA=tests", "no MNIST in tests (tests/MNIST/raw/train-images-idx3-ubyte is"),
    ("cpu OUT=Makefile/x", "cannot write to Makefile/x (Not a directory). Choose ano"),
    ("cpu OUT=/proc/x", "cannot write to /proc/x ("),
    ("cpu ARGS='--lr nan'", "--lr nan: expected a finite number"),
    ("ddp ARGS='--hidden 0'", "--hidden 0: expected at least 1"),
    ("gpt ARGS='--batch-size 0'", "--batch-size 0: expected at least 1"),
    ("resume ARGS='--checkpoint no'", "no checkpoint no. Stages save checkpoints in "),
    ("gpt EPOCHS=2", "EPOCHS=2: 13_gpt trains on random tokens. Try: ARGS='--step"),
    ("moe DATA=x", "DATA=x: 18_moe trains on random tokens. Try: ARGS='--step"),
    ("dp ARGS=--wide", "mnist.py: error: unrecognized arguments: --wide"),
    ("dp ARGS='\"'", "ARGS='\"' cannot be split into words: No closing quotation"),
    ("ddp RESTARTS=3", "RESTARTS=3: only for resume and sharded_checkpoint"),
    ("diff A=2", "name two stages: make diff A=02_single_gpu B=04_ddp"),
    ("diff A=2 B=99", "unknown stage '99'. Choose one of 01_cpu, 02_single_gpu, 03_d"),
    ("cpu OUT='~/x'", "~/x would be a folder named ~ here. Use $HOME instead"),
]


@pytest.mark.parametrize(("words", "line"), WRONG, ids=[words for words, _ in WRONG])
def test_what_cannot_work_is_refused_before_it_starts(words, line):
    gpus = "" if "GPUS" in words else "GPUS=cpu"
    result = call(["bash", "-c", f"make {words} {gpus}"])
    assert (result.returncode, result.stdout) == (2, "")
    *usage, refusal, _ = result.stderr.splitlines()
    assert refusal.startswith(line)
    assert not usage or usage[0].startswith("usage: ")


def test_what_an_earlier_run_has_left_is_put_aside(tmp_path, monkeypatch):
    """Except if the launcher refuses. A failed run ends `make all` and is marked."""
    out = tmp_path / "runs/01_cpu"
    monkeypatch.setenv("OUT", str(out.parent))
    monkeypatch.setattr(launch, "end_with_make", lambda: None)

    def train(*_):  # as the script does
        (out / "metrics.csv").write_text(results.HEADS[0])
        (out / "model.pth").write_text("weights")
        return 0

    monkeypatch.setattr(launch, "run_command", train)
    assert launch.run(make_plan("01_cpu", {"OUT": str(out)})) == 0
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    assert set(first) == {".lock", "flags.json", "metrics.csv", "model.pth"}
    monkeypatch.setenv("ARGS", "--wide")
    with pytest.raises(SystemExit):
        launch.main("all")
    assert {path.name for path in out.iterdir()} == set(first)
    monkeypatch.setenv("ARGS", "--lr -1")
    monkeypatch.setattr(launch, "run_command", lambda *_: 1)
    with pytest.raises(SystemExit, match="^01_cpu failed with exit status 1$"):
        launch.main("all")
    assert [path.name for path in out.parent.iterdir()] == ["01_cpu"]
    names = {path.name for path in out.iterdir()}
    assert names == {".lock", "before", "flags.json", "unfinished"}
    results.begin(make_plan("01_cpu", {"OUT": str(out)}))  # the failed run left none
    for name in "flags.json", "metrics.csv", "model.pth":
        assert (out / "before" / name).read_bytes() == first[name]


@pytest.mark.parametrize(
    ("target", "name"),
    [("cpu", "model.pth"), ("ddp", "metrics.csv"), ("resume", "state.pth")],
)
def test_files_of_others_are_refused(target, name, tmp_path):
    path = tmp_path / name
    path.write_text("precious")
    plan = make_plan(EVERY[target], {"OUT": str(tmp_path)})
    line = f"^{path} was not written by a run. Choose another folder, OUT=DIR, or"
    with pytest.raises(SystemExit, match=line):
        launch.check([plan])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / "metrics.csv").write_text(results.HEADS[0])  # from a script run by hand
    launch.check([plan])


STATES = {"resume": "state.pth", "sharded_checkpoint": "checkpoints"}


@pytest.mark.parametrize("target", STATES)
def test_only_resume_goes_on_with_an_earlier_run(target, tmp_path):
    """RESTARTS alone doesn't, and an evaluation removes nothing."""
    state = tmp_path / STATES[target]
    before = tmp_path / "before" / STATES[target]
    given = {"GPUS": "cpu", "OUT": str(tmp_path), "RESTARTS": "1"}
    metrics = tmp_path / "metrics.csv"
    mark = tmp_path / "unfinished"
    stage = EVERY[target]
    made = make_plan(stage, given)
    assert "--resume" in made.command  # after a restart, from this run's own state
    assert made.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    for number in "1", "2":  # the second's files replace the first's in before/
        (state / number).mkdir(parents=True)
        metrics.touch()
        results.begin(make_plan(stage, {**given, "ARGS": "--resume"}))
        assert state.exists() and metrics.exists() and mark.exists()
        results.begin(made)
        assert not state.exists() and not metrics.exists()
        assert [path.name for path in before.iterdir()] == [number]
    evaluation = {**given, "ARGS": "--checkpoint model.pth", "RESTARTS": ""}
    assert not make_plan("11_resume", evaluation).writes


@pytest.mark.parametrize(
    ("flags", "odd", "line"),
    [
        ("--lr 5", "", "the run in {} began with --lr 0.1, not 5.0. Resume it with "),
        ("--hidden 9", "", "the run in {} began with --hidden 128, not 9. Resume it"),
        ("", "metrics.csv", "{0}/checkpoints exists without {0}/metrics.csv. Restor"),
    ],
)
def test_what_cannot_be_resumed_is_refused(flags, odd, line, tmp_path):
    """A refusal changes no file."""
    given = {"GPUS": "cpu", "OUT": str(tmp_path)}
    results.begin(make_plan("12_sharded_checkpoint", given))
    for name in "7", odd:
        (tmp_path / "checkpoints" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoints" / name / ".metadata").touch()
    if odd != "metrics.csv":
        (tmp_path / "metrics.csv").write_text(results.HEADS[0])
    (tmp_path / "unfinished").unlink()
    written = (tmp_path / "flags.json").read_text()
    resumed = {**given, "ARGS": f"--epochs 9 --resume {flags}"}
    with pytest.raises(SystemExit, match="^" + line.format(tmp_path)):
        results.begin(make_plan("12_sharded_checkpoint", resumed))
    assert (tmp_path / "flags.json").read_text() == written
    assert not (tmp_path / "unfinished").exists()
