"""Findings: what a rule yields, to which its name and message are added."""

from dataclasses import dataclass, field


@dataclass
class Finding:
    """A finding: its level, message, line, details per rank, and fix."""

    name: str
    level: str | None  # ERROR, SLOW or LOOK
    what: str
    line: str | None  # such as train.py:12
    details: list
    fix: str | None
    facts: dict  # fill in the message
    cause: str | None  # what to point to: a key of sources.CAUSES
    factor: float | None = None  # of a gradient that differs by nothing else
    consequences: list = field(default_factory=list)  # what other findings say


def found(line, details=(), level=None, fix=None, cause=None, **facts):
    """Return what a rule found; `level` and `fix` override the rule's."""
    return Finding("", level, "", line, list(details), fix, facts, cause)


def of_each_rank(values):
    """Return a line for each rank with its value."""
    return [f"rank {rank}: {value}" for rank, value in enumerate(values)]
