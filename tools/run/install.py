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
NEEDED_BY = {
    "stages": "the scripts and the lab need",
    "notebooks": "JupyterLab and the notebooks need",
    "dev": "the tests need",
}
GPU_ONLY = "nvidia", "cuda", "triton"  # packages that torch for CPUs does not need
QUIET = [] if sys.stderr.isatty() else ["-q"]
AGAIN = "see above, then the same command again"


def succeeds(*words, **options):
    """Run a command, and return whether its exit status is 0."""
    return subprocess.run([str(word) for word in words], **options).returncode == 0


def choose_index():
    """Return where torch comes from, an address or `default`, and print a choice."""
    if os.environ.get("TORCH_INDEX"):
        return os.environ["TORCH_INDEX"]
    if CHOSEN.exists():
        return CHOSEN.read_text().strip() or "default"
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


def write_requirements(name, lines):
    """Return the path of a new file in .venv with these lines."""
    path = VENV / name
    path.write_text("\n".join(lines) + "\n")
    return path


def make_venv():
    """Make .venv. If that fails, remove it, but only if it was not there before."""
    was_there = VENV.exists()
    if PYTHON.exists() and succeeds(
        PYTHON, "-c", "import pip", stderr=subprocess.DEVNULL
    ):
        return
    print(f"Making .venv with {sys.executable}", flush=True)
    try:
        made = succeeds(sys.executable, "-m", "venv", VENV)
    except KeyboardInterrupt:
        made = False
    if not made:
        if not was_there:
            shutil.rmtree(VENV, ignore_errors=True)
        advice = "rm -r .venv, then again" if was_there else "what it says is above"
        sys.exit(f"{sys.executable} could not make .venv: {advice}")


def install_uv(house):
    """Install uv with pip, whose output is shown only if that fails."""
    words = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "-q", UV]
    if house:
        words += ["--no-index", "--find-links", house]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        print(result.stdout + result.stderr, file=sys.stderr)
        sys.exit(f"pip could not install {UV}: {AGAIN}")


def install(size, index, house):
    """Install a size's pins with uv; return whether all of them were found."""
    has_gpu_packages = any(Path(house).glob("nvidia*")) if house else index == "default"
    torch, others = requirements(size, has_gpu_packages)
    uv = [VENV / "bin" / "uv", "pip", "install", *QUIET, "--compile-bytecode"]
    uv += ["--python", VENV]
    if house:
        everything = write_requirements("all.txt", torch + others)
        return succeeds(*uv, "--no-index", "--find-links", house, "-r", everything)
    # uv does not read pip's configuration.
    packages = ["--default-index", preflight.pip_index(PYTHON)]
    if index == "default":
        everything = write_requirements("all.txt", torch + others)
        return succeeds(*uv, *packages, "-r", everything)
    first = write_requirements("torch.txt", torch)
    rest = write_requirements("rest.txt", others)
    found = succeeds(*uv, "--index-url", index, "-r", first)
    return found and succeeds(*uv, *packages, "-r", rest)


def setup(size):
    """Make .venv if there is none, and install a size into it."""
    house = os.environ.get("WHEELHOUSE")
    if house:
        if not list(Path(house).glob("torch-*.whl")):
            sys.exit(
                f"WHEELHOUSE={house}: it has no torch; 'make wheelhouse' fills one"
            )
        index = "default"
        cuda = any(Path(house).glob("nvidia*"))
    else:
        index = choose_index()
        cuda = index != preflight.CPU
    if not (VENV / "bin" / "uv").exists():
        problems = preflight.look(cuda, None if house else preflight.pip_index())
        if problems:
            sys.exit("\n".join(problems))
        make_venv()
        install_uv(house)
    load = f"from {house}" if house else f"up to {3 if cuda else 0.4} GB to download"
    room = f"{preflight.DISK[cuda]:.0f} GB on disk"
    print(f"Installing what {NEEDED_BY[size]}: {load}, {room}. Once.", flush=True)
    if not install(size, index, house):
        sys.exit(f"could not install {size}.txt: {AGAIN}")
    if not house:
        CHOSEN.write_text(index + "\n")


def wheelhouse():
    """Download the wheels of `make setup`, for this system and this Python."""
    house = Path(os.environ.get("OUT") or "wheelhouse").resolve()
    index = choose_index()
    pip = [PYTHON, "-m", "pip", "download", *QUIET, "--disable-pip-version-check"]
    pip += ["--only-binary", ":all:", "--dest", house]
    torch, others = requirements("notebooks", index == "default")
    if index == "default":
        others = torch + others
        found = True
    else:
        first = write_requirements("torch.txt", torch)
        found = succeeds(*pip, "--index-url", index, "-r", first)
    rest = write_requirements("rest.txt", [*others, UV])
    if not found or not succeeds(*pip, "--no-deps", "-r", rest):
        sys.exit(f"could not download all: {AGAIN}")
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
