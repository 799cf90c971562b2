"""Which seeds the ranks set."""


def seeds_set(seen):
    """Return {generator: (line, whether equal)} of the last seeds on all ranks."""
    last = []
    for each in seen.on_all("seeded"):
        last.append({one["generator"]: (one["seed"], one["line"]) for one in each})
    found = {}
    for generator, (seed, line) in last[0].items():
        if all(generator in one for one in last):
            alike = all(one[generator][0] == seed for one in last)
            found[generator] = line, alike
    return found


def seeds_set_alike(seen):
    """Return {generator: line} of the last seeds, if all ranks set the same one."""
    seeds = seeds_set(seen)
    return {name: line for name, (line, alike) in seeds.items() if alike}


def drawn_at(seen):
    """Return (line, details) of batches drawn after all ranks set the same seed."""
    line = seen.of("pass")[0]["line"]
    seeded = seeds_set_alike(seen)
    for one in seen.of("pass"):
        for generator in one["before"]:
            if generator in seeded:
                return seeded[generator], [f"drawn for {line}"]
    return line, []
