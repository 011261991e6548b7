"""Rules for sources that both a CUDA compiler and, under the emulator, the host's compile."""

def cuda_emulated_library(name, deps = [], copts = [], **kwargs):
    """A cc_library of .cu.cc and .cc files of kernels/cuda against the emulated CUDA."""
    native.cc_library(
        name = name,
        # Loops are unrolled as nvcc is told to; the host's compiler does not know the pragma.
        copts = copts + ["-Wno-unknown-pragmas"],
        deps = deps + ["//kernels/cuda/emulator"],
        **kwargs
    )
