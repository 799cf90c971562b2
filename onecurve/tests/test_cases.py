"""Promise: each case of the judge is one edit of a script, with a complete key."""

import itertools

import pytest
from read_keys import CASES, PARTS, read

FIRST = ["diffusion", "nanogpt", "sharded", "stream", "tagger", "trainer"]
NEW = ["clip", "gan", "lora", "recsys", "vit"]
UNSEEN = ["detector", "distill", "ppo", "speech", "translate"]
BLIND = ["forecast", "graphs", "mlm", "segment", "triplets", "vae"]
MORE = ["dino", "dpo", "packed", "pinn", "ranking", "tabular"]
LAST = ["codec", "flow", "keypoints", "moe", "superres", "survival"]
LATEST = ["anomaly", "kgraph", "maml", "multitask", "nerf", "qat"]
NEWEST = ["captions", "dqn", "instruct", "mae", "ocr", "skipgram"]
LATER = NEW + UNSEEN + BLIND + MORE + LAST + LATEST


def test_the_cases_are_62_and_30_and_30_and_four_times_36_and_60():
    names = {*FIRST, *LATER, *NEWEST}
    assert {path.name for path in CASES.iterdir()} == names
    assert sum(len(read(name)) for name in FIRST) == 62
    assert sum(len(read(name)) for name in NEW) == 30
    assert sum(len(read(name)) for name in UNSEEN) == 30
    assert sum(len(read(name)) for name in BLIND) == 36
    assert sum(len(read(name)) for name in MORE) == 36
    assert sum(len(read(name)) for name in LAST) == 36
    assert sum(len(read(name)) for name in LATEST) == 36
    assert sum(len(read(name)) for name in NEWEST) == 60


@pytest.mark.parametrize("name", LATER)
def test_all_of_the_new_ones_are_held_back(name):
    assert all(version.held_back for version in read(name))


@pytest.mark.parametrize("name", FIRST + NEWEST)
def test_every_second_mistake_of_the_first_and_the_newest_is_held_back(name):
    held = [version.held_back for version in read(name)]
    assert len(held) >= 10
    assert all(one != other for one, other in itertools.pairwise(held))


@pytest.mark.parametrize("name", FIRST + LATER + NEWEST)
def test_each_edit_applies_once_and_compiles_and_has_its_key(name):
    compile((CASES / name / "train.py").read_text(), name, "exec")
    scripts = set()
    for version in read(name):
        script = version.script()
        compile(script, version.mistake, "exec")
        scripts.add(script)
        for piece in version.lines:
            assert any(piece in line for line in script.splitlines()), piece
        assert set(version.not_ok) <= set(PARTS), version.mistake
        assert all([version.mistake, version.cause, *version.accept])
    assert len(scripts) == len(read(name))
