"""What is measured, and how: each bench is a module or package here with ``main(arguments) -> int``.

``python -m bench`` runs them all as they stand; ``python -m bench NAME ARGUMENTS`` runs one. A bench takes
its seeds as arguments, says what it measures before it says how much, and is quoted with its command in a
dated file of ``bench/results/``; ``docs/performance.md`` summarises these for users.
"""
