"""Make .venv and install a size of packages: `python -m tools.run.install stages`.

The sizes are stages, notebooks and dev, each pinned in requirements/. `wheelhouse`
downloads what a later installation without a network needs. TORCH_INDEX is an index for
torch and torchvision, or `default`; WHEELHOUSE is a folder to take all packages from.
It needs the standard library alone: it runs before there is a .venv.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.run import preflight

UV = "uv==0.13.9"
VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
CHOSEN = VENV / "torch-index"  # the index of the first size, for the larger ones too
GPU_ONLY = "nvidia", "cuda", "triton"  # packages that torch for CPUs does not need
QUIET = [] if sys.stderr.isatty() else ["-q"]
PIP = [PYTHON, "-m", "pip", "--disable-pip-version-check"]


def succeeds(*words, **options):
    """Run a command, and return whether its exit status is 0."""
    return subprocess.run([str(word) for word in words], **options).returncode == 0


def choose_index():
    """Return where torch comes from, an address or `default`, and print a choice."""
    if os.environ.get("TORCH_INDEX"):
        return os.environ["TORCH_INDEX"]
    if CHOSEN.exists():
        return CHOSEN.read_text().strip()
    if sys.platform != "linux":
        return "default"  # which has only one build, without CUDA
    if preflight.has_driver():
        print("NVIDIA driver found: torch with CUDA")
        return "default"
    if preflight.unreachable(f"{preflight.CPU}/torch/"):
        print(f"no NVIDIA driver, but {preflight.CPU} does not answer: torch with CUDA")
        return "default"
    print(f"no NVIDIA driver: torch for CPUs, from {preflight.CPU}")
    print("(TORCH_INDEX=default takes the one with CUDA)")
    return preflight.CPU


def make_venv():
    """Make .venv. If that fails, remove it, but only if it was not there before."""
    was_there = VENV.exists()
    has_pip = [PYTHON, "-c", "import pip"]
    if PYTHON.exists() and succeeds(*has_pip, stderr=subprocess.DEVNULL):
        return
    print(f"Making .venv with {sys.executable}", flush=True)
    try:
        made = succeeds(sys.executable, "-m", "venv", VENV)
    except KeyboardInterrupt:
        made = False
    if not made:
        if not was_there:
            shutil.rmtree(VENV, ignore_errors=True)
        sys.exit(f"{sys.executable} could not make .venv: see above")


def requirements(size, with_gpu_packages):
    """Return the lines of a size's pins for torch, and all others."""
    torch = []
    others = []
    for line in (Path("requirements") / f"{size}.txt").read_text().splitlines():
        if line.startswith("torch"):
            torch.append(line)
        elif with_gpu_packages or not line.startswith(GPU_ONLY):
            others.append(line)
    return torch, others


def get(command, size, index, house=None, more=()):
    """Have pip or uv get the pins of a size, and `more`, from an index or a folder."""
    with_gpu_packages = has_cuda(house) if house else index == "default"
    torch, others = requirements(size, with_gpu_packages)
    others += more
    if house:
        parts = [(["--no-index", "--find-links", house], torch + others)]
    else:
        packages = preflight.pip_index(PYTHON)  # uv does not read pip's configuration
        parts = [(["--index-url", index], torch), (["--index-url", packages], others)]
        if index == "default":
            parts = [(["--index-url", packages], torch + others)]
    path = VENV / "requirements.txt"
    for source, lines in parts:
        path.write_text("\n".join(lines) + "\n")
        if not succeeds(*command, *QUIET, *source, "-r", path):
            sys.exit(f"could not get all of {size}.txt: see above, then try again")


def has_cuda(house):
    """Return whether a wheelhouse is one for torch with CUDA."""
    return any(Path(house).glob("nvidia*"))


def setup(size):
    """Make .venv if there is none, and install a size into it."""
    house = os.environ.get("WHEELHOUSE")
    if house and not list(Path(house).glob("torch-*.whl")):
        sys.exit(f"WHEELHOUSE={house}: it has no torch; 'make wheelhouse' fills one")
    index = "default" if house else choose_index()
    cuda = has_cuda(house) if house else index != preflight.CPU
    uv = VENV / "bin" / "uv"
    if not uv.exists():
        index_of_all = None if house else preflight.pip_index()
        problem = preflight.find_problem(cuda, index_of_all)
        if problem:
            sys.exit(problem)
        make_venv()
        source = ["--no-index", "--find-links", house] if house else []
        if not succeeds(*PIP, "install", "-q", *source, UV):
            sys.exit(f"pip could not install {UV}: see above, then try again")
    size_of_all = "3 GB" if cuda else "0.4 GB"
    load = f"from {house}" if house else f"up to {size_of_all} to download"
    room = f"{preflight.DISK[cuda]:.0f} GB on disk"
    print(f"Installing requirements/{size}.txt: {load}, {room}. Once.", flush=True)
    get(
        [uv, "pip", "install", "--compile-bytecode", "--python", VENV],
        size,
        index,
        house,
    )
    if not house:
        CHOSEN.write_text(index + "\n")


def wheelhouse():
    """Download the wheels of `make setup`, for this system and this Python."""
    house = Path(os.environ.get("OUT") or "wheelhouse").resolve()
    # The pins name all packages. Those of torch's index would come a second time.
    download = [*PIP, "download", "--only-binary", ":all:"]
    download += ["--no-deps", "--dest", house]
    get(download, "notebooks", choose_index(), more=[UV])
    sizes = [path.stat().st_size for path in house.glob("*.whl")]
    like = f"{sys.platform} with Python {sys.version_info[0]}.{sys.version_info[1]}"
    print(f"{house}: {len(sizes)} wheels, {sum(sizes) / 1e9:.1f} GB, for {like}")
    print(f"on another machine, without a network: make setup WHEELHOUSE={house}")


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    try:
        wheelhouse() if sys.argv[1] == "wheelhouse" else setup(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
