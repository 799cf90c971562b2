"""Promise: `make doctor` says what works, and fails only where a stage could not run."""

import re
import shutil

from conftest import call
from tools.run import data, doctor


def test_a_line_for_each_check():
    result = call(["make", "doctor"])
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    found = [re.match(r"(.{14}) (OK|WARNING|FAILURE) +\S", line) for line in lines]
    assert all(found), result.stdout
    assert [match[1].strip() for match in found] == list(doctor.CHECKS)
    assert len(lines) == 10
    assert re.search(
        r"processes +OK +gloo, \d+ processes: all_reduce gives", result.stdout
    )


def test_a_failure_gives_exit_status_1(monkeypatch, tmp_path, capsys):
    (tmp_path / "README.md").write_text("no checksums here")
    monkeypatch.setattr(data, "SAMPLE", tmp_path)
    monkeypatch.setattr(doctor, "CHECKS", {"MNIST": doctor.mnist, "disk": doctor.disk})
    try:
        doctor.main()
    except SystemExit as end:
        assert str(end).startswith("a stage could not run here")
    else:
        raise AssertionError("the doctor found nothing wrong")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2  # it goes on after a failure
    assert "FAILURE" in lines[0]
    assert "is damaged: git checkout data/sample" in lines[0]


def test_a_damaged_sample_is_a_failure(monkeypatch, tmp_path):
    sample = shutil.copytree(data.SAMPLE, tmp_path / "sample")
    monkeypatch.setattr(data, "SAMPLE", sample)
    verdict, _ = doctor.mnist()
    assert verdict != doctor.FAILURE
    path = sample / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    verdict, text = doctor.mnist()
    assert verdict == doctor.FAILURE
    assert f"{path} is damaged" in text


def test_the_official_checksums_cover_every_file():
    assert set(doctor.FULL_SHA256) == set(data.FILES)
    assert all(re.fullmatch("[0-9a-f]{64}", sha) for sha in doctor.FULL_SHA256.values())
