"""The flags of a stage, read by the script's own `parse_args`."""

import argparse
import ast
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from tools.run.stages import refuse, script


class Parser(argparse.ArgumentParser):
    """The parser that a script makes, with given words in place of sys.argv.

    Whatever is wrong with them ends the program with one line.
    """

    def __init__(self, stage, words, **options):
        super().__init__(f"{stage}/mnist.py", allow_abbrev=False, **options)
        self.stage = stage
        self.words = words

    def parse_args(self):
        return super().parse_args(self.words)

    def error(self, message):
        flags = []
        for action in self._actions[1:]:  # after --help
            flags += action.option_strings
        refuse(f"{self.stage}: {message}; it has {', '.join(flags)}")


def parse_flags(stage, words, device):
    """Return the Namespace that the script of a stage makes of command-line words.

    `device` is the script's DEVICE, `cuda` or `cpu`. Only `parse_args` is compiled,
    from the script's syntax tree. To import the script would import torch, for seconds.
    """
    path = script(stage)
    try:
        tree = ast.parse(path.read_text())
        tree.body = [node for node in tree.body if is_parse_args(node)]
        fake_argparse = SimpleNamespace(ArgumentParser=partial(Parser, stage, words))
        names = {"argparse": fake_argparse, "Path": Path, "__doc__": None}
        names |= {"STAGE": stage, "DEVICE": device}
        exec(compile(tree, path, "exec"), names)  # noqa: S102
        return names["parse_args"]()
    except (SyntaxError, NameError, KeyError) as error:
        refuse(f"cannot read the flags of {path}: {type(error).__name__}: {error}")


def is_parse_args(node):
    return isinstance(node, ast.FunctionDef) and node.name == "parse_args"
