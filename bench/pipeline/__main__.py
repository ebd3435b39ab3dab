"""`python -m bench.pipeline`."""

import sys

from bench.pipeline import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
