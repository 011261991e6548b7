# SPDX-License-Identifier: Apache-2.0
"""One library and its tests for the sources of a folder."""

# Sources that are no part of the library: each is a program of its own.
PROGRAMS = ["*_main.cc", "*_benchmark.cc", "*_fuzz.cc"]

def lodestar_room(name, srcs = [], deps = [], test_deps = [], tests = {}, joined_tests = {}, exclude = [], cold = False, copts = [], visibility = None, **attributes):
    """Makes a library of the folder's sources and a small test of each `*_test.cc`.

    Args:
      name: of the library. A room has the name of its folder.
      srcs: generated sources, beside those of the folder.
      deps: dependencies of the library, and of its tests.
      test_deps: further dependencies of the tests. GoogleTest with its main() is always there.
      tests: attributes of tests that differ from others, by the name of the test; `deps` come on top.
      joined_tests: sources that are linked into one test, which saves time, by the name of the test.
      exclude: files of the folder that other targets have.
      cold: True means that no path that takes time goes through the room: it is compiled with -O1.
      copts: options of the compiler, for the library.
      visibility: of the library. None means the package's default.
      **attributes: of the library, as for cc_library.
    """
    tests_of = dict(joined_tests)
    joined = [source for sources in joined_tests.values() for source in sources]
    for source in native.glob(["*_test.cc"], exclude = PROGRAMS + exclude + joined):
        tests_of[source[:-len(".cc")]] = [source]
    native.cc_library(
        name = name,
        srcs = native.glob(["*.cc"], exclude = ["*_test.cc"] + PROGRAMS + exclude) + srcs,
        hdrs = native.glob(["*.h"], exclude = exclude),
        copts = copts + (["-O1"] if cold else []),
        visibility = visibility,
        deps = deps,
        **attributes
    )
    for test, sources in tests_of.items():
        others = dict(tests.get(test, {}))
        size = others.pop("size", "small")
        own_deps = others.pop("deps", [])
        native.cc_test(
            name = test,
            size = size,
            srcs = sources,
            deps = [":" + name, "//third_party:googletest_main"] + deps + test_deps + own_deps,
            **others
        )
