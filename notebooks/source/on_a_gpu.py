# %% [markdown]
# # On a free GPU
#
# This notebook runs the whole tutorial on a machine with a GPU, such as Colab or Kaggle. There, choose
# a GPU as the accelerator first: Colab has one, Kaggle two. There is nothing to fill in. The last cell prints a report. Please paste it into an issue, with the form *It ran on
# GPUs*: nobody has run this notebook on a GPU so far. The notebook also runs on CPUs.
#
# It uses the PyTorch that is there, and installs no other.

# %%
ADDRESS = "https://github.com/OWNER/NAME"  # `make docs` writes it where there is one

# %% [markdown]
# ## Clone the repository
#
# A notebook that was opened from a clone uses that clone.

# %%
import os
import subprocess
import sys
import time
from pathlib import Path

folders = [Path.cwd(), *Path.cwd().parents]
root = next((f for f in folders if (f / "tools/run/active.py").exists()), None)
if root is None:
    subprocess.run(["git", "clone", "--depth", "1", ADDRESS, "clone"], check=True)
    root = Path("clone").resolve()
os.chdir(root)
sys.path.insert(0, str(root))
print(root)

# %% [markdown]
# ## Install the small packages that are missing
#
# PyTorch and torchvision stay as they are.

# %%
from tools.run.active import is_there, needed

names = [*needed("stages"), "pytest", "pytest-xdist"]
missing = [name for name in names if not is_there(name)]
if not is_there("onecurve"):
    missing.append("./onecurve")
if missing:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *missing], check=True)
print("installed:", " ".join(missing) or "nothing")

# %% [markdown]
# ## A function that runs a command and keeps what it prints
#
# A command that fails does not stop the notebook: it belongs in the report, too.

# %%
report = []
MAKE = ["make", "VENV=none", f"PYTHON={sys.executable}", "DATA=data/sample"]


def run(*words, lines=30):
    """Run a command, print what it prints, keep its last lines for the report."""
    start = time.perf_counter()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    printed = []
    for line in process.stdout:
        print(line, end="", flush=True)
        printed.append(line.rstrip("\n"))
    seconds = time.perf_counter() - start
    command = " ".join(word for word in words if word not in MAKE[1:3])
    report.append(f"$ {command}")
    report.extend(printed[-lines:])
    report.append(f"(exit status {process.wait()}, {seconds:.0f} s)")


# %% [markdown]
# ## Is this machine ready?

# %%
run(*MAKE[:3], "doctor")

# %% [markdown]
# ## The stages, and their curves
#
# With one GPU, stages 4, 5 and 11 share it. The others in `beyond/` then run on the CPU.

# %%
run(*MAKE, "all", "OUT=runs/on_a_gpu", lines=10)

# %%
run(*MAKE, "beyond", "OUT=runs/on_a_gpu", lines=10)

# %% [markdown]
# ## The tests on GPUs
#
# The tests that need more GPUs than there are get skipped, and counted.

# %%
run(sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/gpus")

# %% [markdown]
# ## A short benchmark

# %%
run(*MAKE, "bench", "QUICK=1")

# %% [markdown]
# ## The report
#
# Paste what this prints into the issue.

# %%
import torch

gpus = []
for index in range(torch.cuda.device_count()):
    gpus.append(torch.cuda.get_device_name(index))
print("torch", torch.__version__, "on", ", ".join(gpus) or "no GPU")
print("\n".join(report))
