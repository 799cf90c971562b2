"""The details show each rank's line."""

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "ranks call different collectives (call {number})"
FIX = "make every rank run the same collectives in the same order"
NO_MORE = "no further call"  # to collectives that other ranks call


def find(seen):
    difference = seen.first_parting()
    if difference and not seen.of("join"):  # join() calls collectives unseen
        number, rank, first, other = difference
        details = []
        sizes = first and other and first["name"] == other["name"]
        for one, call in (0, first), (rank, other):
            of = f" of {call['numbers']} numbers" if sizes else ""
            told = f"{call['name']}{of} at {call['line']}" if call else NO_MORE
            details.append(f"rank {one}: {told}")
        yield found((first or other)["line"], details, number=number)
