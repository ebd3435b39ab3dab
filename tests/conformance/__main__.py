"""`python -m tests.conformance [FOLDER]`."""

import sys

from tests.conformance.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
