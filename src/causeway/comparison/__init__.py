"""The device against the CPU, an operator at a time: `compare` and `first_divergence`."""
