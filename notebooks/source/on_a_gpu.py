# %% [markdown]
# # On a free GPU
#
# This notebook runs the whole tutorial on a machine with a GPU, such as Colab or Kaggle. There, choose
# a GPU as the accelerator first: Colab has one, Kaggle two. There is nothing to fill in. The last
# cell prints a report. Please paste it into an issue with the form *It ran on GPUs*, because this
# notebook has not been run on a GPU yet. It also runs on CPUs and uses the installed PyTorch.

# %%
ADDRESS = "https://github.com/OWNER/NAME"  # `make docs` replaces it

# %% [markdown]
# ## Clone the repository
#
# If you opened the notebook from a clone, it uses that clone.

# %%
import os
import subprocess
import sys
import time
from pathlib import Path

folders = [Path.cwd(), *Path.cwd().parents]
root = next((f for f in folders if (f / "tools/run/packages.py").exists()), None)
if root is None:
    subprocess.run(["git", "clone", "--depth", "1", ADDRESS, "clone"], check=True)
    root = Path("clone").resolve()
os.chdir(root)
sys.path.insert(0, str(root))
print(root)

# %% [markdown]
# ## Install missing small packages
#
# PyTorch and torchvision are not changed.

# %%
from tools.run.packages import is_there, needed

names = [*needed(), "pytest", "pytest-xdist"]
missing = [name for name in names if not is_there(name)]
if not is_there("onecurve"):
    missing.append("./onecurve")
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)
print("installed:", " ".join(missing) or "nothing")

# %% [markdown]
# ## A function that runs a command and keeps its output
#
# A failed command doesn't stop the notebook, because it belongs in the report, too.

# %%
report = []
MAKE = ["make", f"PY={sys.executable}", "DATA=data/sample"]


def run(*words, lines=30):
    """Run a command, print its output, and keep its last lines for the report."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    printed = []
    for line in process.stdout:
        print(line, end="", flush=True)
        printed.append(line.rstrip("\n"))
    seconds = time.perf_counter() - start
    command = " ".join(word for word in words if word not in MAKE[1:2])
    report.append(f"$ {command}")
    report.extend(printed[-lines:])
    report.append(f"(exit status {process.wait()}, {seconds:.0f} s)")


# %% [markdown]
# ## Is this machine ready?

# %%
run(*MAKE[:2], "doctor")

# %% [markdown]
# ## The stages and their curves
#
# With one GPU, stages 4, 5 and 11 share it. The other stages in `beyond/` run on the CPU.

# %%
run(*MAKE, "all", "OUT=runs/on_a_gpu", lines=10)

# %%
run(*MAKE, "beyond", "OUT=runs/on_a_gpu", lines=10)

# %% [markdown]
# ## The tests on GPUs
#
# Tests that need more GPUs than there are get skipped and counted.

# %%
run(sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/gpus")

# %% [markdown]
# ## A short benchmark

# %%
run(*MAKE, "bench", "QUICK=1")

# %% [markdown]
# ## The report
#
# Paste this output into the issue.

# %%
import torch

gpus = []
for index in range(torch.cuda.device_count()):
    gpus.append(torch.cuda.get_device_name(index))
print("torch", torch.__version__, "on", ", ".join(gpus) or "no GPU")
print("\n".join(report))
