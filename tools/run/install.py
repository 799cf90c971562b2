"""Make .venv and install a size of packages: `python -m tools.run.install stages`.

The sizes are stages, notebooks and dev, each pinned in requirements/; `wheelhouse`
downloads what a later installation without a network needs. TORCH_INDEX is an index
for torch and torchvision, or `default`; WHEELHOUSE a folder to take all packages from.
Plain Python, for the same reason as `preflight`.
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
CHOSEN = VENV / "torch-index"  # what was chosen once holds for the larger sizes too
NEEDED_BY = {
    "stages": "the scripts and the lab need",
    "notebooks": "JupyterLab and the notebooks need",
    "dev": "the tests need",
}
TORCH = "torch"
CUDA_ONLY = "nvidia", "cuda", "triton"  # what a torch for CPUs does without
QUIET = [] if sys.stderr.isatty() else ["-q"]


def call(*words, **options):
    """Run a command and return whether it ended well."""
    return subprocess.run([str(word) for word in words], **options).returncode == 0


def pins(size, torch):
    """Return a requirements file's lines for torch, or the others for CPUs."""
    lines = (Path("requirements") / f"{size}.txt").read_text().splitlines()
    if torch:
        return [line for line in lines if line.startswith(TORCH)]
    return [line for line in lines if not line.startswith((TORCH, *CUDA_ONLY))]


def written(name, lines):
    """Return the path of a file in .venv with these lines."""
    path = VENV / name
    path.write_text("\n".join(lines) + "\n")
    return path


def choose_index():
    """Return where torch comes from, an address or `default`, and if we chose that.

    Prints the choice where it is one.
    """
    given = os.environ.get("TORCH_INDEX")
    if given:
        return given, False
    if CHOSEN.exists():
        return CHOSEN.read_text().strip() or "default", False
    if sys.platform != "linux":
        return "default", False  # which has one build alone, without CUDA
    if preflight.has_driver():
        print("NVIDIA driver found: torch with CUDA")
    elif preflight.unreachable(f"{preflight.CPU}/torch/"):
        print(f"no NVIDIA driver, but {preflight.CPU} does not answer: torch with CUDA")
    else:
        print(f"no NVIDIA driver: torch for CPUs, from {preflight.CPU}")
        print("(TORCH_INDEX=default takes the one with CUDA)")
        return preflight.CPU, True
    return "default", True


def make_venv():
    """Make .venv; where that fails, remove it only if it was not there before."""
    there = VENV.exists()
    if PYTHON.exists() and call(PYTHON, "-c", "import pip", stderr=subprocess.DEVNULL):
        return
    print(f"Making .venv with {sys.executable}", flush=True)
    try:
        made = call(sys.executable, "-m", "venv", VENV)
    except KeyboardInterrupt:
        made = False
    if not made:
        if not there:
            shutil.rmtree(VENV, ignore_errors=True)
        advice = "rm -r .venv, then again" if there else "what it says is above"
        sys.exit(f"{sys.executable} could not make .venv: {advice}")


def install_uv(house):
    """Install uv with pip, whose words are shown only where that fails."""
    words = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "-q", UV]
    words += ["--no-index", "--find-links", house] if house else []
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        print(result.stdout + result.stderr, file=sys.stderr)
        sys.exit(f"pip could not install {UV}: see above, then the same command again")


def install(size, index, house):
    """Install what is pinned for a size; return whether all of it was found."""
    uv = [VENV / "bin" / "uv", "pip", "install", *QUIET, "--compile-bytecode"]
    uv += ["--python", VENV]
    everything = Path("requirements") / f"{size}.txt"
    if house:
        if not any(Path(house).glob("nvidia*")):
            everything = written("all.txt", pins(size, True) + pins(size, False))
        return call(*uv, "--no-index", "--find-links", house, "-r", everything)
    if index != "default":
        lines = written("torch.txt", pins(size, torch=True))
        if not call(*uv, "--index-url", index, "-r", lines):
            return False
        everything = written("rest.txt", pins(size, torch=False))
    # uv does not read what pip was told of another index.
    packages = preflight.pip_index(PYTHON)
    return call(*uv, "--default-index", packages, "-r", everything)


def setup(size):
    """Make .venv if need be, choose where torch comes from, and install a size."""
    house = os.environ.get("WHEELHOUSE")
    if house and not list(Path(house).glob("torch-*.whl")):
        sys.exit(f"WHEELHOUSE={house}: no torch in there; 'make wheelhouse' fills one")
    index, ours = ("default", False) if house else choose_index()
    cuda = any(Path(house).glob("nvidia*")) if house else index != preflight.CPU
    if not (VENV / "bin" / "uv").exists():
        wrong = preflight.look(cuda, None if house else preflight.pip_index())
        if wrong:
            sys.exit("\n".join(wrong))
        make_venv()
        install_uv(house)
    load = f"from {house}" if house else f"up to {3 if cuda else 0.4} GB to download"
    room = f"{preflight.DISK[cuda]:.0f} GB on disk"
    print(f"Installing what {NEEDED_BY[size]}: {load}, {room}. Once.", flush=True)
    done = install(size, index, house)
    if not done and ours and index != "default":
        print(f"{index} does not have these: torch with CUDA, then", flush=True)
        index = "default"
        done = install(size, index, house)
    if not done:
        sys.exit(
            f"could not install {size}.txt: see above, then the same command again"
        )
    if not house:
        CHOSEN.write_text(index + "\n")


def wheelhouse():
    """Download the wheels of `make setup`, for this system and this Python."""
    house = os.environ.get("OUT") or "wheelhouse"
    index = choose_index()[0]
    pip = [PYTHON, "-m", "pip", "download", *QUIET, "--disable-pip-version-check"]
    pip += ["--only-binary", ":all:", "--dest", house]
    everything = Path("requirements/notebooks.txt")
    done = True
    if index != "default":
        lines = written("torch.txt", pins("notebooks", torch=True))
        done = call(*pip, "--index-url", index, "-r", lines)
        everything = written("rest.txt", pins("notebooks", torch=False))
    if not (done and call(*pip, "--no-deps", "-r", everything, UV)):
        sys.exit("could not download all: see above, then the same command again")
    house = Path(house).resolve()
    found = [path.stat().st_size for path in house.glob("*.whl")]
    like = f"{sys.platform} with Python {sys.version_info[0]}.{sys.version_info[1]}"
    print(f"{house}: {len(found)} wheels, {sum(found) / 1e9:.1f} GB, for {like}")
    print(f"on another machine, without a network: make setup WHEELHOUSE={house}")


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    try:
        wheelhouse() if sys.argv[1] == "wheelhouse" else setup(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
