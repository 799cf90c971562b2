"""Describe failures: an error and its line, or where each rank was.

`result` is what ranks.run returned, `text` its source, `seen` its ranks' events.
"""

import os
import re
import signal
import traceback
from itertools import takewhile

# Errors on a rank because another one exited or never arrived; not the cause.
OF_OTHERS_END = r"(?i)Connection (closed|reset)|preamble|Broken pipe|Socket|timed? ?out"
OF_OTHERS_END += "|peer"
# Functions in a stack that only call others, as "file:function".
MACHINERY = "/onecurve/|/_ops.py|_impl$|:_?wrapper$|:inner$|:decorate_context$|:<"
# PyTorch's prefixes to C++ messages: one of its files, and what().
NOISE = r"\[[^\]]*/[^\]]*\] *|what\(\): *"


def is_of_others_end(error):
    """Return whether another rank's end caused an error."""
    if error.startswith("torch.distributed.Dist"):
        return True
    return error.startswith("RuntimeError") and bool(re.search(OF_OTHERS_END, error))


def way(frames, name):
    """Return (lines of script `name`, [(function, file)] that it called).

    Both are innermost first, and so are `frames`: (file, line, function).
    """
    lines = [int(line) for file, line, _ in frames if file == name]
    called = []
    for file, _, function in takewhile(lambda frame: frame[0] != name, frames):
        if file.startswith(os.sep) and not re.search(MACHINERY, f"{file}:{function}"):
            short = file.removeprefix(f"{os.path.dirname(name)}/")
            called.append((function, re.sub(".*(-packages|python[^/]*)/", "", short)))
    return lines, called


def line_number(place):
    """Return the line number in "train.py:12", or None."""
    return int(place.rpartition(":")[2]) if place else None


def at(text, line):
    """Return the line of a script with a number as a string, or of None."""
    lines = text.splitlines()
    if not line or line > len(lines):
        return "no line of the script (before its first or after its last)"
    return f"line {line}: {lines[line - 1].strip()}"


def syntax_error(text):
    """Return why a script does not compile, as `error` does, or ''."""
    try:
        compile(text, "script", "exec")
    except (SyntaxError, ValueError) as why:
        told = "".join(traceback.format_exception_only(why)[-1:]).strip()
        line = getattr(why, "lineno", None)
        return f"{told}\n  at {at(text, line)}" if line else told
    return ""


def ending(status):
    """Describe an exit status; 0 and None mean that the rank finished."""
    if not status:
        return "finished"
    if status > 0:
        return f"exited with status {status}"
    why = ", usually because memory ran out" if status == -9 else ""
    return f"killed by {signal.Signals(-status).name}{why}"


def whereabouts(result, text, seen):
    """Return where each rank was at the end, and which collective calls differ."""
    told = ""
    for rank, status in enumerate(result.statuses):
        if rank in result.errors:
            _, line = result.errors[rank]
            what = f"failed at {at(text, line)}"
        elif status is None:
            what = f"is at {at(text, result.places.get(rank))}"
        else:
            what = ending(status)
        told += f"\n  rank {rank} {what}"
    found = seen.first_parting()
    if found:
        number, rank, first, other = found
        told += f"\nRank 0's collective call {number} is {call_at(first)}. "
        told += f"Rank {rank}'s call {number} is {call_at(other)}."
    return told


def call_at(call):
    """Describe a collective call: its name, size and line."""
    if call is None:
        return "missing"
    numbers = f" of {call['numbers']} numbers" if call["numbers"] else ""
    return f"{call['name']}{numbers} at line {line_number(call['line'])}"


def own_error(result):
    """Return (rank, message, line) of the error that ended a run, or None.

    Errors caused by another rank's end don't count. A rank that exited by itself comes
    before ranks that were then killed.
    """
    own = []
    for rank, (told, line) in result.errors.items():
        if not is_of_others_end(told):
            own.append((not result.statuses[rank], rank, told, line))
    return min(own)[1:] if own else None


def ended_silently(result):
    """Return the first rank that failed without an error message, or None."""
    for rank, status in enumerate(result.statuses):
        if status and rank not in result.errors:
            return rank
    return None


def error(result, text, seen):
    """Say why a run failed: an error and its line, or an exit status."""
    statuses = result.statuses
    own = own_error(result)
    if own:
        rank, told, line = own
        lines = re.sub(NOISE, "", told).splitlines()
        what = lines[0][:300] if lines else ""
        if not what:
            what = f"rank {rank} {ending(statuses[rank])}"
        return f"{what}\n  at {at(text, line)}" if line else what
    rank = ended_silently(result)
    if rank is not None:
        what = ending(statuses[rank])
        return f"rank {rank} {what}{whereabouts(result, text, seen)}"
    return f"the ranks did not meet in a collective.{whereabouts(result, text, seen)}"
