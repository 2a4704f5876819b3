"""``python -m probe``."""

import os
import sys

if __name__ == "__main__":
    try:
        from probe.cli import main

        status = main()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        status = 130
    if status == 130:  # a library that was interrupted half-way may end the interpreter in ways of its own
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
    sys.exit(status)
