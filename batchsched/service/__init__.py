"""Floor 11: the process of one replica: its start, leader election, reloads and shutdown, and the installation."""
