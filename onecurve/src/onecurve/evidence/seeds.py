"""Which seeds the ranks set, and what they draw then."""


def seeded_unlike(seen):
    """Return the line that last sets a generator differently on the ranks, or None."""
    last = [{one["generator"]: one for one in each} for each in seen.on_all("seeded")]
    for generator, first in last[0].items():
        if any(one.get(generator, first)["seed"] != first["seed"] for one in last):
            return first["line"]
    return None


def seeded_alike_before(seen, generator, draws):
    """Return the event that last set a generator before draws, if alike, or None."""
    last = []
    for each, draw in zip(seen.on_all("seeded"), draws, strict=True):
        own = [one for one in each if one["generator"] == generator]
        last += [one for one in own if one["time"] < draw["time"]][-1:]
    alike = len(last) == len(draws) and len({one["seed"] for one in last}) == 1
    return last[0] if alike else None


def drawn_at(seen):
    """Return (line, details) of batches drawn after all ranks set the same seed."""
    line = seen.of("pass")[0]["line"]
    for each in seen.together("pass"):
        for generator in each[0]["before"]:
            seeded = seeded_alike_before(seen, generator, each)
            if seeded:
                return seeded["line"], [f"drawn for {line}"]
    return line, []
