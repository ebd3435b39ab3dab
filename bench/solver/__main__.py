"""`python -m bench.solver`."""

import sys

from bench.solver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
