"""``python -m probe.preview``; see `probe.preview.command`."""

import sys

from probe.preview.command import main

if __name__ == "__main__":
    sys.exit(main())
