"""The benches: each is a module or package here with ``main(arguments) -> int``.

``python -m bench`` lists them, and ``python -m bench NAME ARGUMENTS`` runs one. A bench takes its seeds as arguments.
Its figures are quoted with its command in a dated file of ``bench/results/``; ``docs/performance.md`` summarises them
for users.
"""
