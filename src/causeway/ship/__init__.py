"""Models as files that run without Python and without torch: `causeway.export`."""
