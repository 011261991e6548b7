# SPDX-License-Identifier: Apache-2.0
"""Tests of bill_of_materials.py, build_wheel.py, loss_curve.py, yardsticks.py, lodestar.sbatch and the completions of shells."""

import base64
import contextlib
import hashlib
import io
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
import zipfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "wheel")]

import bill_of_materials  # noqa: E402
import build_wheel  # noqa: E402
import loss_curve  # noqa: E402  (after the path is set)
import yardsticks  # noqa: E402


class BillOfMaterials(unittest.TestCase):
    def test_names_every_part_once_and_how_it_is_used(self):
        lines = ["zlib1g 1:1.2+b1 amd64 linked\n", "json-dev 3 all compiled\n"]
        parts = bill_of_materials.read_parts(lines + lines)
        bill = bill_of_materials.bill_of_materials("0.1", "abc", parts, "2026-01-02T03:04:05Z")
        self.assertEqual([p["name"] for p in bill["packages"]], ["lodestar", "json-dev", "zlib1g"])
        self.assertEqual(
            bill["packages"][2]["externalRefs"][0]["referenceLocator"],
            "pkg:deb/debian/zlib1g@1:1.2%2Bb1?arch=amd64",
        )
        ids = {p["SPDXID"] for p in bill["packages"]} | {bill["SPDXID"]}
        kinds = set()
        for relationship in bill["relationships"]:
            self.assertIn(relationship["spdxElementId"], ids)
            self.assertIn(relationship["relatedSpdxElement"], ids)
            kinds.add(relationship["relationshipType"])
        self.assertEqual(kinds, {"DESCRIBES", "DYNAMIC_LINK", "STATIC_LINK"})
        self.assertEqual(
            bill, bill_of_materials.bill_of_materials("0.1", "abc", parts, "2026-01-02T03:04:05Z")
        )

    def test_refuses_what_is_no_part(self):
        with self.assertRaisesRegex(ValueError, "line 2 .* 'zlib1g 1'"):
            bill_of_materials.read_parts(["a 1 all linked", "zlib1g 1"])

    def test_takes_its_time_from_who_builds(self):
        self.assertEqual(bill_of_materials.created({"SOURCE_DATE_EPOCH": "0"}), "1970-01-01T00:00:00Z")


PROGRAM = """#!/bin/bash
case "$*" in
  --helpfull) printf '%s\\n' '  --mode=sync' '      How workers move.' '  --model=gpt' '  --exit_when_done=false' ;;
  help) printf '%s\\n' '  psctl status [--watch]' '      the job' '  psctl stop' \\
    '  psctl token create [--ttl=24h] | list | revoke ID' ;;
  'help status') printf '%s\\n' '  --watch=false' '  --server=127.0.0.1:50051' ;;
esac
"""


class Completions(unittest.TestCase):
    def complete(self, *words):
        """What is offered for the last of `words`."""
        with tempfile.TemporaryDirectory() as folder:
            for program in ("ps_server", "psctl"):
                path = os.path.join(folder, program)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(PROGRAM)
                os.chmod(path, 0o755)
            script = (
                f'source "{FOLDER}/completions/lodestar.bash"; '
                'COMP_WORDS=("$0" "$@"); COMP_CWORD=$#; _lodestar; '
                'printf "%s\\n" "${COMPREPLY[@]}"'
            )
            run = subprocess.run(
                ["bash", "-c", script, *words],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]},
            )
            return sorted(run.stdout.split())

    def test_offers_the_flags_of_the_program(self):
        self.assertEqual(self.complete("ps_server", "--mod"), ["--mode=", "--model="])
        self.assertEqual(self.complete("ps_server", "--e"), ["--exit_when_done"])

    def test_offers_the_commands_of_psctl_and_their_flags(self):
        self.assertEqual(self.complete("psctl", "st"), ["status", "stop"])
        self.assertEqual(self.complete("psctl", "status", "--w"), ["--watch"])
        self.assertEqual(self.complete("psctl", "token", ""), ["create", "list", "revoke"])
        self.assertEqual(self.complete("psctl", "token", "r"), ["revoke"])
        self.assertEqual(self.complete("psctl", "launch", "--", "--mod"), ["--mode=", "--model="])


class Relocate(unittest.TestCase):
    def test_libraries_of_the_folder_count_before_those_of_the_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            program = os.path.join(folder, "bin", "patchelf")
            shutil.copy(shutil.which("patchelf"), program)  # a program with a library of C++
            script = os.path.join(FOLDER, "relocate.sh")
            subprocess.run([script, folder], stdout=subprocess.DEVNULL, check=True)
            libraries = [os.path.join(folder, "lib", name) for name in os.listdir(os.path.join(folder, "lib"))]
            self.assertTrue(libraries)
            for file in [program] + libraries:
                entries = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
                self.assertIn("(RPATH)", entries, file)
                self.assertNotIn("(RUNPATH)", entries, file)


class SlurmScript(unittest.TestCase):
    """lodestar.sbatch with stand-ins for Slurm and for the programs of Lodestar."""

    STAND_INS = {
        "scontrol": 'if [ "$1" = show ]; then echo node1; else echo "$@" >>"$HOME/requeued"; fi',
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; SLURM_PROCID=0 exec "$@"',
        "psctl": 'case $1-$JOB in status-runs) exit 131 ;; token*) echo lodestar://node1:1/L1x ;; esac',
        "gpu_worker": "exit $WORKER_CODE",
        # Ends by itself once the job is done, else when it is told to.
        "ps_server": "trap 'kill $!; exit 143' TERM; if [ $JOB = done ]; then sleep 1; exit 0; fi; sleep 600 & wait",
    }

    def run_job(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            for program, script in self.STAND_INS.items():
                path = os.path.join(folder, program)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("#!/bin/bash\n" + script + "\n")
                os.chmod(path, 0o755)
            run = subprocess.run(
                ["bash", f"{FOLDER}/slurm/lodestar.sbatch", "--data=x", "--", "--model=m"],
                capture_output=True, text=True, check=False, timeout=60,
                env={**os.environ, **environment, "HOME": folder, "PATH": folder + ":" + os.environ["PATH"],
                     "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_NTASKS": "1"})
            self.assertFalse(os.path.exists(os.path.join(folder, "requeued")))
            return run

    def test_ends_once_all_workers_have_failed(self):
        run = self.run_job(WORKER_CODE="2", JOB="runs")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("all workers have ended, with exit code 2", run.stdout)

    def test_a_job_that_is_done_has_not_failed(self):
        for worker_code in ("0", "1"):
            run = self.run_job(WORKER_CODE=worker_code, JOB="done")
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            self.assertEqual(run.stderr, "")


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, *names, content="", mode=0o644):
        path = os.path.join(self.folder, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def build(self, root):
        out = os.path.join(self.folder, "out.whl")
        build_wheel.write_wheel(os.path.join(self.folder, root), out, "1.2")
        with open(out, "rb") as file:
            return file.read()

    def test_same_files_make_the_same_bytes(self):
        for root, names in (("a", ["x", "y/z"]), ("b", ["y/z", "x"])):
            for age, name in enumerate(names):
                path = self.write(root, name, content=name)
                os.utime(path, (1000 * age, 1000 * age))
        self.assertEqual(self.build("a"), self.build("b"))

    def test_record_has_every_file_and_modes_are_kept(self):
        self.write("a", "lodestar/bin/program", content="#!", mode=0o755)
        self.write("a", "lodestar/__init__.py", content="x = 1\n")
        with zipfile.ZipFile(io.BytesIO(self.build("a"))) as wheel:
            names = wheel.namelist()
            lines = wheel.read("lodestar-1.2.dist-info/RECORD").decode().splitlines()
            self.assertEqual([line.split(",")[0] for line in lines], names)
            digest = hashlib.sha256(b"x = 1\n").digest()
            text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            self.assertIn(f"lodestar/__init__.py,sha256={text},6", lines)
            modes = {name: wheel.getinfo(name).external_attr >> 16 & 0o777 for name in names}
        self.assertEqual(modes["lodestar/bin/program"], 0o755)
        self.assertEqual(modes["lodestar/__init__.py"], 0o644)

    def test_package_and_name_have_the_version_of_the_programs(self):
        init = self.write("lodestar/__init__.py", content='"""Doc."""\n__version__ = "1.2"\n')
        name = "lodestar-1.2-py3-none-linux_x86_64.whl"
        build_wheel.check_versions("1.2", [init], name)
        with self.assertRaisesRegex(ValueError, "has version 1.2, but common/process/version.h has 1.3"):
            build_wheel.check_versions("1.3", [init], name)
        with self.assertRaisesRegex(ValueError, "names the wheel other.whl, but with the version in common/process/version.h it must be"):
            build_wheel.check_versions("1.2", [init], "other.whl")
        with self.assertRaisesRegex(ValueError, "no lodestar/__init__.py"):
            build_wheel.check_versions("1.2", ["lodestar/server.py"], name)


class Yardsticks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, name, content):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def test_holds_out_the_last_tenth_of_every_file_rounded_down(self):
        path = self.write("f", b"0123456789" * 2 + b"abcdefghi")
        self.assertEqual(yardsticks.split_corpus(path), (b"0123456789" * 2 + b"abcdefg", b"hi"))
        self.assertEqual(yardsticks.split_corpus(self.write("g", b"012345678"))[1], b"")

    def test_sorts_by_path_relative_to_the_root(self):
        self.write("b", b"." * 9 + b"3")
        self.write("a/z", b"." * 9 + b"2")
        self.write("a.txt", b"." * 9 + b"1")
        self.assertEqual(yardsticks.split_corpus(self.root)[1], b"123")

    def test_follows_links_once(self):
        self.write("sub/f", b"." * 9 + b"1")
        os.symlink("..", os.path.join(self.root, "sub", "up"))
        os.symlink("self", os.path.join(self.root, "self"))
        self.assertEqual(yardsticks.split_corpus(self.root)[1], b"1")
        self.assertEqual(len(yardsticks.corpus_files(self.root)), 1)

    def test_counts_as_the_formulas_say(self):
        # Two bytes, each as often as the other, in turns: 1 bit by frequency, none by predecessor.
        training, heldout = b"ab" * 1000000, b"ab" * 1000
        self.assertAlmostEqual(yardsticks.bits_by_frequency(training, heldout), 1.0, places=3)
        self.assertAlmostEqual(yardsticks.bits_by_predecessor(training, heldout), 0.0, places=2)
        # What was never seen is counted once among 4 + 256.
        self.assertAlmostEqual(yardsticks.bits_by_frequency(b"aaaa", b"b"), math.log2(260))

    def test_puts_the_model_where_it_belongs(self):
        path = self.write("text", bytes(random.Random(1).choices(b"abcd", k=200000)))
        self.assertEqual([whose for _, whose in yardsticks.ladder(path, 1.0)][-1], "this model  <--")
        self.assertEqual([whose for _, whose in yardsticks.ladder(path, 9.0)][0], "this model  <--")
        # Four letters at random are 2 bits for a model that has only counted.
        by_name = {whose: bits for bits, whose in yardsticks.ladder(path, 1.0)}
        self.assertAlmostEqual(by_name["how often each byte occurs"], 2.0, places=2)
        self.assertGreaterEqual(by_name["gzip -9"], 2.0)

    def test_no_held_out_bytes_is_an_error(self):
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(yardsticks.main([self.write("short", b"123"), "2"]), 1)
            self.assertEqual(yardsticks.main([os.path.join(self.root, "nowhere"), "2"]), 1)
            self.assertEqual(yardsticks.main([]), 2)


class LossCurve(unittest.TestCase):
    def test_reads_what_is_complete_and_the_last_word_on_each_round(self):
        train, heldout = loss_curve.read_metrics(
            [
                '{"round": 1, "train_loss": 3.0}',
                '{"round": 0, "train_loss": 4.0, "heldout_loss": 5.0}',
                '{"round": 1, "train_loss": 2.5}',
                '{"round": 2, "heldout_loss": null}',
                '{"round": 3, "train',
            ]
        )
        self.assertEqual(train, [(0, 4.0), (1, 2.5)])
        self.assertEqual(heldout, [(0, 5.0)])

    def test_thinning_keeps_the_mean(self):
        points = [(i, 2.0 * i) for i in range(1000)]
        thin = loss_curve.thin_out(points, 100)
        self.assertEqual(len(thin), 100)
        self.assertAlmostEqual(sum(y for _, y in thin) / 100, 999.0)
        self.assertEqual(loss_curve.thin_out(points[:3], 100), [(0, 0.0), (1, 2.0), (2, 4.0)])

    def test_ticks_are_round_and_inside(self):
        self.assertEqual(loss_curve.ticks(0, 10, 5), [0, 2, 4, 6, 8, 10])
        self.assertEqual(loss_curve.ticks(1.3, 1.9, 3), [1.4, 1.6, 1.8])

    def test_draws_well_formed_svg_with_lower_loss_further_down(self):
        picture = loss_curve.draw([(0, 4.0), (10, 2.0)], [(10, 3.0)], "bits", 1.0)
        root = ElementTree.fromstring(picture)
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 2)
        first, last = [tuple(map(float, p.split(","))) for p in lines[0].get("points").split()]
        self.assertLess(first[0], last[0])
        self.assertLess(first[1], last[1])

    def test_no_losses_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            metrics = os.path.join(folder, "metrics.jsonl")
            open(metrics, "w", encoding="utf-8").close()
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(loss_curve.main([metrics, os.path.join(folder, "x.svg")]), 1)
                self.assertEqual(loss_curve.main([]), 2)


if __name__ == "__main__":
    unittest.main()
