"""How kernels are run: arrays at the border, engines behind it."""
