"""``python -m litmuskit``."""

import sys

from litmuskit.cli import main

if __name__ == "__main__":
    sys.exit(main())
