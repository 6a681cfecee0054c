"""The errors that Causeway raises, one family. A message says what happened, where, and what to do.

The C++ core raises the same classes (`_C.set_error_types`). Out of memory is not here: it is
torch's own `torch.OutOfMemoryError`, so that code which catches it goes on working.
"""


class CausewayError(RuntimeError):
    """Anything that Causeway itself refuses or cannot do."""


class VendorError(CausewayError):
    """The vendor's library could not be loaded, or a call failed; with the vendor's message."""


class DeviceLostError(VendorError):
    """The device is gone. Every later call on it raises this at once; only a new process gets it
    back.
    """


class FallbackError(CausewayError):
    """An operator went to the host rung where the policy says "error", or its budget is spent."""


class UnsupportedDtypeError(CausewayError, TypeError):
    """The chip has no such dtype. A TypeError too: that is what torch raises for one where CUDA has
    none.
    """


class DeviceIndexError(CausewayError, IndexError):
    """A kernel on the device found an index out of range. A kernel cannot raise, so this comes
    where the host waits next for the stream.
    """


class ConfigError(CausewayError, ValueError):
    """A setting that does not exist, or a value that it does not take."""


class TraceError(CausewayError, ValueError):
    """A trace, or a file of cases, that is damaged, of another version, or not one at all; with the
    file and the line.
    """


class NonFiniteError(CausewayError, ArithmeticError):
    """An operator gave infinity or NaN, and the overflow watch was asked to raise."""
