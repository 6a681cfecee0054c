"""apex.contrib: the parts of it that are not tied to NVIDIA's chips."""
