"""Limit how long ranks may compute, and wait, even on a busy machine."""

import time

from onecurve.start.processes import seconds_of

HANGS = "hangs"  # no rank makes progress
STOPPED = "stopped"  # a rank computed for too long
LONGEST = 10  # maximum wall time of a run, in timeouts


class Patience:
    """Limits seconds of computing (`timeout`) and of idling, even on a busy machine."""

    def __init__(self, pids, timeout, idle):
        self.pids = pids
        self.timeout = timeout
        self.idle = idle
        self.begun = time.monotonic()
        self.seconds = 0  # of computing at the last progress
        self.since = self.begun  # time of the last progress

    def late(self):
        """Return HANGS, STOPPED, or '' while there is time."""
        now = time.monotonic()
        each = [seconds_of(pid) for pid in self.pids]
        if sum(each) > self.seconds + self.idle / 20:
            self.seconds = sum(each)
            self.since = now
        if now - self.since > self.idle:
            return HANGS
        whole = now - self.begun
        if max(each) > self.timeout or whole > LONGEST * self.timeout:
            return STOPPED
        return ""
