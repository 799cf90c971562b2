"""Promise: all of MNIST where torchvision looks for it; no damaged file."""

import gzip
import hashlib
import re
import shutil

import pytest
from torchvision.datasets import MNIST

from conftest import ROOT, call
from tools.run import data

RAW = data.SAMPLE / "MNIST" / "raw"


@pytest.fixture
def make_data(tmp_path, monkeypatch):
    """Return a function that does what `make data FROM=DIR` does, without a network.

    It fills an empty folder; four .gz files of the sample pass for the official ones.
    """
    folder = tmp_path / "gz"
    folder.mkdir()
    (tmp_path / "data").mkdir()
    resources = []
    for name in data.FILES:
        content = gzip.compress((RAW / name).read_bytes(), mtime=0)
        (folder / f"{name}.gz").write_bytes(content)
        resources.append((f"{name}.gz", hashlib.md5(content).hexdigest()))
    monkeypatch.setattr(MNIST, "resources", resources)
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(data, "FULL", tmp_path / "data" / "mnist")

    def make(source=folder):
        monkeypatch.setattr("sys.argv", ["data", str(source)])
        data.main()

    return make


def test_from_a_folder(make_data, capsys):
    make_data()
    assert data.check(data.FULL) == (4000, 1000)
    assert len(MNIST(data.FULL)) == 4000
    assert [path.name for path in data.FULL.parent.iterdir()] == ["mnist"]
    assert "DATA=data/mnist" in capsys.readouterr().out


def damage(path, how):
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "other":
        shutil.copy(path.with_name("train-labels-idx1-ubyte.gz"), path)
    else:
        path.unlink()


@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("how", ["cut", "other", "missing"])
def test_a_file_that_is_not_the_official_one_is_refused(
    how, was_there, make_data, tmp_path
):
    """What was there stays until the new set is complete and checked."""
    if was_there:
        make_data()
    damage(tmp_path / "gz" / "t10k-labels-idx1-ubyte.gz", how)  # the last of the four
    with pytest.raises(SystemExit, match="t10k-labels-idx1-ubyte.gz; FROM=DIR takes"):
        make_data()
    left = [path.name for path in data.FULL.parent.iterdir()]
    assert left == (["mnist"] if was_there else [])
    assert not was_there or data.check(data.FULL) == (4000, 1000)


def test_a_folder_without_mnist_is_refused_before_a_download(tmp_path):
    result = call(["make", "data", f"FROM={tmp_path}"])
    assert result.returncode != 0
    line = f"FROM={tmp_path}: there is no .gz file of MNIST\n"
    assert result.stderr.startswith(line)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.unlink(), " is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), " is damaged: 1007 by"),
        (lambda path: path.write_bytes(b"no"), " is damaged: 2 bytes instead of 8"),
    ],
)
def test_damaged_data_are_not_trained_on(change, reason, tmp_path):
    root = shutil.copytree(data.SAMPLE, tmp_path / "mnist")
    path = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    change(path)
    with pytest.raises(SystemExit, match=f"^no MNIST in .*{path}{reason}"):
        data.verify(root)


def test_sample_is_what_its_page_says():
    page = (ROOT / "data/sample/README.md").read_text()
    listed = re.findall(r"\| `([\w-]+)` \| (\d+) \| `(\w{64})` \|", page)
    assert len(listed) == 4
    for name, size, digest in listed:
        content = (RAW / name).read_bytes()
        assert len(content) == int(size)
        assert hashlib.sha256(content).hexdigest() == digest


def test_sample_has_every_class_equally_often():
    for train, count in (True, 400), (False, 100):
        targets = MNIST(data.SAMPLE, train=train).targets
        assert targets.bincount().tolist() == [count] * 10
