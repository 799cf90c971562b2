"""Promise: MNIST is complete and undamaged where torchvision expects it."""

import gzip
import hashlib
import re
import shutil

import pytest

from conftest import ROOT, call
from tools.run import data

RAW = data.SAMPLE / "MNIST" / "raw"


@pytest.fixture
def official(tmp_path, monkeypatch):
    """Return a folder with the sample's .gz files, accepted as the official ones.

    The tool fills an empty folder without a network, as `make data FROM=DIR` does.
    """
    from torchvision.datasets import MNIST  # takes seconds to import

    (tmp_path / "gz").mkdir()
    (tmp_path / "data").mkdir()
    resources = []
    for name in data.FILES:
        content = gzip.compress((RAW / name).read_bytes(), mtime=0)
        (tmp_path / "gz" / f"{name}.gz").write_bytes(content)
        resources.append((f"{name}.gz", hashlib.md5(content).hexdigest()))
    monkeypatch.setattr(MNIST, "resources", resources)
    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setattr(data, "FULL", tmp_path / "data" / "mnist")
    return tmp_path / "gz"


@pytest.mark.parametrize("damage", ["cut", "other", "missing"])
def test_what_is_there_stays_until_the_new_set_is_complete(official, damage, capsys):
    path = official / "t10k-labels-idx1-ubyte.gz"  # the last of the four
    content = path.read_bytes()
    for is_there in False, True:
        path.unlink() if damage == "missing" else path.write_bytes(content[:-9])
        if damage == "other":
            shutil.copy(official / "train-labels-idx1-ubyte.gz", path)
        with pytest.raises(SystemExit, match=f"{path.name}.*; FROM=DIR reads the four"):
            data.main(str(official))
        assert data.FULL.exists() == is_there
        path.write_bytes(content)
        data.main(str(official))
        assert data.check(data.FULL) == (4000, 1000)
        assert len(data.tensors(data.FULL)) == 4000
        assert [path.name for path in data.FULL.parent.iterdir()] == ["mnist"]
    assert "DATA=data/mnist" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_refused_before_a_download(official):
    data.FULL.parent.rmdir()
    data.FULL.parent.touch()
    with pytest.raises(SystemExit, match=r"^cannot write to .*\. DATA=DIR can "):
        data.main(str(official))


def test_a_folder_without_mnist_is_refused_before_a_download(tmp_path):
    result = call(["make", "data", f"FROM={tmp_path}"])
    assert result.returncode != 0
    assert result.stderr.startswith(f"FROM={tmp_path}: no .gz files of MNIST there\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is missing"),
        (b"\0\0\x08\x01" + bytes(1003), "is damaged: 1007 bytes instead of 8"),
        (b"\0\0\x08\x03" + bytes(1004), "is damaged: its header is wrong"),
        ((RAW / "train-labels-idx1-ubyte").read_bytes(), "4000 labels for 1000 images"),
    ],
    ids=["missing", "cut", "wrong magic number", "swapped"],
)
def test_damaged_data_are_not_trained_on(content, reason, tmp_path):
    root = shutil.copytree(data.SAMPLE, tmp_path / "mnist")
    path = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(content) if content else path.unlink()
    reason = f"^no MNIST in .*{path.name} .*{reason}.*DATA=data/sample"
    with pytest.raises(SystemExit, match=reason):
        data.verify(root)


def test_the_sample_is_what_its_page_says():
    page = (ROOT / "data/sample/README.md").read_text()
    listed = re.findall(r"\| `([\w-]+)` \| (\d+) \| `(\w{64})` \|", page)
    assert len(listed) == 4
    for name, size, digest in listed:
        content = (RAW / name).read_bytes()
        assert len(content) == int(size)
        assert hashlib.sha256(content).hexdigest() == digest
    for train, count in (True, 400), (False, 100):
        _, labels = data.tensors(data.SAMPLE, train).tensors
        assert labels.bincount().tolist() == [count] * 10
