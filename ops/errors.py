"""The package's own error classes, re-exported by `ascend_k3`."""


class BackendError(RuntimeError):
    """A backend (a device's kernels, the emulator) is missing or broken."""


class CheckpointError(ValueError):
    """A checkpoint, or a file of it, cannot be used as it is."""


class NonFiniteError(RuntimeError):
    """A state or logits held NaN or an infinity and were refused."""


class NoKernelError(ValueError):
    """The operator has kernels, and none for these arguments; the reference computes them."""
