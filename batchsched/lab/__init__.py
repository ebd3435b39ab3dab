"""Floor 7: experiments and what they show.

Scenarios, sweeps over policies, and the self-contained HTML reports. Here things are wired, compared and
drawn; nothing is decided.

May import: floors 0 to 6; not ``service``.
"""
