"""The slow loop, one process a node: watches the ranks through shared memory, searches, publishes plans."""
