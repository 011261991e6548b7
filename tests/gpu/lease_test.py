#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Tests the lease scripts from end to end, with our programs on an emulated card and stand-ins for PyTorch and NVIDIA's tools.

usage: lease_test.py FILE..., the programs and libraries of the package, by their base names.
"""
import csv
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("train_step", "operations", "ps_server", "gpu_worker", "cuda_device_test", "liblodestar_cuda.so")
FILES = {}  # Paths of the arguments by their base names.
MOST_FILE_BYTES = 16 << 20  # Limit of a file in --out.
LEASE_SECONDS = {"first": 300, "second": 270}  # Time limits of leases in these tests.
DEFAULT_SECONDS = {"first": 420, "second": 270}
SLACK_SECONDS = 60  # Delay that a busy machine may cause; a program that hangs takes longer.

# Stand-in for nvidia-smi, which answers by the names of fields.
NVIDIA_SMI = r"""
case "$*" in
  *loop-ms=*) while :; do echo "2026/11/28 10:00:00.000, 1980 MHz, 2619 MHz, 650.00 W, 60, 99 %, 0x0000000000000000"; sleep 0.5; done ;;
  *name,driver_version*) echo "NVIDIA Stand-in, 580.159, 81559 MiB" ;;
esac
"""
PYTHON = r"""
case "$*" in
  *find_spec*) exit 0 ;;
  *sysconfig*) echo "$(dirname "$(dirname "$0")")/packages" ;;
  *) exec PYTHON "$@" ;;
esac
"""
# Stand-in for train_step, which prints one JSON line per step, from 0 to %d.
STEPS = """for i in $(seq 0 %d); do echo '{"step": '$i', "ms": 1, "loss": 4}'; done\n"""
PASSES = "echo '[       OK ] stand-in'\n"
# Stand-in that ignores SIGTERM, with a child that ignores it, too, and holds the output open.
HANGS = "trap '' TERM\necho '[       OK ] before it hangs'\nsleep 200 & echo $! >PIDS\nwhile :; do sleep 1; done\n"


def is_running(pid):
  """Returns false for a zombie, too: a process that has ended, and whose exit code was not read."""
  try:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
  except OSError:
    return False
  return stat.rpartition(")")[2].split()[0] != "Z"


class LeaseTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    folder = tempfile.TemporaryDirectory()
    cls.addClassCleanup(folder.cleanup)
    cls.programs = pathlib.Path(folder.name)
    for name in PROGRAMS:
      shutil.copy(FILES[name], cls.programs / name)
    # Leases run on what deploy/package.sh packs, so they fail here, too, if it leaves out what they need.
    cls.package_script = (SOURCES / "deploy/package.sh").read_text(encoding="utf-8")
    patterns = re.search(r"^for file in (.*?); do\n  install -D ", cls.package_script, re.MULTILINE | re.DOTALL)[1]
    names = subprocess.run(["bash", "-c", f"printf '%s\\n' {patterns}"], cwd=SOURCES, capture_output=True, text=True, check=True).stdout
    cls.packed_scripts = [name for name in names.split("\n") if re.fullmatch(r"(tests/(gpu|bench|process)|deploy)/.*\.(py|sh)", name)
                          and (SOURCES / name).exists()]

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = pathlib.Path(folder.name)
    self.root, self.out = self.folder / "lodestar-0.0-linux-x86_64", self.folder / "out"
    for path in self.packed_scripts:
      (self.root / path).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(SOURCES / path, self.root / path)
    shutil.copy(SOURCES / "tests/gpu/torch_gpt2_stand_in.py", self.root / "tests/bench/gpu/torch_gpt2.py")
    (self.root / "bin").mkdir()
    for name in PROGRAMS:
      (self.root / "bin" / name).hardlink_to(self.programs / name)
    self.tools = self.folder / "venv/bin"
    self.tools.mkdir(parents=True)
    self.script(self.tools / "nvidia-smi", NVIDIA_SMI)
    self.script(self.tools / "python3", PYTHON.replace("PYTHON", sys.executable))
    for package, name in (("cu13", "libcublasLt.so.13"), ("cudnn", "libcudnn.so.9")):
      library = self.folder / "venv/packages/nvidia" / package / "lib" / name
      library.parent.mkdir(parents=True)
      shutil.copy(FILES["library_versions.so"], library)
    self.environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "TRAIN_STEP": str(self.root / "bin/train_step")}

  def script(self, path, text):
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\n{text}", encoding="utf-8")
    path.chmod(0o755)

  def program(self, name, text):
    # The lease has cuda_device_test open the card before its steps.
    opens_the_card = '[[ "$*" == "--gtest_filter=-*" ]] && exit 0\n' if name == "cuda_device_test" else ""
    self.script(self.root / "bin" / name, opens_the_card + text)

  def record(self, name, text):
    """As program(), but the stand-in also records its arguments for arguments()."""
    self.program(name, f'echo "$*" >>{self.folder}/{name}.arguments\n{text}')

  def arguments(self, name):
    """Returns a set of the arguments of each run of a stand-in."""
    lines = (self.folder / f"{name}.arguments").read_text(encoding="utf-8").splitlines()
    return [set(line.split()) for line in lines]

  def all_pass(self):
    """Replaces all programs by stand-ins that pass, for tests about something else."""
    for name in ("train_step", "operations", "ps_server", "gpu_worker", "cuda_device_test"):
      self.program(name, PASSES)

  def command(self, *flags, which="first", root=None):
    return [(root or self.root) / f"tests/gpu/{which}_lease.sh", f"--out={self.out}", "--small", *flags]

  def lease(self, *flags, which="first", seconds=None, root=None):
    """Runs a lease into an empty folder. Returns its exit code and summary."""
    shutil.rmtree(self.out, ignore_errors=True)
    seconds = seconds or LEASE_SECONDS[which]
    command = self.command(f"--seconds={seconds}", *flags, which=which, root=root)
    code = subprocess.run(command, env=self.environment, stdout=subprocess.DEVNULL, check=False,
                          timeout=seconds + SLACK_SECONDS).returncode
    self.assertLessEqual(len(list(self.out.iterdir())), 8, "a card machine gives eight files back")
    summary = self.out / "summary.md"
    return code, summary.read_text(encoding="utf-8") if summary.exists() else ""

  def log(self):
    return (self.out / "lease.log").read_text(encoding="utf-8")

  def run_again(self, *flags, which="first"):
    """Runs a lease into the folder as it is. Returns its exit code and what it says on stderr."""
    done = subprocess.run(self.command(*flags, which=which), env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=300 + SLACK_SECONDS)
    return done.returncode, done.stderr

  def results(self):
    """Returns (result, reason) of each step in the summary."""
    return {row[0]: tuple(row[1:]) for row in self.rows("summary.md")}

  def rows(self, name):
    lines = [line for line in (self.out / name).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]

  def test_first_lease_runs_to_its_end(self):
    code, summary = self.lease()
    self.assertEqual(code, 0, summary + self.log())
    self.assertEqual(sorted(path.name for path in self.out.iterdir()),
                     ["inductor.tar.xz", "lease.log", "nvidia_smi.csv", "operations.md", "rounds.md", "step.md", "summary.md",
                      "traces.tar.gz"])
    self.assertRegex(summary, r"\n- Lodestar, B = 2: [0-9]+ tokens/s\n")
    self.assertRegex(summary, r"\n- Lodestar at B = 2: [0-9.]+ times the tokens/s of PyTorch's faster run\n")
    for wire in ("fp32", "bf16"):
      self.assertRegex(summary, rf"\n- exposed share of a round, B = 2, {wire}: [0-9.]+%\n")
    self.assertIn("\n- skipped one cuBLASLt: none was loaded by Lodestar\n", summary)
    self.assertIn(f"- library: {self.root}/bin/liblodestar_cuda.so", summary)
    self.assertRegex(summary, r"\n6 passed, 0 failed, 0 skipped, 0 not run\n$")
    self.assertEqual({name: result for name, (result, _) in self.results().items()},
                     {"unpack": "done", "machine": "done", "never": "passed", "always": "passed", "shapes": "passed", "step": "passed",
                      "keep": "done", "operations": "passed", "rounds": "passed"})
    self.assertRegex(summary, r"Programs: ps_server [^ ]+, commit: [^,]+, ")
    self.assertNotIn("| MFU |", (self.out / "step.md").read_text(encoding="utf-8"))
    self.assertIn("cublasLtGetVersion: 130002, cudnnGetVersion: 91900", self.log())
    self.assertIn("580.159", self.log())
    self.assertRegex(self.log(), r"choice: attention backward .*: library")
    self.assertEqual([row[1] for row in self.rows("step.md")],
                     ["PyTorch compiled, flash attention", "Lodestar", "PyTorch compiled, again", "Lodestar, --repeatable=false"])
    step = (self.out / "step.md").read_text(encoding="utf-8")
    self.assertRegex(step, r"Largest relative difference of the losses: [0-9.e-]+ over 5 steps")
    self.assertRegex(step, r"- --fusion=measure: attention forward .*: (library|own kernels)")
    self.assertRegex(step, r"- --fusion=measure: attention unordered backward .*: (library|own kernels)")
    self.assertIn("attention backward, --fusion=always", [row[1] for row in self.rows("operations.md")])
    self.assertEqual([row[:3] for row in self.rows("rounds.md")], [["2", "fp32", "true"], ["2", "bf16", "true"]])
    with open(self.out / "nvidia_smi.csv", encoding="utf-8") as file:
      self.assertTrue(all(len(row) == 7 for row in csv.reader(file)))

  def test_what_pytorch_compiled_is_carried_to_the_next_call(self):
    kept = self.root / ".lease"
    kept.mkdir()
    (self.folder / "compiled").write_text("code", encoding="utf-8")
    with tarfile.open(kept / "inductor.tar.xz", "w:xz") as archive:
      archive.add(self.folder / "compiled", "./compiled")
    self.program("train_step", PASSES)
    self.lease("--from=step", "--until=keep")
    self.assertIn("Compiled code of PyTorch comes from", self.log())
    with tarfile.open(self.out / "inductor.tar.xz") as archive:
      self.assertIn("./compiled", archive.getnames())

  def test_the_next_call_finds_what_pytorch_compiled(self):
    self.program("train_step", PASSES)
    self.lease("--from=step", "--until=keep")
    self.assertNotIn("Compiled code of PyTorch comes from", self.log())
    shutil.rmtree(self.out)
    self.lease("--from=step", "--until=keep", which="second")
    self.assertIn("Compiled code of PyTorch comes from", self.log())

  def test_what_is_too_much_to_carry_is_not_kept(self):
    kept = self.root / ".lease"
    kept.mkdir()
    (self.folder / "compiled").write_bytes(os.urandom(17 << 20))
    with tarfile.open(kept / "inductor.tar.xz", "w") as archive:
      archive.add(self.folder / "compiled", "./compiled")
    self.lease("--from=keep", "--until=keep")
    self.assertEqual(self.results()["keep"][0], "skipped")
    self.assertFalse((self.out / "inductor.tar.xz").exists())

  def test_fails_if_cudnn_can_be_loaded_but_its_cases_were_ours(self):
    for told in ("missing", "refuses"):
      self.environment["LODESTAR_STAND_IN_ATTENTION"] = told
      code, summary = self.lease("--from=always", "--until=shapes")
      self.assertEqual(code, 1)
      for step in ("always", "shapes"):
        for direction in ("forward", "backward"):
          self.assertIn(f"- FAILED {step}: cuDNN's attention {direction}", summary)
    # If cuDNN is not installed, running our own kernels is no failure.
    shutil.rmtree(self.folder / "venv/packages")
    code, summary = self.lease("--from=always", "--until=always")
    if "cudnnGetVersion: 0 " in self.log():
      self.assertEqual(code, 0, summary)

  def test_wrong_numbers_of_cudnn_are_a_failure_although_other_cases_ran_it(self):
    self.all_pass()
    refused = "attention backward 2 x 256 tokens: own kernels (refused, its outputs are not those of own kernels: dq is off)"
    taken = [f"attention {direction} 1 x 128 tokens: library (--fusion=always)" for direction in ("forward", "backward")]
    self.program("cuda_device_test", PASSES + "".join(f"echo 'choice: {choice}'\n" for choice in (*taken, refused)))
    self.program("operations", f"""echo '{{"choice": "{refused}", "fusion": "always"}}'
echo '{{"operation": "head forward", "microseconds": 1, "rate": 1, "unit": "TFLOP/s", "of_ceiling": 1}}'
""")
    self.program("train_step", STEPS % 4 + f"""echo '{{"choice": "{refused}", "fusion": "measure"}}'\n""")
    code, summary = self.lease("--from=always", "--until=operations")
    self.assertEqual(code, 1)
    for step in ("always", "shapes", "step", "operations"):
      self.assertEqual(self.results()[step][0], "failed", summary)
      self.assertIn("dq is off", self.results()[step][1])

  def test_a_step_ends_at_its_limit_and_keeps_what_was_printed(self):
    self.all_pass()
    self.program("cuda_device_test", HANGS.replace("PIDS", str(self.folder / "pids")))
    begin = time.monotonic()
    code, summary = self.lease("--from=never", "--until=never", seconds=26)
    self.assertEqual(code, 1)
    self.assertLess(time.monotonic() - begin, 26 + SLACK_SECONDS)
    self.assertIn("- FAILED never: exit code 124", summary)
    self.assertIn("before it hangs", self.log())
    self.assertFalse(is_running((self.folder / "pids").read_text().strip()), "its child still runs")

  def test_a_lease_that_is_told_to_stop_leaves_no_program_behind(self):
    self.program("cuda_device_test", f"echo $$ >{self.folder}/pid\nexec sleep 200\n")
    command = [self.root / "tests/gpu/first_lease.sh", f"--out={self.out}", "--small", "--from=never"]
    with subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL) as lease:
      pid_file, end = self.folder / "pid", time.monotonic() + SLACK_SECONDS
      while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < end:
        time.sleep(0.05)
      lease.terminate()
      self.assertEqual(lease.wait(SLACK_SECONDS), 128 + 15)
    self.assertFalse(is_running(pid_file.read_text().strip()))

  def test_a_lease_that_is_killed_leaves_no_program_behind(self):
    self.script(self.tools / "nvidia-smi", NVIDIA_SMI.replace("while", f"echo $$ >{self.folder}/sampler; while"))
    for program, step in (("cuda_device_test", "never"), ("operations", "operations")):
      pids = self.folder / program
      self.program(program, f"sleep 200 & echo $! $$ >{pids}.new\nmv {pids}.new {pids}\nwait\n")
      command = [self.root / "tests/gpu/first_lease.sh", f"--out={self.out}", "--small", f"--from={step}"]
      with subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL) as lease:
        self.wait_until(pids.exists)
        lease.kill()
      for pid in pids.read_text().split() + (self.folder / "sampler").read_text().split():
        self.wait_until(lambda pid=pid: not is_running(pid))

  def test_a_step_does_not_wait_for_what_holds_its_output(self):
    self.all_pass()
    pid = self.folder / "pid"
    self.program("operations", f"""sleep 200 & echo $! >{pid}
echo '{{"operation": "head forward", "microseconds": 1, "rate": 1, "unit": "TFLOP/s", "of_ceiling": 1}}'
""")
    begin = time.monotonic()
    code, summary = self.lease("--from=operations", "--until=operations", seconds=150)
    self.assertEqual(code, 0, summary)
    self.assertLess(time.monotonic() - begin, 100, "operations was not done when its program was")
    self.assertFalse(is_running(pid.read_text().strip()))

  def test_files_are_cut_to_what_comes_back(self):
    self.all_pass()
    self.program("cuda_device_test", "echo first line\nyes \"$(printf '%01000d' 0)\" | head -n 20000\necho last line\n" + PASSES)
    self.script(self.tools / "nvidia-smi", NVIDIA_SMI.replace("while", "yes '1, 2, 3' | head -c 20000000; while"))
    row = '{"operation": "%0800d", "microseconds": 1, "rate": 1, "unit": "TFLOP/s", "of_ceiling": 1}' % 0
    self.program("operations", f"yes '{row}' | head -n 21000\n")
    self.lease("--from=never", "--until=operations")
    for name in ("lease.log", "nvidia_smi.csv", "operations.md"):
      path = self.out / name
      self.assertLessEqual(path.stat().st_size, MOST_FILE_BYTES, name)
      self.assertRegex(path.read_text(encoding="utf-8"), r"(?m)^\[[0-9]+ bytes are left out here", name)
    self.assertIn("UTC, ", self.log())
    for kept in ("\nfirst line\n", "\n==> summary"):
      self.assertIn(kept, self.log())

  def test_too_few_steps_are_a_failure(self):
    self.all_pass()
    self.program("train_step", STEPS % 2)  # The lease wants two untimed and three timed steps.
    code, summary = self.lease("--from=step", "--until=step")
    self.assertEqual(code, 1)
    self.assertIn("- FAILED step, B = 2, Lodestar: train_step printed 3 of 5 steps", summary)

  def test_a_sampler_that_ends_early_is_a_failure(self):
    self.all_pass()
    sampler = self.folder / "sampler"
    self.script(self.tools / "nvidia-smi",
                NVIDIA_SMI.replace("while", f"echo $$ >{sampler}; while").replace("sleep 0.5; done", "exit 9; done"))
    # The lease ends after the sampler: a shell without a state, or one that is a zombie, has ended.
    self.program("cuda_device_test", f"""until [[ -s {sampler} ]]; do sleep 0.05; done
while grep -qs '^State:[[:space:]]*[^Z[:space:]]' "/proc/$(<{sampler})/status"; do sleep 0.05; done
{PASSES}""")
    code, summary = self.lease("--from=never", "--until=never")
    self.assertEqual(code, 1)
    self.assertRegex(summary, r"- FAILED nvidia_smi.csv: nvidia-smi ended with 9")

  def test_a_loss_that_is_no_number_is_a_failure(self):
    self.all_pass()
    self.program("train_step", (STEPS % 4).replace("4}", "null}") + """echo '{"note": "the loss of step 0 is not a number"}'\n""")
    code, summary = self.lease("--from=step", "--until=step")
    self.assertEqual(code, 1)
    self.assertIn("- FAILED step, B = 2, Lodestar: the loss of step 0 is not a number", summary)

  def test_train_step_prints_json_and_a_note_where_its_loss_is_no_number(self):
    printed = self.train_step("--steps=2", "--warmup=1", "--learning_rate=1e38").stdout
    lines = [json.loads(line, parse_constant=self.fail) for line in printed.splitlines()]
    self.assertIn(None, [line.get("loss", 0) for line in lines], printed)
    self.assertTrue(any("note" in line for line in lines), printed)

  def test_train_step_refuses_numbers_of_steps_that_it_cannot_run(self):
    for flags in (("--steps=-5",), ("--steps=0",), ("--warmup=-1",), ("--warmup=2147483647", "--steps=2147483647"),
                  ("--steps=99999999999",), ("--batch=0",)):
      done = self.train_step(*flags)
      self.assertEqual(done.returncode, 1, flags)
      self.assertIn(flags[0].strip("-").partition("=")[0], done.stderr)

  def train_step(self, *flags):
    return subprocess.run([FILES["train_step"], "--batch=1", *flags], capture_output=True, text=True, check=False,
                          timeout=SLACK_SECONDS)

  def test_cudnn_that_cannot_be_loaded_is_a_failure(self):
    self.all_pass()
    library = self.folder / "venv/packages/nvidia/cudnn/lib/libcudnn.so.9"
    library.write_bytes(b"no library")
    code, summary = self.lease("--from=always", "--until=always")
    self.assertEqual(code, 1)
    self.assertRegex(summary, r"- FAILED machine: libcudnn.so.9: .*libcudnn.so.9: (file too short|invalid ELF header)")
    self.assertNotIn("skipped always: cuDNN", summary)
    shutil.copy(FILES["library_versions.so"], library)
    self.environment["LODESTAR_STAND_IN_CUDNN_VERSION"] = "90100"
    code, summary = self.lease("--from=always", "--until=always")
    self.assertEqual(code, 1)
    self.assertRegex(summary, r"- FAILED machine: libcudnn.so.9: .*90100")

  def test_a_folder_takes_one_lease_at_a_time(self):
    self.all_pass()
    pid = self.folder / "pid"
    self.program("cuda_device_test", f"echo $$ >{pid}\nexec sleep 200\n")
    command = [self.root / "tests/gpu/first_lease.sh", f"--out={self.out}", "--small", "--from=never", "--until=never"]
    with subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL) as lease:
      self.wait_until(pid.exists)
      before = self.log()
      second = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=SLACK_SECONDS)
      self.assertEqual(second.returncode, 2)
      self.assertIn(str(self.out), second.stderr)
      self.assertTrue(self.log().startswith(before), "the second lease has written over the log of the first")
      lease.terminate()
    self.assertNotEqual(self.run_again("--replace", "--from=summary")[0], 2, "the folder is free again")

  def test_too_few_seconds_are_refused(self):
    for which, seconds in (("first", 30), ("second", 30), ("first", 10)):
      command = [self.root / f"tests/gpu/{which}_lease.sh", f"--seconds={seconds}", f"--out={self.out}"]
      done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=SLACK_SECONDS)
      self.assertEqual(done.returncode, 2)
      least = re.search(r"--seconds=[0-9]+: .*at least ([0-9]+)", done.stderr)
      self.assertIsNotNone(least, done.stderr)
    # The least number of seconds suffices although nvidia-smi is slow.
    self.all_pass()
    self.script(self.tools / "nvidia-smi", "sleep 2\n" + NVIDIA_SMI)
    code, summary = self.lease("--until=never", seconds=int(self.least("--until=never")))
    self.assertEqual(code, 0, summary)

  def least(self, *flags):
    command = [self.root / "tests/gpu/first_lease.sh", "--seconds=1", f"--out={self.out}", *flags]
    done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=SLACK_SECONDS)
    return re.search(r"at least ([0-9]+)", done.stderr)[1]

  def wait_until(self, holds):
    end = time.monotonic() + SLACK_SECONDS
    while not holds():
      self.assertLess(time.monotonic(), end)
      time.sleep(0.05)

  def test_limits_add_up_to_the_seconds_that_are_given(self):
    self.all_pass()
    for flags in ((), ("--from=step",)):
      self.lease(*flags, seconds=80)
      limits = re.search(r"^Limits: (.*)$", self.log(), re.MULTILINE)[1]
      self.assertAlmostEqual(sum(float(limit.split()[1]) for limit in limits.split(", ")), 80, delta=5, msg=limits)

  def test_default_limits_add_up_to_the_default_seconds(self):
    self.all_pass()
    for which, seconds in DEFAULT_SECONDS.items():
      shutil.rmtree(self.out, ignore_errors=True)
      self.run_again("--from=keep", "--until=keep", which=which)
      limits = re.search(r"^Limits: (.*)$", self.log(), re.MULTILINE)[1]
      self.assertAlmostEqual(sum(float(limit.split()[1]) for limit in limits.split(", ")), seconds, delta=3, msg=limits)

  def test_programs_get_the_flags_of_what_is_measured(self):
    self.all_pass()
    self.record("operations", PASSES)
    self.record("train_step", PASSES)
    self.record("gpu_worker", "exit 1\n")
    self.program("ps_server", 'for flag in "$@"; do case "$flag" in --port_file=*) echo 1 >"${flag#*=}"; exec sleep 20 ;; esac; done\n')
    command = [word for word in self.command("--from=step", "--until=rounds") if word != "--small"]
    subprocess.run(command, env=self.environment, stdout=subprocess.DEVNULL, check=False, timeout=LEASE_SECONDS["first"])
    for steps in self.arguments("train_step"):
      self.assertLessEqual({"--batch=64", "--warmup=20", "--steps=60", "--dtype=bf16"}, steps)
    tuning_files = set()
    for name in ("train_step", "operations", "gpu_worker"):
      for arguments in self.arguments(name):
        self.assertIn("--fusion=measure", arguments, name)
        tuning_files.add(frozenset(word for word in arguments if word.startswith("--tuning_file=/")))
    self.assertEqual([len(files) for files in tuning_files], [1], "each program reads what the others have measured")

  def test_a_program_that_fails_is_a_failure_and_keeps_its_rows(self):
    self.all_pass()
    self.program("operations", """echo '{"operation": "head forward", "microseconds": 1, "rate": 1, "unit": "TFLOP/s", "of_ceiling": 1}'
exit 3
""")
    code, summary = self.lease("--from=operations", "--until=operations")
    self.assertEqual(code, 1)
    self.assertIn("- FAILED operations, B = 2: operations ended with 3", summary)
    self.assertIn(["2", "head forward", "1.0", "1 TFLOP/s", "100%"], self.rows("operations.md"))

  def test_failed_tests_are_named_for_the_second_lease(self):
    self.program("cuda_device_test", "echo '[  FAILED  ] Cuda/DeviceConformanceTest.Casts/Fp32Never, where'\nexit 1\n")
    code, summary = self.lease("--from=never", "--until=never")
    self.assertEqual(code, 1)
    self.assertIn("--again='Cuda/DeviceConformanceTest.Casts/Fp32Never'", summary)

  def test_without_pytorch_ours_runs_alone(self):
    self.script(self.tools / "python3", f'case "$*" in *find_spec*) exit 1 ;; esac\nexec {sys.executable} "$@"\n')
    self.program("train_step", STEPS % 4)
    code, summary = self.lease("--from=step", "--until=step")
    self.assertEqual(code, 0, summary)
    self.assertIn("no yardstick", summary)
    self.assertRegex(summary, r"\n- Lodestar, B = 2: 32000 tokens/s\n")

  def test_without_a_card_nothing_runs(self):
    for script in ("exit 9\n", None):
      if script is None:
        (self.tools / "nvidia-smi").unlink()
        self.environment["PATH"] = f"{self.tools}:{self.tools_without('nvidia-smi')}"
      else:
        self.script(self.tools / "nvidia-smi", script)
      code, summary = self.lease()
      self.assertEqual(code, 77)
      self.assertEqual(self.results()["machine"][0], "skipped")
      self.assertIn("not on the PATH" if script is None else "nvidia-smi ended with 9", self.results()["machine"][1])
      self.assertEqual(self.results()["rounds"], ("not run", "there is no usable card"))
      self.assertIn("0 passed, 0 failed, 1 skipped, 7 not run", summary)
      self.assertNotIn("PyTorch", summary)
    # An nvidia-smi that hangs does not prove that there is no card.
    self.script(self.tools / "nvidia-smi", "sleep 1000\n")
    code, summary = self.lease("--from=never", "--until=never", seconds=26)
    self.assertEqual(code, 1)
    self.assertIn("- FAILED machine", summary)

  def tools_without(self, name):
    """Returns a folder with the programs of PATH except `name`."""
    folder = self.folder / "path"
    folder.mkdir(exist_ok=True)
    for source in reversed(os.environ["PATH"].split(":")):
      for path in pathlib.Path(source).glob("*"):
        (folder / path.name).unlink(missing_ok=True)
        (folder / path.name).symlink_to(path)
    (folder / name).unlink(missing_ok=True)
    return folder

  def test_a_card_that_programs_cannot_open_is_no_card(self):
    (self.root / "bin/liblodestar_cuda.so").unlink()  # nvidia-smi lists the card, but programs cannot open it.
    self.second_programs()
    for which, flags in (("first", ()), ("second", ("--until=again",)), ("second", ("--from=models", "--until=models"))):
      self.assertEqual(self.lease(*flags, which=which)[0], 77)
      self.assertIn("liblodestar_cuda.so", self.results()["machine"][1])
      self.assertFalse((self.out / "nvidia_smi.csv").exists())

  def test_a_lease_whose_steps_were_all_skipped_has_passed_nothing(self):
    self.second_programs()
    (self.tools / "compute-sanitizer").unlink()
    code, summary = self.lease("--from=memcheck", "--until=again", which="second")
    self.assertEqual(code, 77, summary)
    for step in ("memcheck", "racecheck"):
      self.assertEqual(self.results()[step][0], "skipped")
      self.assertIn("compute-sanitizer", self.results()[step][1])
    self.assertIn("--again", self.results()["again"][1])
    self.assertEqual(self.results()["models"], ("not run", "left out by --from=memcheck and --until=again"))

  def test_a_program_that_finds_no_card_where_there_is_one_is_a_failure(self):
    self.second_programs()
    self.program("cuda_model_test", "exit 77\n")
    self.assertEqual(self.lease("--from=models", "--until=models", which="second")[0], 1)

  def test_a_package_without_cuda_is_a_failure(self):
    (self.root / "bin/cuda_device_test").unlink()
    for which in ("first", "second"):
      self.assertEqual(self.lease(which=which)[0], 1)
      self.assertEqual(self.results()["machine"][0], "failed")

  def test_steps_that_prove_nothing_have_not_passed(self):
    for name in ("train_step", "operations", "ps_server", "gpu_worker", "cuda_device_test"):
      self.program(name, "exit 3\n")
    code, summary = self.lease()
    self.assertEqual(code, 1)
    self.assertRegex(summary, r"\n0 passed, 6 failed, [0-9]+ skipped, 0 not run\n$")

  def test_a_step_that_measures_nothing_is_a_failure(self):
    (self.root / "tests/bench/gpu/gpu_table.py").write_text(
        (SOURCES / "tests/bench/gpu/gpu_table.py").read_text().replace("    options = parse(arguments)\n", "    return\n"))
    self.assertEqual(self.lease("--from=operations", "--until=operations")[0], 1)

  def test_the_package_has_what_leases_start(self):
    targets = re.findall(r"//[a-z/]+:([a-z_.]+)", self.package_script)
    for program in (*PROGRAMS, "psctl", "cuda_model_test"):
      self.assertIn(program, targets)
    self.assertIn("tests/bench/gpu/torch_gpt2.py", self.packed_scripts)
    # A script that imports a file that is not packed fails here.
    for script in ("tests/gpu/lease.py", "tests/gpu/three_modes_test.py"):
      done = subprocess.run([sys.executable, "-B", "-c", f"import runpy; runpy.run_path({str(self.root / script)!r}, run_name='packed')"],
                            cwd=self.root, capture_output=True, text=True, check=False, timeout=SLACK_SECONDS)
      self.assertEqual(done.returncode, 0, done.stderr)

  def second_programs(self):
    """Makes stand-ins for the programs that only the second lease needs."""
    self.program("cuda_model_test", PASSES)
    (self.root / "tests/gpu/three_modes_test.py").write_text("", encoding="utf-8")
    (self.root / "bin/psctl").touch()
    self.script(self.tools / "compute-sanitizer", PASSES)
    self.ncu("TensorAttentionBackwardKernel", "SoftmaxCrossEntropyKernel")

  def ncu(self, *kernels):
    """Makes a stand-in for ncu that runs the program and reports on these kernels."""
    self.script(self.tools / "ncu", "echo '==PROF== Profiling \"SoftmaxCrossEntropyKernel\"'\n" +
                "".join(f"echo '  void lodestar::cuda::{kernel}<int>(int) (1, 1, 1)x(32, 1, 1)'\n" for kernel in kernels) +
                'while [[ "$1" == --* ]]; do shift; done\nexec "$@"\n')

  def test_results_of_an_earlier_lease_are_not_lost(self):
    self.all_pass()
    self.out.mkdir()
    kept = {name: "earlier" for name in ("step.md", "rounds.md", "lease.log", "traces.tar.gz")}
    for name, text in kept.items():
      (self.out / name).write_text(text, encoding="utf-8")
    for which in ("first", "second"):
      code, said = self.run_again(which=which)
      self.assertEqual(code, 2)
      self.assertIn(f"--out={self.out}", said)
      self.assertEqual(said.count("\n"), 1, said)
    self.assertEqual({path.name: path.read_text() for path in self.out.iterdir()}, kept)
    # --from replaces only files of steps that run.
    self.run_again("--from=step", "--until=step")
    self.assertNotEqual((self.out / "step.md").read_text(), "earlier")
    self.assertEqual((self.out / "rounds.md").read_text(), "earlier")
    self.assertTrue(self.log().startswith("earlier"))
    # A lease without a card replaces nothing but the summary.
    before = (self.out / "step.md").read_text()
    (self.tools / "nvidia-smi").rename(self.tools / "was-nvidia-smi")
    self.script(self.tools / "nvidia-smi", "exit 9\n")
    self.assertEqual(self.run_again("--from=step")[0], 77)
    self.assertEqual((self.out / "step.md").read_text(), before)
    self.run_again("--replace")
    self.assertEqual(sorted(path.name for path in self.out.iterdir()), ["lease.log", "summary.md"])

  def test_a_folder_that_cannot_be_used_is_refused(self):
    file = self.folder / "file"
    file.write_text("mine", encoding="utf-8")
    for out in ("", file, file / "below", "/proc/lease"):
      command = [self.root / "tests/gpu/first_lease.sh", f"--out={out}"]
      done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=SLACK_SECONDS)
      self.assertEqual(done.returncode, 2, done.stderr)
      self.assertIn("--out", done.stderr)
      self.assertNotIn("Traceback", done.stderr)
    self.assertEqual(file.read_text(), "mine")

  def test_flags_without_effect_are_refused(self):
    for which, flags in (("first", ("--again=Foo",)), ("second", ("--again=Foo", "--until=models")), ("first", ("--seconds=nan",)),
                         ("first", ("--seconds=1000000",))):
      code, said = self.run_again(*flags, which=which)
      self.assertEqual(code, 2)
      self.assertIn(flags[0].partition("=")[0], said)

  def test_an_old_python_is_refused(self):
    code = ("import runpy, sys, dataclasses, tarfile, tempfile\nsys.version_info = (3, 10, 4)\n"
            f"sys.argv = ['lease.py', 'first']\nrunpy.run_path({str(self.root / 'tests/gpu/lease.py')!r}, run_name='__main__')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SLACK_SECONDS)
    self.assertEqual(done.returncode, 2, done.stderr)
    self.assertIn("3.10.4", done.stderr)

  def test_help_names_steps_and_script(self):
    for which, steps in (("first", ("never", "always", "shapes", "keep")), ("second", ("models", "modes", "racecheck", "again"))):
      done = subprocess.run([self.root / f"tests/gpu/{which}_lease.sh", "--help"], capture_output=True, text=True, check=True)
      self.assertIn(f"usage: tests/gpu/{which}_lease.sh", done.stdout)
      for step in steps:
        self.assertRegex(done.stdout, rf"(?m)^  {step} ")

  def test_a_lease_that_is_interrupted_has_a_summary_and_leaves_no_files(self):
    temporary = self.folder / "tmp"
    temporary.mkdir()
    self.environment["TMPDIR"] = str(temporary)
    pid = self.folder / "pid"
    self.program("operations", f"echo $$ >{pid}\nexec sleep 200\n")
    with subprocess.Popen(self.command("--from=operations"), env=self.environment, stdout=subprocess.DEVNULL) as lease:
      self.wait_until(pid.exists)
      lease.send_signal(signal.SIGINT)
      self.assertEqual(lease.wait(SLACK_SECONDS), 128 + 2)
    self.assertEqual(list(temporary.iterdir()), [])
    self.assertEqual(self.results()["operations"], ("failed", "the lease was stopped by SIGINT"))
    self.assertEqual(self.results()["rounds"], ("not run", "the lease was stopped by SIGINT"))
    self.assertIn("SIGINT", self.log())

  def test_without_programs_nothing_else_is_tried(self):
    self.all_pass()
    (self.root / "bin/train_step").unlink()
    (self.folder / "cut.tar.xz").write_bytes(b"no archive")
    code, summary = self.lease(f"--package={self.folder}/cut.tar.xz")
    self.assertEqual(code, 1)
    self.assertIn("deploy/package.sh", summary)
    self.assertNotIn("==> never", self.log())

  def test_a_hostile_archive_of_compiled_code_is_made_anew(self):
    self.all_pass()
    kept = self.folder / "kept"
    kept.mkdir()
    with tarfile.open(kept / "inductor.tar.xz", "w:xz") as archive:
      member = tarfile.TarInfo("../escaped")
      member.size = 1
      archive.addfile(member, io.BytesIO(b"x"))
    code, summary = self.lease(f"--kept={kept}", "--from=never", "--until=never")
    self.assertEqual(code, 0, summary)
    self.assertIn("is made anew", self.log())

  def test_steps_are_in_their_order(self):
    command = [self.root / "tests/gpu/first_lease.sh", "--from=rounds", "--until=never", f"--out={self.out}"]
    self.assertEqual(subprocess.run(command, env=self.environment, stderr=subprocess.DEVNULL, check=False).returncode, 2)

  def test_programs_come_from_the_package(self):
    self.all_pass()
    package = self.folder / "lodestar.tar.xz"
    with tarfile.open(package, "w:xz") as archive:
      archive.add(self.root, self.root.name)
    clone = self.folder / "clone"
    shutil.copytree(self.root, clone, ignore=shutil.ignore_patterns("bin"))
    code, summary = self.lease(f"--package={package}", "--from=never", "--until=never", root=clone)
    self.assertEqual(code, 0, summary)

  def test_second_lease_runs_to_its_end(self):
    self.second_programs()
    code, summary = self.lease("--again=*/DeviceConformanceTest.CrossEntropy*/Bf16Never", which="second")
    self.assertEqual(code, 0, summary + self.log())
    self.assertRegex(summary, r"\n- Lodestar at B = 2: [0-9.]+ times the tokens/s of PyTorch's faster run\n")
    for step in ("models", "modes", "memcheck", "racecheck", "again", "profile", "servers"):
      self.assertIn(f"<== {step}: ", self.log())
    self.assertEqual(self.log().count("1 passed, 0 failed, 0 skipped"), 4)
    self.assertEqual([row[:3] for row in self.rows("rounds.md")], [["2", "fp32", "true"], ["2", "bf16", "true"]])
    (self.tools / "compute-sanitizer").unlink()
    code, summary = self.lease("--from=racecheck", "--until=again", which="second")
    self.assertEqual(code, 77, summary)
    self.assertEqual(self.results()["again"][0], "skipped")

  def test_a_failed_part_names_its_tests_or_its_last_words(self):
    self.second_programs()
    for text, reason in (("echo '[  FAILED  ] Gpt/ModelTest.Learns/Cuda, where'\nexit 1\n", "Gpt/ModelTest.Learns/Cuda"),
                         ("echo the card has fallen off >&2\nexit 134\n", "the card has fallen off")):
      self.program("cuda_model_test", text)
      code, summary = self.lease("--from=models", "--until=models", which="second")
      self.assertEqual(code, 1)
      self.assertRegex(summary, rf"- FAILED models: .*{reason}")

  def test_a_profile_without_kernels_is_a_failure(self):
    self.second_programs()
    self.script(self.tools / "ncu", "echo '==WARNING== No kernels were profiled.'\n")
    code, _ = self.lease("--from=profile", "--until=profile", which="second")
    self.assertEqual(code, 1)
    self.assertIn("No kernels", (self.out / "profile.txt").read_text())

  def test_a_profile_without_one_of_the_kernels_is_a_failure(self):
    self.second_programs()
    self.program("operations", PASSES)
    for kernels, missing in ((("TensorAttentionBackwardKernel",) * 4, "SoftmaxCrossEntropy"),
                             (("SoftmaxCrossEntropyKernel",), "AttentionBackward")):
      self.ncu(*kernels)
      code, summary = self.lease("--from=profile", "--until=profile", which="second")
      self.assertEqual(code, 1)
      self.assertRegex(summary, rf"- FAILED profile: .*{missing}")
    self.ncu("TensorAttentionBackwardKernel", "SoftmaxCrossEntropyKernel")
    self.assertEqual(self.lease("--from=profile", "--until=profile", which="second")[0], 0)
    # A number of launches that counts over both kernels could leave one of them out.
    self.assertIn("--filter-mode=per-launch-config --launch-count=1 ", self.log())


if __name__ == "__main__":
  while len(sys.argv) > 1 and not sys.argv[-1].startswith("-") and os.sep in sys.argv[-1]:
    path = pathlib.Path(sys.argv.pop()).resolve()
    FILES[path.name] = path
  unittest.main()
