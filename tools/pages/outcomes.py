"""Run scripts with missing or wrong lines: `python -m tools.pages.outcomes`.

The edits are in switches.diff. The command runs them all, which takes minutes, and
writes the outcomes to outcomes.json. Runs use CPUs and gloo, with data/sample or 90
steps of the second curve. For the front page and variants in bfloat16, the file also
contains the loss of each step.
"""

import json
import math
import re
import tempfile
from statistics import fmean
from textwrap import indent

import torch

from onecurve.api import NOISE, is_of_others_end
from tools.bench import runs
from tools.bench.held import ROUNDED
from tools.bench.tables import table
from tools.lab.running import record_run
from tools.lab.setting import Setting
from tools.pages.switches import STORED, SWITCHES, edited, read_outcomes
from tools.run import compare
from tools.run.edit import variant_stage, variant_text
from tools.run.stages import CPU_PROCESSES, RESUMES, TRANSFORMER, refuse, script

VERSION = torch.__version__.partition("+")[0]
RECORDED = {"torch": VERSION, "backend": "gloo", "data": "data/sample"}
LIMIT = 15  # seconds; a longer run counts as a hang
STEPWISE = "01_cpu", "04_ddp"  # stages of the front page


def run(stage, text, processes, fake="", limit=LIMIT):
    """Run a script's source and return its OUTCOME; kind is "" if it ends well.

    A stage that can resume is stopped after the first epoch and resumed.
    """
    if stage in TRANSFORMER.values():
        curve = run_second_curve(stage, text, processes, "--steps", 90)
        return {"kind": "", "curve": curve}
    setting = Setting(
        processes=processes if processes > 1 else 0,
        batch=64 - 64 % processes,  # divisible by the ranks
        resume=int(stage in RESUMES),
        fake=fake,
    )
    record = record_run(text, stage, setting, limit)
    found = {"kind": "", "curve": [list(row) for row in record.rows]}
    if stage in STEPWISE:
        found["steps"] = step_losses(record)
    if record.hangs:
        lanes = [lane(record, rank) for rank in record.ranks]
        return {**found, "kind": "hangs", "lanes": lanes}
    if record.status:
        error = first_error(record)
        return {**found, "kind": "crashes", "error": error, "exit": record.status}
    return found


def step_losses(record):
    """Return the loss of each step that all ranks took, rounded to six digits.

    It is the mean over the ranks, which have equally many images, or rank 0's loss if
    the script sums nothing.
    """
    losses = []
    for rank in record.ranks:
        losses.append([event["loss"] for event in record.of("backward", rank)])
    steps = zip(*losses, strict=False)
    names = [call["name"] for call in record.of("collective_call")]
    adds_up = any("all_reduce" in name for name in names)
    means = [fmean(step) if adds_up else step[0] for step in steps]
    return [float(f"{mean:.6g}") for mean in means]


def run_second_curve(stage, text, processes, *flags):
    """Return the curve of a script of the second curve, which must not fail."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = processes if stage in CPU_PROCESSES else 0
        runs.run_text(stage, text, ranks, folder, *flags)
        return [list(row) for row in compare.read(f"{folder}/metrics.csv")]


def lane(record, rank):
    """Return how many epochs a rank has trained, and the line where it waits."""
    setting = record.setting
    steps = math.ceil(setting.train / setting.batch)  # per epoch
    epochs = len(record.of("step", rank)) // steps
    if "--resume" in record.result.args:  # only this second run is recorded
        epochs += record.setting.resume
    line = record.result.places.get(rank)
    code = record.text.splitlines()[line - 1].strip() if line else None
    return {"rank": rank, "epochs": epochs, "line": line, "code": code}


def first_error(record):
    """Return the error of the first rank that failed on its own, in one line."""
    errors = record.result.errors
    own = [rank for rank in sorted(errors) if not is_of_others_end(errors[rank][0])]
    aborted = re.findall(r"what\(\): .+", record.result.stderr)  # from C++
    text = "Connection closed by peer"  # the others' error after a rank died
    if aborted:
        text = aborted[0]
    elif own:
        text, _ = errors[own[0]]
    text = text.replace(f"{record.out.parent}/", "")
    first, *more = re.sub(NOISE, "", text).splitlines()
    if first.endswith(":") and more:  # a heading
        first += f" {more[0].strip()}"
    return first


def outcome(switch, processes, right, limit=LIMIT):
    """Return the OUTCOME of a switch; `right` is the unchanged script's curve."""
    stage = switch["stage"]
    text = edited(stage, switch["edits"], switch.get("variant"))
    found = run(stage, text, processes, switch.get("fake", ""), limit)
    if not found["kind"]:
        is_second = stage in TRANSFORMER.values()
        is_equal = equal(found["curve"], right, is_second)
        found["kind"] = "nothing" if is_equal else "moves"
    return found


def equal(curve, other, is_second=False):
    """Return whether two curves have the same length and are equal up to rounding."""
    _, near = compare.judge(curve, other, is_second)
    return near and len(curve) == len(other)


def record_all():
    """Return the data of outcomes.json: all switches' outcomes and the right curves."""
    found = {"recorded": RECORDED, "right": {}, "steps": {}, "switches": {}}
    for switch in SWITCHES:
        stage = switch["stage"]
        right = found["right"].setdefault(stage, {})
        outcomes = found["switches"].setdefault(switch["key"], {})
        for processes in switch["ranks"]:
            number = str(processes)
            if number not in right:
                one = run(stage, script(stage).read_text(), processes)
                if one["kind"]:
                    refuse(f"{stage} on {number} ranks fails unchanged: {one}")
                right[number] = one["curve"]
                if stage in STEPWISE:
                    steps = found["steps"].setdefault(stage, {})
                    steps[number] = one["steps"]
            outcomes[number] = outcome(switch, processes, right[number])
            kind = outcomes[number]["kind"]
            print(f"{switch['key']} on {number}: {kind}", flush=True)
    for name, ranks in [("autocast", "1"), *[(name, "2") for name in ROUNDED]]:
        setting = Setting(processes=int(ranks))
        record = record_run(variant_text(name), variant_stage(name), setting, 60)
        found["right"].setdefault(name, {})[ranks] = [list(row) for row in record.rows]
        found["steps"].setdefault(name, {})[ranks] = step_losses(record)
    return found


def layout(value, depth):
    """Return a value as JSON, with a line for each key down to a depth."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    rows = []
    for name in sorted(value):
        rows.append(f"{json.dumps(name)}: {layout(value[name], depth - 1)}")
    return "{\n" + indent(",\n".join(rows), " ") + "\n}"


def left_out(stage):
    """Return {name: its OUTCOME} of a stage's switches that are in its page's table.

    The name of the unchanged script is "".
    """
    stored = read_outcomes()
    processes = str(CPU_PROCESSES.get(stage, 1))
    found = {"": {"kind": "", "curve": stored["right"][stage][processes]}}
    for switch in SWITCHES:
        if switch["stage"] == stage and switch.get("table"):
            found[switch["name"]] = stored["switches"][switch["key"]][processes]
    return found


def mistakes(stage, *others):
    """Return a table of the mistakes in a stage of the second curve.

    It contains the ranks, the mean loss of each 30 steps, and the number of tokens
    copied in the last 30. `others` are keys of one-process switches whose curves some
    of these changes should match.
    """
    stored = read_outcomes()
    headings = ["change", "ranks", "1–30", "31–60", "61–90", "copied", "why"]
    rows = []
    for number, curve in stored["right"][stage].items():
        rows.append(["none", number, *cells(curve), ""])
    for switch in SWITCHES:
        if switch["stage"] == stage or switch["key"] in others:
            for number, found in stored["switches"][switch["key"]].items():
                why = "" if rows[-1][0] == switch["title"] else switch["says"]
                rows.append([switch["title"], number, *cells(found["curve"]), why])
    return table("lrrrrrl", headings, rows)


def stored_run(word):
    """Return the OUTCOME of a stage, variant or switch on some ranks: `autocast=2`."""
    stored = read_outcomes()
    name, ranks = word.split("=")
    if name in stored["switches"]:
        return stored["switches"][name][ranks]
    curve, steps = [stored[kind][name][ranks] for kind in ("right", "steps")]
    return {"curve": curve, "steps": steps}


def moved(*words):
    """Return a table of the largest distances between two runs at the same step.

    A word is a run to compare with stage 1, or two: `autocast=2:autocast=1`.
    """
    rows = []
    for word in words:
        pair = f"{word}:01_cpu=1".split(":")[:2]
        one, other = [stored_run(name) for name in pair]
        steps = zip(one["steps"], other["steps"], strict=True)
        distance = max(abs(loss - right) for loss, right in steps)
        labels = ["`{}`, {}".format(*name.split("=")) for name in pair]
        rows.append([*labels, f"{one['curve'][-1][0]:.6f}", f"{distance:.5f}"])
    headings = ["script, ranks", "compared with", "last loss", "largest distance"]
    return table("llrr", headings, rows)


def cells(curve):
    """Return a curve's losses and its last count as strings."""
    return [*[f"{loss:.6f}" for loss, *_ in curve], str(curve[-1][1])]


def main():
    """Run every switch and store the outcomes."""
    STORED.write_text(layout(record_all(), 3) + "\n")
