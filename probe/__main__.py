"""``python -m probe``."""

import sys

if __name__ == "__main__":
    try:
        from probe.cli import main

        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
