"""The command line with the stand-ins, as a program of its own: for signals, workers and limits."""

import os
import sys
from pathlib import Path

from tests.cli import fakes

fakes.install(Path(os.environ["FAKE_FAMILIES"]))

if __name__ == "__main__":
    from probe.cli import main

    sys.exit(main())
