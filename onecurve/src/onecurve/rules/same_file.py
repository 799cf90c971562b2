"""The last rank to write wins, or the file is corrupted."""

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "ranks {ranks} write the same file: {path}"
FIX = "write on rank 0 only, or use one file per rank"


def find(seen):
    writers = {}
    for rank in seen.ranks:
        for event in seen.of("file", rank):
            writers.setdefault(event["path"], {})[rank] = event
    for path, events in writers.items():
        if len(events) > 1:
            ranks, first = sorted(events), events[min(events)]
            told = [f"called at {first['by']}"] if first["by"] else []
            yield found(first["line"], told, ranks=ranks, path=path)
