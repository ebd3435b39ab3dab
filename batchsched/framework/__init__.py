"""The contract between the scheduler and its plugins, and the pipeline that calls the plugins (layer 4).

This package has the extension points in the order of their calls, the answers of plugins, and the state of one cycle.
A refusal is a value with a reason. A failure is an exception; it is caught here, around the call of the plugin.

May import: layers 0 to 3.
"""
