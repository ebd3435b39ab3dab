"""`python -m bench.cluster`."""

import sys

from bench.cluster import main

sys.exit(main(sys.argv[1:]))
