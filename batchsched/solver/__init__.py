"""The solver: gang selection and placement as an optimization problem on arrays.

A `Problem` holds capacities, demands, masks, scores, gang sizes, domains and limits; a `Solution` holds counts.
Pods and Kubernetes objects do not occur here, so a problem can be generated, stored and solved on its own.
The greedy always gives a solution; CP-SAT improves it inside a deterministic budget. A verifier that shares no code
with either checks the result.

May import: ``errors``, ``ports``; neither ``api`` nor ``config``. Only ``cpsat.py`` imports OR-Tools.
"""
