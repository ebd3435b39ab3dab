"""The Protocols for what the core of batchsched needs from its environment, such as a clock (layer 2).

A Protocol states one need: to bind pods, to tell the time, to call extenders, to report durations. A package above the
core implements it, for a real cluster or for a simulated one. The obligations of an implementation are documented
here and nowhere else.

May import: ``errors``, ``api``. Holds no implementation except defaults that do nothing.
"""
