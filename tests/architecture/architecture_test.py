# SPDX-License-Identifier: Apache-2.0
"""Checks the checkout against layer_rules.py, and that every rule can fail."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import build_graph
import layer_rules
import page_rules
import prose_rules

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def violations_of(path, text):
    return violations_of_files({path: text})


def violations_of_files(text_of_path, check=layer_rules.check_tree):
    with tempfile.TemporaryDirectory() as root:
        for path, text in text_of_path.items():
            full_path = os.path.join(root, path)
            os.makedirs(os.path.dirname(full_path), exist_ok=True)
            with open(full_path, "w", encoding="utf-8") as file:
                file.write(text)
        return list(check(root))


class RulesCanFail(unittest.TestCase):
    def assert_refused(self, path, text):
        self.assertNotEqual(violations_of(path, text), [], f"{path}: {text[:60]}")

    def assert_taken(self, path, text):
        self.assertEqual(violations_of(path, text), [])

    def test_layers(self):
        self.assert_refused("kernels/a.cc", '#include "proto/convert.h"\n')
        self.assert_refused("common/a.h", '#include "proto/convert.h"\n')
        self.assert_refused("common/a.h", '#include "kernels/device.h"\n')
        self.assert_refused("server/sync/a.cc", '#include "worker/data/dataset.h"\n')
        self.assert_refused("worker/a.cc", '#  include "server/server.h"\n')
        self.assert_refused("server/server.cc", '#include "site/site_uplink.h"\n')
        self.assert_refused("worker/a.cc", '#include "site/site_uplink.h"\n')
        self.assert_refused("server/server_main.cc", '#include "worker/worker.h"\n')
        self.assert_refused("server/a.cc", '#include "tests/cluster/cluster.h"\n')
        self.assert_refused("worker/a.cc", '#include "deploy/psctl/exit_code.h"\n')
        self.assert_taken("server/shard/a.cc", '#include "kernels/device.h"\n')
        self.assert_taken("tests/cluster/a.cc", '#include "server/server.h"\n')
        self.assert_taken("site/a.cc", '#include "worker/worker.h"\n#include "server/site/site.h"\n')
        self.assert_taken("server/server_main.cc", '#include "site/site_uplink.h"\n')

    def test_kernels_stay_plain(self):
        for include in ("<grpcpp/grpcpp.h>", "<google/protobuf/message.h>", "<spdlog/spdlog.h>",
                        "<chrono>", '"absl/time/clock.h"', '"common/runtime/clock.h"',
                        '"common/logging/logging.h"'):
            self.assert_refused("kernels/cpu/a.cc", f"#include {include}\n")

    def test_common_knows_no_wire(self):
        self.assert_refused("common/a.cc", "#include <grpcpp/grpcpp.h>\n")
        self.assert_refused("common/a.cc", '#include "google/protobuf/message.h"\n')

    def test_generated_types_stay_at_the_edge(self):
        include = '#include "proto/job.pb.h"\n'
        self.assert_refused("server/sync/a.cc", include)
        self.assert_refused("worker/trainer/a.cc", include)
        self.assert_refused("deploy/a.cc", include)
        self.assert_taken("server/rpc/a.cc", include)
        self.assert_taken("worker/client/a.cc", include)

    def test_log_has_one_door(self):
        self.assert_refused("server/a.cc", "#include <spdlog/spdlog.h>\n")
        self.assert_taken("common/logging/logging.cc", "#include <spdlog/spdlog.h>\n")

    def test_cuda_has_one_seam(self):
        emulator = '#include "kernels/cuda/emulator/emulator.h"\n'
        self.assert_refused("kernels/cuda/matmul.cc", emulator)
        self.assert_taken("kernels/cuda/compiler_seam.h", "#ifndef __CUDACC__\n" + emulator)
        self.assert_taken("kernels/cuda/testing/rig.h", emulator)
        self.assert_taken("worker/trainer/rounds_test.cc", emulator)
        self.assert_refused("kernels/cuda/launch.h", "#ifdef __CUDACC__\n")
        self.assert_refused("kernels/device.h", "#include <cuda_runtime.h>\n")
        self.assert_taken("kernels/cuda/launch.h", "#include <cuda_runtime.h>\n")

    def test_kernels_say_shapes(self):
        self.assert_refused("kernels/cuda/a.cu.cc", "struct Call {\n  const float* x;\n};\n")
        self.assert_refused("kernels/cuda/a.h", "struct Call {\n  T* y = nullptr;  // out\n};\n")
        self.assert_taken("kernels/cuda/a.h", "struct Call {\n  T* y;  // [rows, columns]\n};\n")
        for pointed_to in ("__nv_bfloat16", "Lanes<T, 4>", "unsigned long", "cuda::Bf16"):
            self.assert_refused("kernels/cuda/a.h", f"struct Call {{\n  const {pointed_to}* x;\n}};\n")
        self.assert_taken("kernels/cuda/a.h", "class Device {\n  Errors* errors_;\n};\n")
        self.assert_refused("kernels/cuda/a.h", "struct Call {\n  int64_t row_stride;\n};\n")
        self.assert_taken("kernels/cuda/a.h", "struct Call {\n  int64_t row_stride;  // elements\n};\n")

    def test_kernels_have_names_of_their_own(self):
        kernel = "__global__ void __launch_bounds__(kWarps* Few(1), 2)\n    AddKernel(float* y) {\n"
        files = {"kernels/cuda/a.cu.cc": kernel, "kernels/cuda/b.cu.cc": kernel}
        self.assertNotEqual(violations_of_files(files), [])
        files["kernels/cuda/b.cu.cc"] = kernel.replace("Add", "Subtract")
        self.assertEqual(violations_of_files(files), [])

    def test_types_have_names_of_their_own(self):
        def source(before, after, head="struct Count"):
            return f"namespace lodestar {{\n{before}{head} {{\n  int a;\n}};\n{after}}}  // namespace lodestar\n"

        files = {"common/runtime/a.h": source("", ""), "tests/b.h": source("", "", head="class Count final : public A")}
        self.assertNotEqual(violations_of_files(files), [])
        for unlike in (source("namespace {\n", "}  // namespace\n"), source("namespace b {\n", "}  // namespace b\n"),
                       source("", "", head="struct Count::State"), source("", "", head="struct Counts"),
                       "namespace lodestar {\nstruct Count;\n}  // namespace lodestar\n"):
            files["tests/b.h"] = unlike
            self.assertEqual(violations_of_files(files), [], unlike)
        for fields in ("void Describe(Archive& archive, Count& count)", "struct StoredForm<Count>"):
            files = {path: source("", "template <>\n" + fields + " {\n}\n", head="struct " + path[0].upper())
                     for path in ("common/runtime/a.cc", "tests/b.cc")}
            self.assertNotEqual(violations_of_files(files), [], fields)

    def test_folders_have_namespaces(self):
        def block(name, content="void Run();"):
            return f"namespace {name} {{\n\n{content}\n\n}}  // namespace {name}\n"

        self.assert_taken("worker/client/a.h", block("lodestar::client"))
        self.assert_taken("worker/client/a.h", block("lodestar::client::tables"))
        self.assert_taken("server/shard/testing/a.h", block("lodestar::shard"))
        self.assert_taken("proto/a.h", block("lodestar::wire"))
        self.assert_taken("tests/a.h", block("lodestar"))
        self.assert_taken("worker/client/a.h", block("lodestar::archive", "// Why.\ntemplate <>\nstruct StoredForm<A> {};"))
        for name in ("lodestar", "lodestar::shard", "lodestar::clients"):
            self.assert_refused("worker/client/a.h", block(name))
            declaration = block(name, "class Run;\nenum class Kind : uint8_t;") + block("lodestar::client")
            self.assert_taken("worker/client/a.h", declaration)

    def test_includes_are_of_direct_dependencies(self):
        def violations(deps, include):
            return violations_of_files({
                "common/BUILD.bazel":
                    'load("//rules:b.bzl", "twice")\ncc_library(name = "a", hdrs = ["a.h"])\n'
                    f'twice(name = "b", deps = {deps})\n',
                "rules/b.bzl":
                    "def twice(name, deps):\n"
                    '    native.cc_library(name = name, srcs = native.glob([name + ".*"]), deps = deps)\n',
                "common/a.h": "", "common/b.cc": f"#include {include}\n",
            }, build_graph.check_includes)

        self.assertEqual(violations([":a"], '"common/a.h"'), [])
        self.assertEqual(violations(["//common:a"], '"common/a.h"'), [])
        self.assertEqual(violations(["//third_party:absl"], '"absl/status/status.h"'), [])
        self.assertEqual(violations([], "<vector>"), [])
        self.assertNotEqual(violations([], '"common/a.h"'), [])
        self.assertNotEqual(violations([":a"], '"common/c.h"'), [])
        self.assertNotEqual(violations([":c"], '"common/a.h"'), [])
        self.assertNotEqual(violations([":a"], "<grpcpp/grpcpp.h>"), [])

    def test_comments_are_sentences(self):
        def violations(comment, path="server/a.h"):
            return violations_of_files({path: comment}, prose_rules.check_prose)

        for wrong in ("// Of the last layer.\n", "// Whose rounds are over.\n", "// Nobody waits.\n",
                      "// The members,\n// likewise.\n", "int a;  // Of rounds.\n",
                      "// Most bytes; 0: no limit.\n", "// 0: no limit.\n"):
            self.assertNotEqual(violations(wrong), [], wrong)
        self.assertNotEqual(violations("# Of a job.\n", "server/a.sh"), [])
        for wrong in ("Text.\n\n- Of a job.\n", "| `a` | Nobody waits. |\n", "A server,\nlikewise.\n", "1. Whose rounds.\n",
                      "No limit\nis given by 0. 0: none.\n", "# Of a job\n", "a. So, too.\n"):
            self.assertNotEqual(violations(wrong, "docs/howto/a.md"), [], wrong)
            self.assertNotEqual(violations(wrong, "README.md"), [], wrong)
        for right in ("```\nOf a job.\n```\n", "Text `likewise`.\n", "    Nobody waits.\n", "| 0 | none of it |\n"):
            self.assertEqual(violations(right, "docs/a.md"), [], right)
        for right in ("// Offers work. 0 means no limit.\n", "// Codes: 77: skipped.\n", 'text = "// Of a job.";\n'):
            self.assertEqual(violations(right), [], right)

    def test_docstrings_of_the_python_package_are_sentences(self):
        def violations(docstring, folder="worker/python"):
            text = f'class A:\n    def b(c):\n        """{docstring}"""\n'
            return violations_of_files({folder + "/a.py": text}, prose_rules.check_prose)

        for wrong in ("Of rank 0.", "Those of the job.", "That of c.", "Returns c.\n\n        Of rank 0.", "Nobody waits.",
                      "Does b.\n\n        Args:\n          c: of d, whoever asks.", "Returns c; 0: no limit."):
            self.assertNotEqual(violations(wrong), [], wrong)
            self.assertEqual(violations(wrong, "tests"), [], wrong)
        for right in ("Returns c of rank 0.", "Does b.\n\n        Args:\n          c: of d."):
            self.assertEqual(violations(right), [], right)

    def test_links_of_pages_lead_somewhere(self):
        heading = "# A `page` of\n\n## Many, words: here\n\n## Many words here\n"

        def violations(text, path="docs/howto/a.md"):
            return violations_of_files({"docs/index.md": "[a](howto/a.md), [b](howto/b.md)\n", "docs/howto/b.md": heading,
                                        "docs/howto/a.md": "\n", path: text}, page_rules.check_pages)

        for dead in ("[c](c.md)\n", "[b](b.md#a-page)\n", "[b](#of)\n", "![p](p.png)\n", "[b](b.md#many-words-here-2)\n",
                     "[`b`](../b.md)\n", "text\n[b](\nb.md) and [c](c.md \"title\")\n"):
            self.assertNotEqual(violations(dead), [], dead)
        for live in ("[b](b.md)\n", "[b](b.md#many-words-here)\n", "[b](b.md#many-words-here-1)\n", "[c](http://c.example)\n",
                     "[b](b.md#a-page-of)\n", "# Of\n[b](#of)\n", "```\n[c](c.md)\n```\n", "[h](../howto)\n"):
            self.assertEqual(violations(live), [], live)
        self.assertNotEqual(violations('f("docs/howto/c.md says more")\n', path="server/a.cc"), [])
        self.assertNotEqual(violations("// docs/howto/b.md#c\n", path="server/a.cc"), [])
        self.assertEqual(violations('f("docs/howto/b.md says more")\n', path="server/a.cc"), [])
        self.assertNotEqual(violations("# C\n", path="docs/howto/c.md"), [])

    def test_messages_that_the_page_of_errors_quotes_are_said(self):
        source = 'Log("round ", round, " waits for "\n    "2 workers");\n'

        def violations(row):
            return violations_of_files({"docs/index.md": "[e](reference/errors.md)\n", "server/a.cc": source,
                                        "docs/reference/errors.md": f"| message | why |\n|---|---|\n{row}\n"},
                                       page_rules.check_pages)

        for said in ("| a worker: `waits for 2 workers` | `not said` |", "| `round 7 waits for ...` | |", "| *not said* | |"):
            self.assertEqual(violations(said), [], said)
        for unsaid in ("| `waits for 2 servers` | |", "| `round 7 waits upon ...` | |", "| `workers wait` | |"):
            self.assertNotEqual(violations(unsaid), [], unsaid)

    def test_planted_faults_apply(self):
        fault = "--- a/server/a.cc\n+++ b/server/a.cc\n@@ -1,2 +1,2 @@\n int a;\n-int b;\n+int c;\n"
        path = "tests/simulation/faults/a.patch"
        self.assertEqual(violations_of_files({path: fault, "server/a.cc": "int a;\nint b;\n"}), [])
        self.assertNotEqual(violations_of_files({path: fault, "server/a.cc": "int a;\n"}), [])
        self.assertNotEqual(violations_of_files({path: fault, "server/b.cc": "int a;\n"}), [])

    def test_names(self):
        for name in ("utils.h", "string_util.cc", "helpers.cc", "test_helper.h", "misc.cc"):
            self.assert_refused(f"server/{name}", "\n")
        self.assert_taken("server/utility_function.h", "\n")

    def test_modes_are_told_apart_in_factories(self):
        self.assert_refused("server/rpc/a.cc", "if (job.mode == Mode::kSync) {}\n")
        self.assert_taken("server/rpc/a.cc", "// Mode::kSync needs this.\n")
        self.assert_taken("server/sync/policy_factory.cc", "case Mode::kSync:\n")


    def test_sources_name_their_licence(self):
        for path, head in (("common/a.h", "// "), ("proto/a.proto", "// "), ("tests/a.sh", "#!/bin/bash\n# "), ("deploy/a.py", "# ")):
            text = head + "SPDX-License-Identifier: Apache-2.0\n"
            for wrong in (text.replace("Apache", "MIT"), "\n\n" + text):
                self.assertNotEqual(violations_of_files({path: wrong}, layer_rules.check_licence_lines), [])
            self.assertEqual(violations_of_files({path: text}, layer_rules.check_licence_lines), [])


class ThisCheckout(unittest.TestCase):
    def test_keeps_the_rules(self):
        self.assertTrue(os.path.exists(os.path.join(ROOT, "WORKSPACE")), ROOT)
        self.assertEqual("\n".join(layer_rules.check_tree(ROOT)), "")
        self.assertEqual("\n".join(layer_rules.check_licence_lines(ROOT)), "")
        self.assertEqual("\n".join(build_graph.check_includes(ROOT)), "")
        self.assertEqual("\n".join(prose_rules.check_prose(ROOT)), "")
        self.assertEqual("\n".join(page_rules.check_pages(ROOT)), "")

    def pages(self):
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
            for name in names:
                if name.endswith(".md"):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        yield path, file.read()

    def test_flags_that_pages_name_exist(self):
        sources = []
        for folder in ("server", "worker", "deploy", "tests"):
            for path, _, names in os.walk(os.path.join(ROOT, folder)):
                for name in names:
                    if name.endswith((".cc", ".sh", ".py")):
                        with open(os.path.join(path, name), encoding="utf-8") as file:
                            sources.append(file.read())
        known = set(re.findall(r"ABSL_FLAG\(\s*[\w:]+,\s*(\w+)", "\n".join(sources)))
        known |= set(re.findall(r"--(\w+)[=\"]", "\n".join(sources)))
        with open(os.path.join(ROOT, "common/job/job_fields.cc"), encoding="utf-8") as file:
            known |= set(re.findall(r"\.name = \"(\w+)\"", file.read()))
        # These are flags of other programs.
        known |= {"help", "version", "keep", "config", "logdir", "pid", "gpus", "nodes", "now",
                  "cacert", "cert", "key", "resolve"}
        for path, text in self.pages():
            if os.path.basename(path) == "README.md" or path.startswith(os.path.join(ROOT, "docs/")):
                self.assertEqual(set(re.findall(r"(?<![\w-])--(\w+)", text)) - known, set(), path)

    def scripts(self):
        """Those that people run, not those that are sourced or that bazel runs."""
        for folder in ("deploy", "tests"):
            for parent, _, names in os.walk(os.path.join(ROOT, folder)):
                for path in (os.path.join(parent, name) for name in names if name.endswith(".sh")):
                    if os.access(path, os.X_OK) and not path.endswith("_test.sh"):
                        yield path

    def test_scripts_answer_help_and_nothing_else(self):
        without_flags = []
        for path in self.scripts():
            name = os.path.relpath(path, ROOT)
            # Nothing is built or installed for that.
            command = ["env", "BAZEL=false", path]
            shown = subprocess.run(
                command + ["--help"], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(shown.returncode, 0, f"{name} --help: {shown.stderr}")
            self.assertIn(name, shown.stdout)
            with open(path, encoding="utf-8") as file:
                if "take_no_arguments" not in file.read():
                    continue
            without_flags.append(name)
            wrong = subprocess.run(
                command + ["--runds=3"], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(wrong.returncode, 2, name)
            self.assertIn("unknown argument --runds=3; see --help", wrong.stderr)
        self.assertIn("tests/run.sh", without_flags)

    def test_profiles_of_kernels_show_source_lines(self):
        with open(os.path.join(ROOT, "kernels/cuda/cuda.bzl"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"bin/nvcc [^\n]* -lineinfo ")

    def test_has_its_version_in_the_changelog(self):
        with open(os.path.join(ROOT, "common/process/version.h"), encoding="utf-8") as file:
            version = re.search(r'kVersion\[\] = "(.*)"', file.read()).group(1)
        with open(os.path.join(ROOT, "CHANGELOG.md"), encoding="utf-8") as file:
            self.assertRegex(file.read(), rf"(?m)^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$")

    def test_is_not_looked_at_in_vain(self):
        self.assertGreater(len(list(layer_rules.source_files(ROOT))), 50)
        self.assertGreater(len(build_graph.BuildGraph(ROOT).targets), 50)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
    unittest.main()
