"""The tables of a session: gangs, pending gangs, pod specs and topology levels."""
