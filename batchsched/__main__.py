"""`python -m batchsched`: the command line, for an environment without its scripts on the PATH."""

from batchsched.cli import main

if __name__ == "__main__":
    main()
