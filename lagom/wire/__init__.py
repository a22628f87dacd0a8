"""The Python half of ``csrc/``: the only place where bytes of the shared region are known."""
