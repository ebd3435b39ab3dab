"""batchsched under faults: a bad network, a bad control plane, a bad clock, and kill -9."""
