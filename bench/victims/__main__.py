"""`python -m bench.victims`."""

import sys

from bench.victims import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
