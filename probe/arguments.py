"""How the commands read their arguments: a mistake ends as one sentence that names the nearest option."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from probe import jobs, registry


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence and name the nearest option."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse, with families and options in any order; ends the process, with status 2, on a mistake."""
        found, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            self.error(f"{unknown[0]} is not understood here{registry.nearest(unknown[0], options)}")
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` shows what it takes.\n")


def whole(least: int, what: str) -> Callable[[str], int]:
    """The type of an argument that is a whole number, at least ``least``; ``what`` names it in the error."""

    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if int(text) >= least:
                return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}, a whole number from {least}")

    return read


def named(text: str) -> str:
    """The type of an argument that is a name: an empty one, as an unset variable leaves it, names nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: give it a name, or leave it out")
    return text


def directory(text: str) -> Path:
    """The type of an argument that is a folder, there or not yet."""
    path = Path(named(text))
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder: name another one")
    return path


def add_load_options(parser: Parser) -> None:
    """The options that say what is loaded, and how."""
    parser.add_argument("--checkpoint", metavar="ID", type=named, help="Hub id, twin, saved directory, or GGUF file")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="dtype of the weights")
    parser.add_argument("--device", default="cpu", type=named, help="torch device (default: cpu)")
    parser.add_argument("--attn", choices=("eager", "sdpa"), help="attention implementation (default: as published)")
    parser.add_argument("--offline", action="store_true", help="never reach for the network")


def load_options(found: argparse.Namespace) -> jobs.Options:
    """What `add_load_options` read, put into effect for libraries that are imported later."""
    options = jobs.Options(dtype=found.dtype, device=found.device, attn=found.attn, offline=found.offline)
    jobs.prepare(options, getattr(found, "workers", 1))
    return options
