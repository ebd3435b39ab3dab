"""The solver: gang selection and placement as an optimisation problem on arrays.

A `Problem` holds capacities, demands, masks, scores, gang sizes, domains and limits; a `Solution` holds counts.
Pods and Kubernetes objects do not occur here, so a problem can be generated, stored and solved on its own.
The greedy always gives a solution; CP-SAT improves it inside a deterministic budget. A verifier that shares no code
with either checks the result.

May import: ``errors``; not ``model``. Only ``cpsat.py`` imports OR-Tools.
"""
