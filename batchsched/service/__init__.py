"""The process of one replica, from start to shutdown, and the installation of batchsched (layer 11)."""
