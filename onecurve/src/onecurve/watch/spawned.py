"""Let each rank be one of the processes that a script starts as its ranks."""

import inspect
import os
import pickle
import re
import runpy
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType

import torch

from onecurve.set_up.replace import replace
from onecurve.start.supervisor import seed_anew

GIVEN = "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE"
REPLACED = "init_method", "world_size", "rank", "store"  # arguments
JOINS = re.compile("init_process_group|set_?up|init_dist")  # in a rank's function
COUNTS = re.compile(r"world|n_?procs|n\w*_?gpus|n\w*_ranks|^size$")  # in names
UNLIKE = "it starts {} ranks itself, not {}: change their number, or use --ranks"
STARTS = re.compile(r"\b(spawn|start_processes)\(")  # in a script that starts ranks
CHILD = "__mp_main__"  # multiprocessing's name of the script in a new process


class Spawned:
    """Calls a rank's function in this process; writes the event `spawned`."""

    def __init__(self, script):
        self.script = script
        self.given = {one: os.environ[one] for one in GIVEN if one in os.environ}
        self.rank = int(self.given.get("RANK", 0))
        self.count = int(self.given.get("WORLD_SIZE", 1))
        self.job = None
        self.begun = False
        self.others = []  # processes that are other ranks
        self.call = Path(script.log.file.name).with_name("spawned")  # of a rank

    def install(self):
        replace("onecurve.start.processes:run_script", self.run_script)
        for name in "spawn", "start_processes":
            replace(f"torch.multiprocessing:{name}", self.spawn)
        replace("multiprocessing.process:BaseProcess.start", self.start)
        replace("torch.distributed:init_process_group", self.join)

    def run_script(self, original, job):
        """Wrap running the script: only rank 0 runs what starts all ranks.

        Other ranks wait until it starts them, or goes on as one of them.
        """
        self.job = job
        text = Path(job.words[0]).read_text(errors="replace")
        if self.rank and STARTS.search(text):
            while not self.call.exists():
                time.sleep(0.02)
            variables, call = pickle.loads(self.call.read_bytes())
            if call:
                os.environ.update(variables | self.given)
                sys.argv = job.words
                self.begin()
                fn, *args = pickle.loads(call)
                self.call_rank(fn, (self.rank, *args), self.count)
        return original(job)

    def hand_over(self, *facts, call=None):
        """Let rank 0 tell other ranks what each calls, or to run the script, too."""
        if not (self.rank or self.call.exists()):
            own = self.call.with_name("spawning")
            own.write_bytes(pickle.dumps((dict(os.environ), call)))
            own.rename(self.call)

    optimizer_made = script_ends = hand_over

    def spawn(self, original, fn, *args, **options):
        """Replace functions that start a process for each rank."""
        given = inspect.signature(original).bind(fn, *args, **options)
        given.apply_defaults()
        _, args, count, _, _, method = given.args
        self.hand_over(call=None if method == "fork" else packed(fn, *args))
        self.expect(count)
        self.be_rank(fn, (self.rank, *args), method == "fork", count)

    def start(self, original, process):
        """Wrap Process.start: ranks start in order, or by a first argument."""
        fn, args = process._target, process._args
        own = isinstance(fn, FunctionType) and self.script.log.is_own(
            inspect.getfile(fn)
        )
        if self.begun or not own or not JOINS.search(inspect.getsource(fn)):
            return original(process)
        given = inspect.signature(fn).bind(*args, **process._kwargs)
        name, first = next(iter(given.arguments.items()), ("", None))
        is_number = type(first) is int and not COUNTS.search(name.lower())
        self.hand_over()
        number = first if is_number else len(self.others)
        self.others.append(process)
        method = process._start_method or torch.multiprocessing.get_start_method()
        if number == self.rank:
            self.be_rank(fn, given.args, method == "fork")

    def join(self, original, *args, **options):
        """Wrap init_process_group: a rank's address and number are those it has."""
        self.hand_over()
        given = inspect.signature(original).bind(*args, **options).arguments
        if self.begun:
            asked = given.get("world_size", -1)
            self.expect(max(asked, int(os.environ["WORLD_SIZE"])))
        if self.given and (self.begun or "store" not in given):
            # a rank of torchrun may have changed its own numbers
            for name in GIVEN if self.begun else GIVEN[:2]:
                os.environ[name] = self.given[name]
            for name in REPLACED if self.begun else REPLACED[:1]:
                given.pop(name, None)
        return original(**given)

    def expect(self, count):
        """End the run unless the script starts our number of ranks."""
        if self.count not in (1, count):  # one process may do all ranks' work
            self.script.cannot_tell(UNLIKE.format(count, self.count))

    def be_rank(self, fn, args, forks, count=None):
        """Call a rank's function, then end this process: the rest is the parent's."""
        whole, name = packed(fn, *args), packed(fn)
        self.begin(forks)
        if not forks:
            fn, *args = pickle.loads(whole) if whole else (*pickle.loads(name), *args)
        self.call_rank(fn, args, count)

    def begin(self, forks=False):
        """Begin as a forked process, or as a new one, which imports the script."""
        self.script.log.write("spawned")
        self.begun = True
        if forks:
            return
        seed_anew()
        main = sys.modules["__main__"]
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if module is not main and file and self.script.log.is_own(file):
                del sys.modules[name]
        if self.job.module:
            names = runpy.run_module(self.job.module, run_name=CHILD, alter_sys=True)
        else:
            names = runpy.run_path(self.job.words[0], run_name=CHILD)
        module = ModuleType(CHILD)
        vars(module).update(names)
        sys.modules["__main__"] = sys.modules[CHILD] = module

    def call_rank(self, fn, args, count):
        """Call a rank's function with its arguments, and end the run."""
        given = dict(zip(inspect.signature(fn).parameters, args, strict=False))
        held = [one for one in given.values() if isinstance(one, Namespace)]
        for values in given, *map(vars, held), getattr(fn, "__globals__", {}):
            self.set_count(values, count)
        fn(*args[:1], *list(given.values())[1:], *args[len(given) :])
        end = self.script.end
        self.script.ends()
        if end:
            end()

    def set_count(self, values, count):
        """Replace a number of ranks, maybe unknown, by 1 if there is one process."""
        for name, value in values.items() if self.count == 1 else ():
            is_count = type(value) is int and COUNTS.search(name.lower())
            if is_count and count in (None, value):
                values[name] = 1


def packed(fn, *args):
    """Return a call as bytes, or None if it has arguments like a queue."""
    with suppress(Exception):
        return pickle.dumps((fn, *args))
