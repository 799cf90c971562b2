"""Which seeds the ranks set, and what they draw then."""


def seeded_unlike(seen):
    """Return the line that last sets a generator differently on the ranks, or None."""
    last = [{one["generator"]: one for one in each} for each in seen.on_all("seeded")]
    for generator, first in last[0].items():
        if any(one.get(generator, first)["seed"] != first["seed"] for one in last):
            return first["line"]
    return None


def seeded_before(seen, generator, draws):
    """Return each rank's event that last set a generator before draws, if any."""
    last = []
    for each, draw in zip(seen.on_all("seeded"), draws, strict=True):
        own = [one for one in each if one["generator"] == generator]
        last += [one for one in own if one["time"] < draw["time"]][-1:]
    return last


def seeded_alike_before(seen, generator, draws):
    """Return the event that last set a generator before draws, if alike, or None."""
    last = seeded_before(seen, generator, draws)
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


def order_drawn(seen, alike=False):
    """Return why ranks draw different orders, or the same if `alike`, as details."""
    longest = None
    for each in seen.together("order"):
        same = len({one["state"] for one in each}) == 1
        if same == alike and len({one["line"] for one in each}) == 1:
            longest = max(longest or each, each, key=lambda one: one[0]["count"])
    if not longest:
        return []
    return [f"order drawn at {longest[0]['line']}: {why_drawn(seen, longest)}"]


def why_drawn(seen, draws):
    """Describe the seeds of the generators that drew the ranks' orders."""
    name = draws[0]["generator"]
    if name == "own":
        return f"its own generator's seeds: {', '.join(one['seed'] for one in draws)}"
    last = seeded_before(seen, name, draws)
    seeds = {one["seed"] for one in last}
    if len(last) < len(draws) or any(one.startswith("none") for one in seeds):
        return f"{name}'s generator has no seed"
    how = "with another seed on each rank" if len(seeds) > 1 else "alike on all ranks"
    return f"{name}'s generator is seeded {how} at {last[0]['line']}"
