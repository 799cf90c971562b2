"""Run scripts as a check does, several of them at the same time."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from onecurve import api
from tools.lab import recorder
from tools.lab.record import Record
from tools.lab.setting import Setting
from tools.run.sample import cut
from tools.run.stages import BY_NAME

PATIENCE = 120  # seconds for a correct script, since the machine may be busy
RECORDS = {}  # {Job: Record} of correct scripts, to judge many answers


class Job(NamedTuple):
    text: str  # the script's source
    stage: str
    setting: Setting
    limit: float  # seconds until the run counts as hanging


class Running:
    """A job's run, which begins at once."""

    def __init__(self, job):
        self.job = job
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name).resolve()
        self.out = folder / "out"
        path = folder / job.stage / BY_NAME[job.stage].file
        path.parent.mkdir()
        path.write_text(job.text, encoding="utf-8")
        self.prepare = recorder.record, folder, str(path), job.setting.fake
        words = [path, "--out", self.out]
        if not job.setting.steps:
            images = job.setting.train, job.setting.test
            words += ["--data", cut(folder / "data", *images)]
        self.lines = job.setting.command_lines(*words)
        self.next()

    def next(self):
        """Begin the next of the job's command lines."""
        setting = self.job.setting
        line = self.lines.pop(0)
        processes = setting.processes
        if self.lines and setting.first:
            processes = setting.first
        self.last_step = setting.killed_after if len(self.lines) == 1 else 0
        prepare = *self.prepare, self.last_step
        options = {"timeout": self.job.limit, "prepare": prepare}
        self.run = api.Run(line, processes, float64=setting.float64, **options)

    def record(self):
        """Return the Record of the last line, or of an earlier one that fails."""
        with self.folder:
            result = self.run.result()
            while self.lines and (self.last_step or not result.returncode):
                self.next()
                result = self.run.result()
            text, _, setting, limit = self.job
            events = api.read_ranks(self.out.parent, setting.processes or 1)
            return Record(events, result, self.out, text, setting, limit)

    def end(self):
        self.run.end()
        self.folder.cleanup()


def record_of(job, begun):
    """Return a job's Record; `begun` is {Job: Running} of some that have begun."""
    if job in RECORDS:
        return RECORDS[job]
    record = (begun.pop(job, None) or Running(job)).record()
    if job.limit == PATIENCE:
        RECORDS[job] = record
    return record


def record_run(*job):
    """Run a script (text, stage, setting, limit) and return its Record."""
    return Running(Job(*job)).record()
