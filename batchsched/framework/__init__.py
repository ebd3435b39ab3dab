"""Floor 4: the contract between the scheduler and its plugins.

The points at which a plugin is asked, in the order in which they are called; the answers it may give; the
state that lives for one cycle; and the pipeline that asks. A refusal is a value and carries its reason;
breakage is an exception, and it is caught here, around the plugin's call, and nowhere else below the shell.

May import: floors 0 to 3.
"""
