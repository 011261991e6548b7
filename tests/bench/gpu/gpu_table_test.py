#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Tests the tables of GPU measurements, with stand-ins that print what programs on a card would."""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_table  # noqa: E402

OPERATIONS = """
print('{"device": "card"}')
print('{"ceiling_tb_per_second": 4.1, "ceiling_tflop_per_second": 790.0}')
print('{"operation": "head forward", "batch": 4, "microseconds": 12.34, "rate": 600, "unit": "TFLOP/s", "of_ceiling": 0.76}')
print('{"choice": "attention forward: library (library 2.0 us, own kernels 3.0 us)", "fusion": "measure"}')
"""
# Prints five untimed and three timed steps.
STEPS = """
import json, sys, time
def steps(first=0):
    for i, ms in enumerate([99, 99, 99, 99, 99, 10, 12, 11]):
        print(json.dumps({"step": i, "ms": ms, "loss": 10.8 - first - i / 8}), flush=True)
"""
STEP = STEPS + """
print('{"device": "card", "memory_bytes": 3221225472}')
print('{"choice": "attention forward: library", "fusion": "measure"}')
steps()
"""
PYTORCH = STEPS + """
print('{"attention": "flash", "microseconds": 100.0}')
print('{"chosen_attention": "flash"}')
steps(FIRST)
print('{"waiting": true}', flush=True)
if sys.stdin.readline():
    steps(FIRST)
"""
# Writes a path instead of a port. When the worker has written to that path, commits five rounds.
SERVER = """
import pathlib, sys, time
flags = dict(flag[2:].split("=", 1) for flag in sys.argv[1:] if "=" in flag)
pathlib.Path(flags["port_file"]).write_text(flags["port_file"])
while not pathlib.Path(flags["port_file"] + ".worker").exists():
    time.sleep(0.01)
pathlib.Path(flags["port_file"] + ".worker").unlink()
pathlib.Path(flags["metrics_out"]).write_text("".join(
    f'{{"round": {i}, "seconds": {i * 0.5}, "heldout_loss": {2.0 - i / 8}, "compute_seconds": 0.4, '
    f'"communication_seconds": 0.1, "wait_seconds": 0.0}}\\n' for i in range(5)))
"""
WORKER = """
import pathlib, sys
flags = dict(flag[2:].split("=", 1) for flag in sys.argv[1:] if "=" in flag)
if "trace" in flags:
    pathlib.Path(flags["trace"]).write_text("{}")
pathlib.Path(flags["coordinator"].partition(":")[2] + ".worker").write_text("")
"""
HANGS = "import time\ntime.sleep(600)\n"
DIES = "import sys\nsys.exit('no | memory')\n"


class GpuTableTest(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    (self.folder / "bin").mkdir()
    for name, text in (("operations", OPERATIONS), ("train_step", STEP), ("ps_server", SERVER), ("gpu_worker", WORKER)):
      self.program(name, text)
    self.out = self.folder / "out"

  def program(self, name, text):
    path = self.folder / "bin" / name
    path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    path.chmod(0o755)

  def measure(self, *flags):
    with contextlib.redirect_stdout(io.StringIO()):
      gpu_table.main([f"--bin={self.folder}/bin", f"--out={self.out}", "--batch=4", "--steps=3", "--rounds=5", *flags])
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(self.out.glob("*.md"))}

  def rows(self, page):
    lines = [line for line in page.splitlines() if line.startswith("|")]
    self.assertEqual(sum(bool(re.fullmatch(r"\|( --- \|)+", line)) for line in lines), 1, "one table per page")
    self.assertEqual(len({line.count("|") for line in lines}), 1, page)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]

  def test_all_sections_are_a_table_and_a_file_each(self):
    pages = self.measure("--text=any")
    self.assertEqual(list(pages), ["gpt-mini.md", "operations.md", "rounds.md", "step.md"])
    for page in pages.values():
      self.assertTrue(self.rows(page))
    self.assertIn(["4", "head forward", "12.3", "600 TFLOP/s", "76%"], self.rows(pages["operations.md"]))
    self.assertIn("- B = 4, --fusion=measure: attention forward: library (library 2.0 us, own kernels 3.0 us)",
                  pages["operations.md"])
    steps = {row[1]: row for row in self.rows(pages["step.md"])}
    self.assertEqual(steps["Lodestar"][3], f"{4 * 1024 / 11e-3:.0f}")
    self.assertIn("no Python with PyTorch", steps["PyTorch compiled"][2])
    self.assertIn("- --fusion=measure: attention forward: library", pages["step.md"])
    self.assertEqual([row[3:5] for row in self.rows(pages["rounds.md"])],
                     [["500.00 (500.00..500.00)", "400"]] * 4)
    self.assertEqual([row[7] for row in self.rows(pages["rounds.md"])], ["20.0%"] * 4)
    self.assertEqual(self.rows(pages["gpt-mini.md"]), [["5000", "1.5000", "4", "1.5000", "2"]])
    # A rented machine may give only eight files back, of which lease.py writes some.
    self.assertLessEqual(len(list(self.out.iterdir())), 5)
    with tarfile.open(self.out / "traces.tar.gz") as traces:
      self.assertEqual(sum(name.endswith(".json") for name in traces.getnames()), 4)

  def facts(self, *flags):
    path = self.folder / "facts"
    path.unlink(missing_ok=True)
    self.measure(f"--facts={path}", *flags)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

  def failed(self, *flags):
    return [fact["check"] for fact in self.facts(*flags) if not fact.get("passed", True)]

  def pytorch(self, text):
    self.program("python", text)
    return f"--python={self.folder}/bin/python"

  def test_pytorch_runs_before_and_after_ours_and_losses_are_compared(self):
    flags = ["--section=step", "--steps=3", self.pytorch(PYTORCH.replace("FIRST", "0"))]
    facts = self.facts(*flags)
    page = (self.out / "step.md").read_text(encoding="utf-8")
    self.assertEqual([row[1] for row in self.rows(page)],
                     ["PyTorch compiled, flash attention", "Lodestar", "PyTorch compiled, again", "Lodestar, --repeatable=false"])
    self.assertIn("- flash attention, forward and backward: 100 us", page)
    self.assertIn({"ratio": 1.0, "batch": 4}, facts)
    self.assertEqual([fact["check"] for fact in facts if fact.get("passed")], ["outputs of libraries", "losses of B = 4"])
    self.pytorch(PYTORCH.replace("FIRST", "0.2"))
    self.assertEqual(self.failed(*flags), ["losses of B = 4"])
    self.pytorch(PYTORCH.replace('"loss": 10.8 - first - i / 8', '"loss": None').replace("FIRST", "0"))
    self.assertEqual(self.failed(*flags), ["step, B = 4, PyTorch compiled", "losses of B = 4"])
    self.pytorch(PYTORCH.replace("FIRST", "0"))
    self.program("train_step", STEP.replace("10.8 - first - i / 8", "None if i == 7 else 10.8 - first - i / 8") +
                 "print('{\"note\": \"seven\"}')\n")
    self.assertEqual(self.failed(*flags), ["step, B = 4, Lodestar", "step, B = 4, Lodestar, --repeatable=false", "losses of B = 4"])
    self.assertIn("\n- seven\n", (self.out / "step.md").read_text(encoding="utf-8"))

  def test_the_second_row_of_ours_need_not_be_repeatable(self):
    self.program("train_step", "import sys\nif '--repeatable=false' in sys.argv: sys.exit('unrepeatable')\n" + STEP)
    self.assertEqual(self.failed("--section=step"), ["step, B = 4, Lodestar, --repeatable=false"])

  def test_fewer_steps_or_rounds_than_were_asked_for_are_a_failure(self):
    self.assertEqual(self.failed("--section=step", "--steps=4"), ["step, B = 4, Lodestar", "step, B = 4, Lodestar, --repeatable=false"])
    self.assertEqual(self.failed("--section=rounds", "--overlap=true", "--rounds=6"), ["rounds, B = 4, fp32, --overlap=true", "rounds, B = 4, bf16, --overlap=true"])

  def test_numbers_that_are_none_are_a_failure(self):
    self.program("operations", OPERATIONS.replace('"rate": 600', '"rate": null'))
    self.assertEqual(self.failed("--section=operations"), ["operations, B = 4, head forward"])
    self.program("operations", OPERATIONS.replace("790.0", "null"))
    self.assertEqual(self.failed("--section=operations"), ["operations, B = 4, ceilings"])
    self.assertEqual([row[1] for row in self.rows((self.out / "operations.md").read_text(encoding="utf-8"))],
                     ["ceilings", "head forward"])

  def test_traces_fit_into_what_comes_back(self):
    self.program("gpu_worker", WORKER.replace('write_text("{}")', "write_bytes(__import__('os').urandom(9 << 20 if 'fp32' in flags['trace'] else 99))"))
    page = self.measure("--section=rounds")["rounds.md"]
    path = self.out / "traces.tar.gz"
    self.assertLessEqual(path.stat().st_size, gpu_table.MOST_FILE_BYTES)
    with tarfile.open(path) as traces:
      self.assertEqual(sum(name.endswith(".json") for name in traces.getnames()), 3)
    self.assertRegex(page, r"traces.tar.gz lacks b4-fp32-(true|false).json of 9437184 bytes")

  def test_mfu_is_of_the_card_or_of_the_peak_that_is_given(self):
    for name, peak in (("NVIDIA H100 80GB HBM3, 580.1, 81559 MiB", 989), ("NVIDIA H200, 580.1, 143771 MiB; NVIDIA L4", 989),
                       ("NVIDIA A100-SXM4-80GB, 580", 312), ("NVIDIA L4, 580", 121), ("NVIDIA L40S, 580", None),
                       ("NVIDIA H100 PCIe, 580", None), ("NVIDIA GeForce RTX 4090, 580", None)):
      self.assertEqual(gpu_table.peak_tflops(name), peak, name)
    self.assertNotIn("| MFU |", self.measure("--section=step")["step.md"])
    page = self.measure("--section=step", "--peak_tflops=100")["step.md"]
    rate = 4 * 1024 / 11e-3
    self.assertEqual({row[1]: row for row in self.rows(page)}["Lodestar"][4],
                     f"{rate * gpu_table.GPT2.flop_per_token() / 100e12:.1%}")
    with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
      gpu_table.parse(["--bin=bin", "--peak_tflops=0"])

  def test_losses_that_cannot_be_compared_have_a_reason(self):
    flags = ["--section=step", self.pytorch(PYTORCH.replace("FIRST", "0"))]
    self.program("train_step", DIES)
    whys = [fact["why"] for fact in self.facts(*flags) if fact.get("check", "").startswith("losses of")]
    self.assertIn("Lodestar printed 0 steps", whys[0])
    self.program("train_step", STEP.replace("10.8 - first - i / 8", "None if i == 2 else 10.8 - first - i / 8"))
    whys = [fact["why"] for fact in self.facts(*flags) if fact.get("check", "").startswith("losses of")]
    self.assertIn("step 2 ", whys[0])

  def test_what_is_empty_is_not_written(self):
    self.program("gpu_worker", DIES)
    self.program("train_step", STEPS + "steps()\n")
    pages = self.measure("--section=rounds", "--section=step")
    self.assertFalse((self.out / "traces.tar.gz").exists())
    self.assertNotIn("\nLodestar:\n", pages["step.md"])

  def test_a_run_that_is_told_to_stop_leaves_no_folder_and_no_program(self):
    pid, temporary = self.folder / "pid", self.folder / "tmp"
    temporary.mkdir()
    self.program("operations", f"import os\nopen({str(pid) + '.new'!r}, 'w').write(str(os.getpid()))\n"
                 f"os.rename({str(pid) + '.new'!r}, {str(pid)!r})\n" + HANGS)
    command = [sys.executable, "-B", gpu_table.__file__, f"--bin={self.folder}/bin", "--section=operations"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.DEVNULL) as run:
      while not pid.exists() and run.poll() is None:
        time.sleep(0.05)
      run.terminate()
      self.assertEqual(run.wait(60), 128 + 15)
    self.assertEqual(list(temporary.iterdir()), [])
    self.assertFalse(pathlib.Path("/proc", pid.read_text()).exists())

  def test_counts_are_refused_before_anything_runs(self):
    for flag in ("--steps=0", "--steps=-5", "--steps=99999999999", "--warmup=-1", "--warmup=x", "--batch=0", "--rounds=0"):
      with contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit):
        gpu_table.parse(["--bin=bin", flag])
      self.assertIn(flag.partition("=")[0], errors.getvalue())

  def test_refused_outputs_of_a_library_are_a_failure(self):
    self.program("train_step", STEP.replace("forward: library", "forward: own kernels (refused, its outputs are not those of own kernels: y)"))
    self.assertEqual(self.failed("--section=step", "--steps=3"), ["outputs of libraries"])
    self.program("operations", OPERATIONS.replace("forward: library", "forward: own kernels (refused, its outputs are not those of own kernels: y)"))
    self.assertEqual(self.failed("--section=operations"), ["outputs of libraries"])

  def test_programs_get_the_flags_of_devices(self):
    programs = (("operations", OPERATIONS), ("train_step", STEP), ("gpu_worker", WORKER))
    for name, text in programs:
      path = str(self.folder / f"{name}.arguments")
      self.program(name, f"import sys\nopen({path!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n{text}")
    for flags, wanted in (((), ["--fusion=measure"]), (("--fusion=measure", "--tuning_file=T"), ["--fusion=measure", "--tuning_file=T"]),
                          (("--fusion=never",), ["--fusion=never"])):
      self.measure("--section=operations", "--section=step", "--section=rounds", "--overlap=true", *flags)
      for name, _ in programs:
        path = self.folder / f"{name}.arguments"
        for line in path.read_text(encoding="utf-8").splitlines():
          self.assertEqual([word for word in line.split() if word.startswith(("--fusion=", "--tuning_file="))], wanted, name)
        path.unlink()

  def test_both_sides_multiply_with_one_library(self):
    flags = ["--section=step", "--steps=3", self.pytorch("print('{\"libraries\": [\"/a/libcublasLt.so.13\"]}')" +
                                                         PYTORCH.replace("FIRST", "0"))]
    for path, failed in (("/a", []), ("/b", ["one cuBLASLt"])):
      self.program("train_step", f"print('{{\"libraries\": [\"{path}/libcublasLt.so.13\"]}}')" + STEP)
      self.assertEqual(self.failed(*flags), failed)
    self.program("train_step", STEP)
    self.assertIn({"skipped": "one cuBLASLt", "why": "none was loaded by Lodestar"}, self.facts(*flags))

  def test_what_was_printed_before_a_failure_is_a_row(self):
    dies = "\nsys.exit('the card is gone')\n"
    self.program("operations", OPERATIONS + "import sys\nprint('{\"operation\": \"cut', end='')" + dies)
    self.program("train_step", STEP + dies)
    failed = self.failed("--section=operations", "--section=step")
    self.assertEqual(failed, ["operations, B = 4", "step, B = 4, Lodestar", "step, B = 4, Lodestar, --repeatable=false"])
    rows = self.rows((self.out / "operations.md").read_text(encoding="utf-8"))
    self.assertEqual([row[1] for row in rows[:3]], ["ceiling of bytes", "ceiling of arithmetic", "head forward"])
    self.assertIn("the card is gone", rows[3][1])
    step = self.rows((self.out / "step.md").read_text(encoding="utf-8"))[1]
    self.assertIn("the card is gone", step[1])
    self.assertEqual(step[3], f"{4 * 1024 / 11e-3:.0f}")

  def test_what_was_printed_before_the_time_was_over_is_a_row(self):
    hangs = "\nsys.stdout.flush()\ntime.sleep(600)\n"
    self.program("operations", "import os\nos.write(1, b'\\xff\\n')\nos.write(2, b'\\xff\\n')\n" + OPERATIONS + "import sys, time" + hangs)
    self.program("train_step", STEP + hangs)
    self.assertEqual(self.failed("--section=operations", "--section=step", "--minutes=0.05"),
                     ["operations, B = 4", "step, B = 4, Lodestar", "step, B = 4, Lodestar, --repeatable=false"])
    self.assertIn(["4", "head forward", "12.3", "600 TFLOP/s", "76%"],
                  self.rows((self.out / "operations.md").read_text(encoding="utf-8")))
    self.assertEqual(self.rows((self.out / "step.md").read_text(encoding="utf-8"))[1][3], f"{4 * 1024 / 11e-3:.0f}")

  def test_pytorch_that_hangs_leaves_time_for_ours(self):
    pid = self.folder / "pid"
    flags = ["--section=step", "--minutes=0.1",
             self.pytorch(f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n" + HANGS)]
    # PyTorch must have ended before ours runs, as it would slow ours down.
    self.program("train_step", f"import os, sys\nif os.path.exists('/proc/' + open({str(pid)!r}).read()): sys.exit(1)\n" + STEP)
    self.assertEqual(self.failed(*flags), ["step, B = 4, PyTorch compiled", "losses of B = 4"])
    self.assertEqual(self.rows((self.out / "step.md").read_text(encoding="utf-8"))[1][3], f"{4 * 1024 / 11e-3:.0f}")

  def test_rounds_that_were_committed_before_a_failure_are_a_row(self):
    self.program("ps_server", SERVER + "sys.exit('no disk')\n")
    self.assertEqual(self.failed("--section=rounds", "--overlap=true"), ["rounds, B = 4, fp32, --overlap=true", "rounds, B = 4, bf16, --overlap=true"])
    row = self.rows((self.out / "rounds.md").read_text(encoding="utf-8"))[0]
    self.assertTrue(row[3].startswith("500.00") and "no disk" in row[3], row)

  def test_sections_are_chosen(self):
    self.assertEqual(list(self.measure("--section=step")), ["step.md"])
    for flags in (["--section=steps"], ["--section=gpt-mini"]):
      with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
        gpu_table.parse(["--bin=bin", *flags])
    self.assertNotIn("gpt-mini", gpu_table.parse(["--bin=bin"]).section)
    self.assertIn("gpt-mini", gpu_table.parse(["--bin=bin", "--text=t"]).section)

  def test_a_dead_server_is_a_cell(self):
    late = SERVER.replace("while not", "time.sleep(0.3)\nsys.exit('a late end')\nwhile not")
    for text, why in ((DIES, "ps_server ended with 1: no / memory"), (late, "ps_server ended with 1: a late end")):
      self.program("ps_server", text)
      self.program("gpu_worker", HANGS)
      begin = time.monotonic()
      rows = self.rows(self.measure("--section=rounds")["rounds.md"])
      self.assertEqual([row[3] for row in rows], [f"not measured: {why}"] * 4)
      self.assertLess(time.monotonic() - begin, gpu_table.SECONDS_TO_END, "the worker waits for a server that is gone")

  def test_a_dead_worker_is_a_cell(self):
    self.program("gpu_worker", DIES)
    rows = self.rows(self.measure("--section=rounds")["rounds.md"])
    self.assertEqual({row[3] for row in rows}, {"not measured: gpu_worker ended with 1: no / memory"})

  def test_whatever_a_program_does_is_a_cell(self):
    for name, text in (("operations", "print('{')"), ("ps_server", SERVER.partition("pathlib.Path(flags[\"metrics_out\"])")[0])):
      self.program(name, text)
    pages = self.measure("--section=operations", "--section=rounds")
    self.assertIn("no JSON", self.rows(pages["operations.md"])[0][1])
    self.assertEqual(self.rows(pages["rounds.md"])[0][3], "not measured: ps_server has committed no round")
    for name in ("ps_server", "gpu_worker", "train_step"):
      (self.folder / "bin" / name).unlink()
      pages = self.measure("--section=step", "--section=rounds")
      self.assertIn("No such file", self.rows(pages["rounds.md"])[0][3])
    self.assertIn("No such file", self.rows(pages["step.md"])[1][2])

  def test_a_section_keeps_to_its_minutes(self):
    for section, program in (("operations", "operations"), ("step", "train_step"), ("rounds", "gpu_worker")):
      self.program(program, HANGS)
      begin = time.monotonic()
      page = self.measure(f"--section={section}", "--minutes=0.02", "--batch=16")[f"{section}.md"]
      self.assertLess(time.monotonic() - begin, 20)
      for row in self.rows(page):
        self.assertTrue("--minutes" in "".join(row) or "PyTorch" in "".join(row), row)

  def test_programs_find_cublas_of_the_python_that_has_pytorch(self):
    options = gpu_table.parse(["--bin=bin", "--python=/opt/torch/bin/python3"])
    self.assertTrue(gpu_table.environment(options)["PATH"].startswith("/opt/torch/bin:"))


if __name__ == "__main__":
  unittest.main()
