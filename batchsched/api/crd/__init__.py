"""The custom resources of batchsched, and what they share."""
