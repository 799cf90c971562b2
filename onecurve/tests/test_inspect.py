"""Promise: onecurve finds known mistakes in a script, and none in a correct one."""

import re
import signal
from pathlib import Path

import psutil
import pytest
import torch
from cases import RIGHT, read_cases, rule_files, script_of
from golden import read_golden
from torch.utils.data import RandomSampler

import onecurve
from inspecting import FIELDS, inspect, unlisted_fields
from onecurve.compare import per_rank
from onecurve.evidence.samples import sliced
from onecurve.evidence.seen import Seen
from onecurve.feed.draws import joined
from onecurve.inspection import Inspection
from onecurve.report.formats import LEVELS, fine
from onecurve.rules import RULES, different_collectives, filled_in
from onecurve.set_up import cpu_for_cuda
from onecurve.start import ranks, supervisor
from onecurve.watch.identities import own_number
from onecurve.watch.twins import copy

CASES = read_cases(*rule_files().values())
EQUAL = "gradients of 9 steps match one process"
BUT_FOR = ", except for BatchNorm statistics"  # RIGHT has a BatchNorm layer
OK = [  # the report on RIGHT
    "gradients are averaged across ranks in 9 steps",
    EQUAL + BUT_FOR,
    "6 weight tensors are equal on all ranks in 9 steps",
    "96 samples per epoch, none used twice",
    "each epoch uses a new sample order",
    "24 collective calls, the same on every rank",
]
NOT_BESIDE = {  # words, and the findings that contradict them
    "averaged across": "gradients are not averaged|no parameter in",
    "tensors are equal": "weights differ",
    "samples per epoch": "the same samples|overlap between",
    "a new sample order": "uses the same sample order",
    "the same on every rank": "call different collectives",
    "gradients of": "differ from those of 1|no parameter in",
}
WRITES_EVENT = re.compile(r'\.write\(\s*"(\w+)"(?: if .* else "(\w+)")?,?[\s)]')
WRITES = """
import os, shutil, torch
from pathlib import Path
here = Path(__file__).parent
if os.environ['RANK'] == '1':
    raise SystemExit
assert (here / 'old').read_text() == 'precious'
(here / 'old').write_text('new')
assert (here / 'old').read_text() == 'new'
with open(here / 'log', 'a') as file:
    file.write('more')
assert (here / 'log').read_text() == 'some more'
os.replace(here / 'old', here / 'model')
(here / 'gone').unlink()
shutil.rmtree(here / 'kept')
os.mkdir(here / 'kept')
torch.save([1], here / 'kept' / 'weights')
assert torch.load(here / 'kept' / 'weights') == [1]
os.makedirs(here / 'made' / 'deep')
assert [*here.glob('made')] and not [*here.glob('gone')] and [*here.glob('log')]
"""


LIBRARY = """
import os, torch.distributed as dist
GENERATED = "/tmp/{name}.py"
def generate():
    with open(GENERATED, "w") as file:
        file.write("pass")
    assert os.path.exists(GENERATED)
def gather_for_metrics(total):
    dist.all_reduce(total)
"""
OF_LIBRARY = {
    "import torch\n": "import sys\n"
    "sys.path.append(str(Path(__file__).parent / 'site-packages'))\n"
    "import library, torch\n",
    "DataLoader(shard, 8)": "DataLoader(test, 8, sampler=DistributedSampler(test))",
    "    dist.all_reduce(total)\n": "    library.gather_for_metrics(total)\n",
    "sampler = Dist": "library.generate()\nsampler = Dist",
}


def one_case_per_rule():
    """Return names of cases that together have every finding."""
    missing = set(RULES)
    chosen = []
    for name, rows in read_golden().items():
        found = {row[1] for row in rows}
        if name in CASES and found & missing:
            chosen.append(name)
            missing -= found
    return chosen


FAST = one_case_per_rule()


def fast_and_slow(names):
    """Return names as a test's parameters, slow unless they are in FAST."""
    slow = pytest.mark.slow
    return [pytest.param(one, marks=[] if one in FAST else slow) for one in names]


def test_a_right_script_has_no_finding(tmp_path):
    report = inspect(RIGHT, folder=tmp_path)
    assert report.findings == [], report.text
    assert report.ok == OK
    assert len(report.unchecked) == 1
    assert "info   each step uses 16 samples, 2 ranks x 8: compare" in report.text
    sure = "no errors found in right.py; gradients match one process"
    assert (report.status, report.verdict) == (0, sure + BUT_FOR)


@pytest.mark.parametrize("name", fast_and_slow(CASES))
def test_what_is_said_of_a_mistake(name, tmp_path):
    edits, expected = CASES[name]
    path = tmp_path / "train.py"
    path.write_text(script_of(edits))
    report = inspect(path, folder=tmp_path, patience=2 if "waits" in name else 60)
    assert report.findings + report.unchecked[1:] == expected
    assert not unlisted_fields(tmp_path)
    errors = sum(line.startswith("ERROR") for line in expected)
    assert report.status == (errors > 0)
    assert report.verdict.startswith(f"{errors or 'no'} error")
    takes = "each step uses 16 samples, 2 ranks x 8:"
    assert takes in report.text or name[:5] != "right"
    if "noise after" in name:  # so the ranks' batches can't be merged
        alone = "recomputed on each rank" in report.verdict
        assert alone == (errors == 0 and "added" not in name)
    if "padding" in name or "turns" in name:
        told = report.verdict.removesuffix(BUT_FOR)
        assert told.endswith("; gradients match one process")
    if "two batches" in name:
        assert "each step uses 32 samples, 2 ranks x 2 batches x 8" in report.text
    for words, opposite in NOT_BESIDE.items():
        if re.search(opposite, "".join(expected)):
            assert not re.search(words, "".join(report.ok))


def test_each_rule_has_a_file_of_cases_and_each_such_file_a_rule():
    assert set(rule_files()) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rules_own_cases_show_its_finding_at_its_level(name):
    rule = RULES[name]
    what = re.sub(r"\\{\w+\\}", ".+", re.escape(rule.message))
    expected = rule_files()[name].read_text()
    assert re.search(f"(?m)^{rule.level}  {what}(  <|$)", expected)


def test_events_csv_lists_each_kind_of_event():
    kinds = set()
    for path in Path(onecurve.__file__).parent.rglob("*.py"):
        for match in WRITES_EVENT.finditer(path.read_text()):
            kinds |= set(match.groups()) - {None}
    assert kinds == set(FIELDS)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_what_it_means_and_implies_only_rules(name):
    rule = RULES[name]
    assert rule.means[-1] in ".)" and set(rule.follows) <= set(RULES)
    assert rule.level in LEVELS and rule.ranks in ("each", "own batches", "one")


@pytest.mark.parametrize(
    ("first", "other", "parts"),
    [
        ([2, 1], [2, 1], False),
        ([2, 1], [2], True),
        ([2], [1], True),  # different sizes
        ([2, "group"], [2], False),  # a group without all ranks
    ],
)
def test_ranks_diverge_if_they_make_different_calls(first, other, parts):
    events = [[], []]
    for rank, sizes in enumerate([first, other]):
        for size in sizes:
            call = {"name": "all_reduce", "numbers": size, "dtype": "float32"}
            call |= {"kind": "collective_call", "line": "a.py:1"}
            events[rank].append(call | {"whole": size != "group"})
    seen = Seen(events)
    found = filled_in("different_collectives", different_collectives.find(seen))
    assert [one.name for one in found] == ["different_collectives"] * parts
    told = "".join(fine(Inspection(seen, found)))
    assert ("the same on every rank" in told) == (not parts)


@pytest.mark.parametrize(
    ("collective", "others", "parts"),
    [
        ("all_to_all", {"router": [7, 7]}, {"expert.weight", "expert.bias"}),
        ("all_reduce", {"router": [7, 7]}, set()),  # nothing is sent to the experts
        ("all_to_all", {"expert.bias": [0, 1]}, set()),  # the ranks share no seed
    ],
)
def test_experts_are_parts_and_no_copies(collective, others, parts):
    tensors = {"expert.weight": [0, 1], "expert.bias": [0, 0], **others}
    events = []
    for rank in range(2):
        calls = [{"kind": "collective_call", "name": collective}]
        weights = {name: values[rank] for name, values in tensors.items()}
        events.append([*calls, {"kind": "weights", "weights": weights}])
    assert Seen(events).own_parts() == parts


FOR_GPUS = """
import os
import torch
rank = int(os.environ["LOCAL_RANK"])
assert torch.accelerator.current_device_index() == rank
event = torch.Event("cuda")
stream = torch.cuda.Stream()
stream.wait_stream(torch.accelerator.current_stream())
with torch.cuda.device(rank), torch.cuda.stream(stream):
    batch = torch.ones(2, device=rank).to("cuda", non_blocking=True)
    batch.record_stream(stream)
    event.record(stream)
while not event.query() or not stream.record_event().query():
    pass
torch.cuda.init()
torch.cuda.set_stream(torch.Stream("cuda"))
torch.cuda.set_rng_state(torch.cuda.get_rng_state())
assert torch.cuda.initial_seed() == torch.initial_seed()
assert torch.rand(2, device="cuda", generator=torch.Generator("cuda")).sum() > 0
free, total = torch.cuda.mem_get_info()
assert free <= total and type(torch.cuda.memory_summary()) is str
assert batch.to(device="cuda", dtype=torch.float64).dtype == torch.float64
assert batch.to("cpu", copy=True) is not batch
"""


def pretend_gpus(rank):
    """Make a script see GPUs, as the inspector does."""
    cpu_for_cuda.install(patience=60)


def test_calls_to_a_gpu_do_not_fail_without_one(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FOR_GPUS)
    result = ranks.run([path], 2, prepare=[pretend_gpus])
    assert result.returncode == 0, result.stderr


KILLED = """
import os
import signal
import time
from pathlib import Path

ready = Path(__file__).with_name("ready")
if os.environ["RANK"] == "0":
    while not ready.exists():
        time.sleep(0.01)
    raise SystemExit("rank 1 is gone")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # what is dying is silent
ready.touch()
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rank_that_was_killed_is_told_though_another_ends_before_it(tmp_path):
    """Its connections close first. On a busy machine, the process dies later."""
    path = tmp_path / "train.py"
    path.write_text(KILLED)
    result = ranks.run([path], 2)
    assert result.statuses == [1, -signal.SIGKILL]
    assert result.returncode == signal.SIGKILL


CRASHES = """
import os, signal
from pathlib import Path
mark = Path(__file__).with_name("mark")
if os.system(f"mkdir {mark}") == 0 or "always" in str(mark):
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_rank_that_crashes_is_run_once_more_and_then_told(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(CRASHES)
    assert "failed" not in inspect(path, folder=tmp_path).text
    path = tmp_path / "always.py"
    path.write_text(CRASHES.replace("mark", "always"))
    assert "failed: killed by SIGSEGV" in inspect(path, folder=tmp_path).text


def test_no_dataset_is_known_as_one_that_is_gone():
    """Python reuses its id, on some ranks only. Their epochs would end differently."""
    kept = RandomSampler([0])
    assert own_number(kept) == own_number(kept)
    numbers = set()
    for _ in range(1000):
        numbers.add(own_number(RandomSampler([0])))
    assert len(numbers) == 1000
    rows = [0]
    assert own_number(rows) == own_number(rows) != own_number([0])


def test_a_slow_script_is_compared_in_an_epoch_and_one_step(script, tmp_path):
    slow = "import itertools, time, torch\ntime.process_time = itertools.count(0, 3)"
    text = RIGHT.read_text().replace("import torch\n", f"{slow}.__next__\n", 1)
    report = inspect(script(text), folder=tmp_path)
    assert "gradients of 5 steps match one process" in report.text


def test_a_process_with_other_weights_than_the_ranks_is_not_compared():
    ones = {"gain": torch.ones(3, dtype=torch.float64)}
    zeros = {"gain": torch.zeros(3, dtype=torch.float64)}
    step = {"weights": ones, "given": ones, "unclipped": {}, "losses": [2.0]}
    step |= {"sums": [8.0], "means": [2.0], "short": False, "line": "a:7", "since": {}}
    step["after"] = {}
    other = {**step, "after_pass": [zeros, ones]}
    assert per_rank.judge([step] * 2, [other] * 2) is None  # their mean
    unlike = {**other, "weights": zeros}
    unmade = {**step, "weights": {"gain": ones["gain"].to("meta")}}
    for each, others in ([step] * 2, [other, unlike]), ([unmade] * 2, [other] * 2):
        with pytest.raises(per_rank.Unclear, match="have all of the ranks' weights"):
            per_rank.judge(each, others)


@pytest.mark.parametrize(
    ("orders", "whole"),
    [(False, [2, 0, 1, 1, 0]), (True, [2, 0, 1, 4, 3])],  # rank 1 has samples 3 and 4
)
def test_what_ranks_draw_is_put_together_as_their_samples_are(orders, whole):
    parts = [torch.tensor([2, 0, 1]), torch.tensor([1, 0])]
    assert joined(parts, (5,), orders).tolist() == whole
    columns = [part[None] for part in parts]
    assert joined(columns, (1, 5), False).shape == (1, 5)
    for unlike in (6,), (5, 1), (3,):
        assert joined(parts, unlike, orders) is None


FIRST = "import os, time\ntime.sleep(60 * int(os.environ['RANK']))\n"  # rank 0 fails
NOT_INSPECTED = {
    "import torch\ntorch.multiprocessing.spawn(print, nprocs=3)": "it starts 3 ranks",
    f"{FIRST}open('/no')": "train.py:3: rank 0 failed: FileNotFoundError: [Errno 2]",
    f"{FIRST}raise TypeError('CUDA')": "train.py:3: rank 0 failed: TypeError: CUDA",
}
LAUNCHES = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from itertools import count
def work(rank, folder):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    open(os.path.join(folder, f"rank{rank}"), "w").close()
    for _ in zip(range(3), torch.utils.data.DataLoader(range(9), sampler=count())):
        pass
if __name__ == "__main__":
    folder = os.urandom(4).hex()
    os.makedirs(folder)
    mp.spawn(work, (folder,), nprocs=2)
"""


@pytest.mark.parametrize("text", NOT_INSPECTED)
def test_what_cannot_be_looked_at_is_said_first_with_a_status_of_its_own(
    text, tmp_path
):
    path = tmp_path / "train.py"
    path.write_text(text)
    report = inspect(path, folder=tmp_path)
    said = f"train.py COULD NOT BE INSPECTED: {NOT_INSPECTED[text]}"
    assert " ".join(report.text.split()).startswith(said)
    assert (report.status, report.findings, report.ok) == (2, [], [])


def test_what_starts_the_ranks_runs_once(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(LAUNCHES)
    report = inspect(path, folder=tmp_path)
    assert report.findings == [], report.text
    assert report.verdict.endswith("because no optimizer took a step")


def test_a_report_at_the_time_limit_is_partial(tmp_path, monkeypatch):
    monkeypatch.setattr("onecurve.compare.run.MOST_SECONDS", 8)
    path = tmp_path / "train.py"
    busy = "        sum(range(10**8))\n        if rank == 0:\n"
    path.write_text(RIGHT.read_text().replace("        if rank == 0:\n", busy, 1))
    report = inspect(path, folder=tmp_path)
    assert "no errors found in the first" in report.verdict and report.status == 3
    assert "later steps, evaluations and files" in report.unchecked[1]


def test_nothing_of_the_users_is_overwritten(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(WRITES)
    (tmp_path / "kept").mkdir()
    contents = {"old": "precious", "log": "some ", "model": "best", "kept/weights": "x"}
    contents["gone"] = "not yet"
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    report = inspect(path, folder=tmp_path)
    assert "failed" not in report.text
    for name, text in contents.items():
        assert (tmp_path / name).read_text() == text
    assert not (tmp_path / "made").exists()


def test_a_file_to_which_two_ranks_add_is_copied_once(tmp_path):
    old, twin = tmp_path / "old", tmp_path / "twin"
    old.write_text("precious")
    for _ in range(2):
        copy(old, twin)
        with open(twin, "a") as file:
            file.write(", more")
    assert twin.read_text() == "precious, more, more"
    assert sorted(tmp_path.iterdir()) == [old, twin]


def test_what_a_library_writes_and_gathers_is_not_the_scripts(tmp_path):
    (tmp_path / "site-packages").mkdir()
    library = LIBRARY.format(name=tmp_path.name)
    (tmp_path / "site-packages/library.py").write_text(library)
    text = RIGHT.read_text()
    for old, new in OF_LIBRARY.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / "train.py"
    path.write_text(text)
    report = inspect(path, folder=tmp_path)
    Path("/tmp", f"{tmp_path.name}.py").unlink()  # not redirected
    assert not any("twice" in one for one in report.findings), report.text


def test_other_machines_never_reach_the_ranks():
    store = supervisor.start_store(supervisor.listen())
    found = psutil.Process().net_connections("tcp")
    ours = [one for one in found if one.laddr.port == store.port and not one.raddr]
    assert [one.laddr.ip for one in ours] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("rows", "size", "are_sliced"),
    [
        (["a b", "c d"], 4, True),
        (["a b", "c d"], 1, True),  # a sample is a batch
        (["a", "b"], 1, False),
        (["a b", "b c"], 4, False),
    ],
)
def test_ranks_may_use_parts_of_the_same_batch(rows, size, are_sliced):
    each = {"kind": "pass", "grad": True}
    seen = Seen([[each | {"rows": of_rank.split()}] for of_rank in rows])
    assert sliced(seen, size) == are_sliced
