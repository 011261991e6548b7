"""Finds the CUDA toolkit of this machine. Nothing is downloaded."""

def _cuda_configure_impl(repository_ctx):
    nvcc = repository_ctx.which("nvcc")
    if nvcc == None:
        usual = repository_ctx.path("/usr/local/cuda/bin/nvcc")
        nvcc = usual if usual.exists else None
    root = ""
    version = ""
    if nvcc == None:
        # buildifier: disable=print
        print("No nvcc on this machine: the CUDA plugin is not built. Its sources are still " +
              "compiled and tested on the emulator (kernels/cuda/emulator).")
    else:
        root = str(nvcc.dirname.dirname)
        version = repository_ctx.execute([nvcc, "--version"]).stdout.strip().split("\n")[-1]
    repository_ctx.file("BUILD.bazel", "")
    repository_ctx.file("cuda.bzl", """
CUDA_ROOT = "%s"  # empty: none
CUDA_VERSION = "%s"
""" % (root, version))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["PATH"],
    local = True,
)
