# SPDX-License-Identifier: Apache-2.0
"""Targets of fuzzing that are tests, too."""

def fuzz_test(name, executions, deps, linkopts = []):
    """cc_test of NAME.cc: its corpus, and so many changed inputs.

    With --config=fuzz libFuzzer has the main(); see soak.sh.

    Args:
      name: of the source; the corpus is in corpus/NAME without "_fuzz".
      executions: of changed inputs in a test run: about ten seconds of a slow core.
      deps: of the source.
      linkopts: likewise.
    """
    corpus = "corpus/" + name[:-len("_fuzz")]
    native.cc_test(
        name = name,
        size = "medium",
        srcs = [name + ".cc"],
        args = [
            "tests/fuzz/" + corpus,
            "--executions=%d" % executions,
        ],
        data = native.glob([corpus + "/**"]),
        linkopts = linkopts + select({
            ":libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps + [":one_input"] + select({
            ":libfuzzer": [],
            "//conditions:default": [":driver"],
        }),
    )
