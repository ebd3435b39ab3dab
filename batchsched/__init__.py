"""batchsched: a gang and batch scheduler for Kubernetes.

Everything turns around one function, ``decide(snapshot, profile, now, seed) -> Decision``: a frozen
snapshot of the cluster goes in, and what is to happen comes out, assignments and refusals with their
evidence. The commands, the simulator and the replay are thin shells around it; none has a scheduler of
its own. Same snapshot, profile and seed: the same decision, byte for byte.

The folders are floors. A file imports only from lower floors, and the import contracts in
``pyproject.toml`` hold that; ``docs/architecture.md`` draws the house.
"""

__version__ = "0.1.0"
