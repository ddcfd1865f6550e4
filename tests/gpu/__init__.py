"""On a machine with an NVIDIA GPU: the real driver, the real devices, the frameworks that use them."""
