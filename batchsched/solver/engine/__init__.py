"""The door to OR-Tools: sparse linear models, integer answers and relaxations. Nobody else imports it."""
