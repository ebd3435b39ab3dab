"""The long runs, by hand: hundreds of kills, and hours of churn. `python -m tests.soak --help` says how."""
