# SPDX-License-Identifier: Apache-2.0
"""Generates C++ messages and gRPC stubs with Debian's protoc."""

def lodestar_proto_library(name, src, deps = [], grpc = False, visibility = None):
    """cc_library of one .proto file.

    Args:
      name: target name.
      src: the .proto file; imports are paths from the workspace root.
      deps: other lodestar_proto_library targets that `src` imports.
      grpc: whether the file has services.
      visibility: of the library.
    """
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc"]
    plugin = ""
    if grpc:
        outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
        plugin = " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.filegroup(
        name = name + "_src",
        srcs = [src] + [d + "_src" for d in deps],
        visibility = ["//:__subpackages__"],
    )
    native.genrule(
        name = name + "_gen",
        srcs = [src] + [d + "_src" for d in deps],
        outs = outs,
        cmd = "protoc -I. --cpp_out=$(GENDIR)" + plugin + " $(location " + src + ")",
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        # Generated code is not ours to warn about.
        copts = ["-w"],
        visibility = visibility,
        deps = deps + ["//third_party:protobuf"] + (["//third_party:grpc"] if grpc else []),
    )
