"""``python -m seqbert``, which is also what torchrun starts."""

import sys

from seqbert.cli import main

if __name__ == "__main__":
    sys.exit(main())
