# SPDX-License-Identifier: Apache-2.0
"""A header compiled once for many sources."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    options = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            use_pic = True,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        ),
    )
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include <%s>\n" % name for name in ctx.attr.headers]))
    precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = options + ["-x", "c++-header", header.path, "-o", precompiled.path],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        inputs = depset([header], transitive = [toolchain.all_files]),
        mnemonic = "PrecompileHeader",
        outputs = [precompiled],
        progress_message = "Precompiling %s" % header.short_path,
    )
    return [DefaultInfo(files = depset([header, precompiled]))]

# <name>.h, which includes `headers`, and what the compiler keeps of it: for hdrs of a cc_library.
# A source has the use of it with "-include" on its command line, before its own first token, and
# with the same options, `copts` and those of --force_pic (.bazelrc) among them. With others the compiler reads <name>.h instead, and says so with
# -Winvalid-pch.
precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "copts": attr.string_list(),
        "headers": attr.string_list(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
