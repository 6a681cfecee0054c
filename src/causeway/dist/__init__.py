"""torch.distributed for the device: the backend "cwcl", and the names a vendor wants for it."""
