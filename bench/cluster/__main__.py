"""`python -m bench.cluster`."""

import sys

from bench.cluster.matrix import main

sys.exit(main(sys.argv[1:]))
