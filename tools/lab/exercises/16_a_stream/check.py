import ast

from tools.lab.checks import THREE_RANKS, Wrong

# Two images more than three ranks can take in ten batches of 16 each.
UNEVEN = {**THREE_RANKS, "train": 482}


def check(run):
    for setting in {}, THREE_RANKS, UNEVEN:
        record = run(**setting)
        train, _ = record.setting.images
        record.expect_data_parallel(twice=-train % len(record.ranks))
        if setting is UNEVEN:
            record.expect_learning()
        else:
            record.expect_curve(run.original(**setting), "one process")
        expect_stream(record, train)
    server = run.solution(**UNEVEN)
    if read_of(record.text) != read_of(server.text):
        raise Wrong("`read` has changed. It stands for a server: leave it as it is.")


def expect_stream(record, train):
    """Raise Wrong where a DataLoader reads the training images from no stream."""
    loaders = record.of("loader")
    from_stream = any(loader["is_stream"] for loader in loaders)
    by_index = any(loader["size"] == train for loader in loaders)
    if "IterableDataset" not in record.text or (by_index and not from_stream):
        raise Wrong("The training images do not come as a stream any more.")


def read_of(text):
    """Return what the functions `read` of a script do, whatever their comments say."""
    functions = [one for one in ast.walk(ast.parse(text)) if hasattr(one, "args")]
    return [ast.dump(one) for one in functions if getattr(one, "name", "") == "read"]
