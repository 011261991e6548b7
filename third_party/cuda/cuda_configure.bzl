# SPDX-License-Identifier: Apache-2.0
"""Finds the CUDA toolkit of this machine, and cuDNN's headers. Nothing is downloaded."""

# Of cuDNN 9, which first has it.
_CUDNN_HEADER = "cudnn_graph.h"

# What a test that makes plans without nvcc includes.
_BUILD = """
cc_library(
    name = "cudnn_headers",
    hdrs = glob([
        "toolkit/*.h",
        "toolkit/crt/*.h",
    ]),
    includes = ["toolkit"],
    visibility = ["//visibility:public"],
)
"""

# Folders that nvcc and the host's compiler search.
def _find_cudnn(repository_ctx, root):
    for folder in [root + "/include", "/usr/include", "/usr/include/x86_64-linux-gnu"]:
        header = repository_ctx.path(folder + "/" + _CUDNN_HEADER)
        if header.exists:
            return str(header.realpath)
    return ""

def _cuda_configure_impl(repository_ctx):
    nvcc = repository_ctx.which("nvcc")
    if nvcc == None:
        usual = repository_ctx.path("/usr/local/cuda/bin/nvcc")
        nvcc = usual if usual.exists else None
    root = ""
    version = ""
    cudnn = ""
    build = ""
    if nvcc == None:
        # buildifier: disable=print
        print("No nvcc on this machine: the CUDA plugin is not built. Its sources are still " +
              "compiled and tested on the emulator (kernels/cuda/emulator).")
    else:
        root = str(nvcc.dirname.dirname)
        version = repository_ctx.execute([nvcc, "--version"]).stdout.strip().split("\n")[-1]
        cudnn = _find_cudnn(repository_ctx, root)
    if cudnn:
        repository_ctx.symlink(root + "/include", "toolkit")
        build = _BUILD
    repository_ctx.file("BUILD.bazel", build)
    repository_ctx.file("cuda.bzl", """
CUDA_ROOT = "%s"  # empty: none
CUDA_VERSION = "%s"
CUDNN_HEADER = "%s"  # empty: none
""" % (root, version, cudnn))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["PATH"],
    local = True,
)
