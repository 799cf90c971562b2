"""Promise: MNIST where torchvision looks for it, or the sample; no damaged file."""

import gzip
import hashlib
import re
import shutil

import pytest
from torchvision.datasets import MNIST

from conftest import ROOT, call
from tools.run import data as tool

RAW = ROOT / "data/sample/MNIST/raw"


def official(folder, monkeypatch):
    """Make four .gz files of the sample that pass for the official ones."""
    folder.mkdir()
    resources = []
    for name in tool.FILES:
        content = gzip.compress((RAW / name).read_bytes(), mtime=0)
        (folder / f"{name}.gz").write_bytes(content)
        resources.append((f"{name}.gz", hashlib.md5(content).hexdigest()))
    monkeypatch.setattr(MNIST, "resources", resources)
    return folder


@pytest.fixture
def full(tmp_path, monkeypatch):
    """Point the tool at an empty data folder; a download fails as without a network."""
    monkeypatch.setattr(tool, "FULL", tmp_path / "data" / "mnist")
    monkeypatch.setattr(tool, "OFFLINE", tmp_path / "data" / ".offline")

    def download(self):
        raise RuntimeError("no network")

    monkeypatch.setattr(MNIST, "download", download)
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "mnist"


def test_from_a_folder(full, tmp_path, monkeypatch):
    tool.fetch(official(tmp_path / "gz", monkeypatch))
    assert tool.check(full) == (4000, 1000)
    assert len(MNIST(full)) == 4000
    assert [path.name for path in full.parent.iterdir()] == ["mnist"]


@pytest.mark.parametrize("damage", ["cut", "other", "missing"])
def test_a_damaged_file_is_refused_by_name(full, tmp_path, monkeypatch, damage):
    folder = official(tmp_path / "gz", monkeypatch)
    path = folder / "t10k-images-idx3-ubyte.gz"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    if damage == "other":
        shutil.copy(folder / "train-labels-idx1-ubyte.gz", path)
    if damage == "missing":
        path.unlink()
    with pytest.raises(ValueError, match=re.escape(str(path))):
        tool.fetch(folder)
    assert not full.exists()
    assert list(full.parent.iterdir()) == []


def test_a_set_that_is_there_stays_until_the_new_one_is_checked(
    full, tmp_path, monkeypatch
):
    folder = official(tmp_path / "gz", monkeypatch)
    tool.fetch(folder)
    path = folder / "t10k-labels-idx1-ubyte.gz"  # the last of the four
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        tool.fetch(folder)
    with pytest.raises(OSError, match="the download of MNIST failed"):
        tool.fetch()
    assert tool.check(full) == (4000, 1000)
    assert [found.name for found in full.parent.iterdir()] == ["mnist"]


def test_without_a_network_the_sample_is_used_and_said(
    full, monkeypatch, tmp_path, capsys
):
    assert tool.choose() == tool.SAMPLE
    first = capsys.readouterr().out
    assert "the download of MNIST failed" in first
    assert tool.choose() == tool.SAMPLE  # no second attempt, but said again
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "4000 training and 1000 test images" in line
    assert "make data" in line
    tool.fetch(official(tmp_path / "gz", monkeypatch))  # a later `make data`
    assert tool.choose() == full
    assert "sample" not in capsys.readouterr().out


def test_read_only_data_do_not_stop_a_run(tmp_path):
    """A shared folder: what is there is used, and results go where OUT says."""
    if tool.FULL.exists():
        pytest.skip("data/mnist is there, so nothing has to be written")
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    only_read = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && "$@"'
    if not shutil.which("unshare") or call([*alone, only_read, RAW, "true"]).returncode:
        pytest.skip("nothing can be mounted here")
    (ROOT / "data/.offline").unlink(missing_ok=True)
    alone += [only_read, ROOT / "data", "make"]
    result = call([*alone, "cpu", f"OUT={tmp_path}", "EPOCHS=1"])
    assert result.returncode == 0, result.stderr
    assert "4000 training and 1000 test images" in result.stdout
    assert (tmp_path / "metrics.csv").exists()
    result = call([*alone, "data"])
    assert result.stderr.startswith(f"cannot write to {ROOT}/data: DATA=DIR names")
    assert "Traceback" not in result.stderr


def test_damaged_data_are_not_trained_on(full, monkeypatch, tmp_path):
    tool.fetch(official(tmp_path / "gz", monkeypatch))
    path = full / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SystemExit, match=f"^no MNIST in .*{path} is damaged: 3136"):
        tool.verify(tool.choose())


def test_sample_is_what_its_page_says():
    page = (ROOT / "data/sample/README.md").read_text()
    listed = re.findall(r"\| `([\w-]+)` \| (\d+) \| `(\w{64})` \|", page)
    assert len(listed) == 4
    for name, size, digest in listed:
        content = (RAW / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (
            int(size),
            digest,
        )
    assert sum(int(size) for _, size, _ in listed) < 5_000_000


def test_sample_has_every_class_equally_often():
    for train, count in (True, 400), (False, 100):
        targets = MNIST(ROOT / "data/sample", train=train).targets
        assert targets.bincount().tolist() == [count] * 10


def test_make_data_names_the_missing_file(tmp_path):
    if tool.FULL.exists():
        pytest.skip("data/mnist is there, so FROM= is not read")
    result = call(["make", "data", f"FROM={tmp_path}"])
    assert result.returncode != 0
    assert f"{tmp_path}/train-images-idx3-ubyte.gz is missing" in result.stderr
    assert "Traceback" not in result.stderr
