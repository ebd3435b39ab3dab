"""Floor 3: the optimisation, on arrays only.

A problem is capacities, demands, masks, scores, gang sizes, domains and limits; a solution is counts.
There are no pods here and no Kubernetes, so a problem can be generated, stored and solved on its own.
The greedy always answers; CP-SAT improves on it inside a deterministic budget; a checker that shares no
code with either has the last word.

May import: ``errors``; not ``model``. Only ``cpsat.py`` imports OR-Tools.
"""
