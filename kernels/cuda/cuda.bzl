# SPDX-License-Identifier: Apache-2.0
"""Rules for sources that nvcc compiles into the plugin and, for tests, the host's compiler for an emulated card."""

load("@local_cuda//:cuda.bzl", "CUDA_ROOT", "CUDA_VERSION", "CUDNN_HEADER")

# For tests that say what a machine without nvcc gets.
CUDA_PLUGIN_DEFINES = ["LODESTAR_HAS_CUDA_PLUGIN"] if CUDA_ROOT else []

# Machine code for Turing, Ampere (also Ada) and Hopper, and PTX for what comes later.
_ARCHITECTURES = [
    "arch=compute_75,code=sm_75",
    "arch=compute_80,code=sm_80",
    "arch=compute_90a,code=sm_90a",
    "arch=compute_90,code=compute_90",
]

_HOST_FLAGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-sign-compare",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffunction-sections",
]

# The version is part of what an object depends on.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LODESTAR_CUDA_VERSION": CUDA_VERSION}

def _cuda_objects_impl(ctx):
    headers = depset(transitive = [
        dep[CcInfo].compilation_context.headers
        for dep in ctx.attr.deps
    ])
    objects = []
    reports = []
    for source in ctx.files.srcs:
        output = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, source.basename))
        objects.append(output)
        if source.basename.endswith(".cu.cc"):
            report = ctx.actions.declare_file("%s/%s.resources" % (ctx.label.name, source.basename))
            reports.append(report)

            # Profilers and compute-sanitizer name the source lines by -lineinfo, which changes no code.
            # ptxas reports registers, shared memory and spills on the error output.
            # nvcc names its temporary files by process id, and every sandbox counts from 1.
            command = " ".join(
                ["export TMPDIR=$(mktemp -d) && trap 'rm -rf $TMPDIR' EXIT &&"] +
                ["%s/bin/nvcc -x cu -std=c++20 -O3 -lineinfo --expt-relaxed-constexpr -Werror all-warnings -Xptxas -v" % CUDA_ROOT] +
                ["-gencode " + architecture for architecture in _ARCHITECTURES] +
                ["-Xcompiler " + ",".join(_HOST_FLAGS)] +
                ["-I. -c", source.path, "-o", output.path, "2>", report.path] +
                ["|| { cat %s >&2; exit 1; }" % report.path],
            )
            outputs = [output, report]
        else:
            command = " ".join(
                ["g++ -std=c++20 -O2 -isystem %s/include" % CUDA_ROOT] + _HOST_FLAGS +
                ["-I. -c", source.path, "-o", output.path],
            )
            outputs = [output]
        ctx.actions.run_shell(
            command = command,
            env = _ENVIRONMENT,
            inputs = depset([source], transitive = [headers]),
            mnemonic = "Nvcc",
            outputs = outputs,
            progress_message = "Compiling %s for CUDA" % source.short_path,
        )
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(resources = depset(reports)),
    ]

cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "srcs": attr.label_list(allow_files = [".cc"]),
    },
)

def _cuda_plugin_library_impl(ctx):
    ctx.actions.run_shell(
        # The CUDA runtime becomes part of it. Abseil is shared with the process, because Debian's
        # static libraries cannot become part of a shared one; cuBLASLt, half a gigabyte, comes with
        # the toolkit or beside the plugin.
        command = " ".join(
            ["g++ -shared -Wl,--gc-sections -Wl,--no-undefined -Wl,--exclude-libs,ALL"] +
            ["-Wl,--version-script=" + ctx.file.exports.path] +
            ["-o", ctx.outputs.out.path] + [object.path for object in ctx.files.srcs] +
            ["-Wl,--as-needed -labsl_status -labsl_statusor -labsl_cord -labsl_cordz_info"] +
            ["-labsl_cord_internal -labsl_str_format_internal -labsl_strings"] +
            ["-labsl_strings_internal -labsl_throw_delegate -labsl_raw_logging_internal"] +
            ["-L%s/lib64 -lcudart_static -lcublasLt -ldl -lrt -lpthread" % CUDA_ROOT] +
            ["-Wl,--enable-new-dtags '-Wl,-rpath,$ORIGIN:$ORIGIN/../lib:%s/lib64:/usr/local/cuda/lib64'" % CUDA_ROOT],
        ),
        env = _ENVIRONMENT,
        inputs = ctx.files.srcs + [ctx.file.exports],
        mnemonic = "CudaLink",
        outputs = [ctx.outputs.out],
        progress_message = "Linking %s" % ctx.outputs.out.short_path,
    )
    resources = depset(transitive = [
        source[OutputGroupInfo].resources
        for source in ctx.attr.srcs
    ])
    return [
        DefaultInfo(
            files = depset([ctx.outputs.out]),
            runfiles = ctx.runfiles(files = [ctx.outputs.out]),
        ),
        OutputGroupInfo(resources = resources),
    ]

cuda_plugin_library = rule(
    implementation = _cuda_plugin_library_impl,
    attrs = {
        "exports": attr.label(allow_single_file = True),
        "out": attr.output(mandatory = True),
        "srcs": attr.label_list(),
    },
)

def cuda_library(name, srcs = [], hdrs = [], deps = [], host_deps = [], visibility = None):
    """Sources of the plugin, which nvcc compiles, and the host's compiler for tests.

    <name>: the headers, for other libraries and for nvcc. Nothing is compiled.
    <name>_nvcc: the objects for the plugin; only where this machine has nvcc.
    <name>_emulated: testonly, the same sources against the emulator instead of a CUDA toolkit.

    Args:
      name: of the headers.
      srcs: .cu.cc and .cc files, and headers of their own.
      hdrs: headers.
      deps: cuda_library targets of this package.
      host_deps: libraries that know nothing of CUDA.
      visibility: of the headers.
    """
    native.cc_library(
        name = name,
        srcs = [source for source in srcs if source.endswith(".h")],
        hdrs = hdrs,
        visibility = visibility,
        deps = deps + host_deps,
    )
    native.cc_library(
        name = name + "_emulated",
        testonly = True,
        srcs = srcs,
        # Loops are unrolled as nvcc is told to; the host's compiler does not know the pragma.
        copts = ["-Wno-unknown-pragmas"],
        visibility = visibility,
        deps = [":" + name] + [dep + "_emulated" for dep in deps] + ["//kernels/cuda/emulator"],
    )
    sources = [source for source in srcs if source.endswith(".cc")]
    if CUDA_ROOT and sources:
        cuda_objects(
            name = name + "_nvcc",
            srcs = sources,
            deps = [":" + name],
        )

def cudnn_library(name, srcs, otherwise, hdrs, deps, host_deps):
    """Host sources that include cuDNN's headers.

    <name>: compiled for tests that need no card: nothing of CUDA is linked. Empty without cuDNN's headers.
    <name>_nvcc: the objects for the plugin.

    Args:
      name: of the library.
      srcs: .cc files.
      otherwise: .cc files for the plugin in their place where there are no such headers.
      hdrs: headers.
      deps: cuda_library targets of this package that are headers only.
      host_deps: libraries that know nothing of CUDA.
    """
    has_cudnn = bool(CUDNN_HEADER)
    native.cc_library(
        name = name,
        srcs = srcs if has_cudnn else [],
        hdrs = hdrs,
        defines = ["LODESTAR_HAS_CUDNN"] if has_cudnn else [],
        linkopts = ["-ldl"] + (["-Wl,-rpath,%s/lib64" % CUDA_ROOT] if has_cudnn else []),
        deps = deps + host_deps + (["@local_cuda//:cudnn_headers"] if has_cudnn else []),
    )
    if CUDA_ROOT:
        cuda_objects(
            name = name + "_nvcc",
            srcs = srcs if has_cudnn else otherwise,
            deps = [":" + name],
        )

def cuda_plugin(name, out, libraries, srcs, deps, exports, visibility):
    """The shared library that processes load; without nvcc nothing.

    Args:
      name: of the target.
      out: file name.
      libraries: cuda_library targets of this package.
      srcs: host sources of other packages that it needs.
      deps: what these include.
      exports: the linker's version script.
      visibility: of the library.
    """
    if not CUDA_ROOT:
        native.filegroup(name = name, visibility = visibility)
        return
    cuda_objects(
        name = name + "_host_nvcc",
        srcs = srcs,
        deps = deps,
    )
    cuda_plugin_library(
        name = name,
        srcs = [library + "_nvcc" for library in libraries] + [":" + name + "_host_nvcc"],
        exports = exports,
        out = out,
        visibility = visibility,
    )
