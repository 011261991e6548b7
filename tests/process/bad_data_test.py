#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""Data that is damaged or does not fit: each is an error before training, and no harm to the job.

Usage: bad_data_test.py PS_SERVER GPU_WORKER PSCTL
"""
import gzip
import os
import struct

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase, members_of

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
HELDOUT_IMAGES, HELDOUT_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
TOKENS_MAGIC = 20240520
CIFAR10_RECORD_BYTES = 1 + 3 * 32 * 32


def idx_images(count, side=2, magic=0x803):
  return struct.pack(">4I", magic, count, side, side) + bytes(count * side * side)


def idx_labels(labels, magic=0x801):
  return struct.pack(">2I", magic, len(labels)) + bytes(labels)


def tokens(values, magic=TOKENS_MAGIC, version=1, count=None, width="H"):
  header = struct.pack("<3i", magic, version, len(values) if count is None else count)
  return header.ljust(1024, b"\0") + struct.pack(f"<{len(values)}{width}", *values)


class BadDataTest(ClusterTestCase):

  def expect_refused(self, cases, connects):
    """Cases: name, files by path below the folder of that name, texts that the error holds.

    connects: whether it takes the job to see what is wrong.
    """
    for name, files, texts in cases:
      with self.subTest(name=name):
        os.mkdir(self.path(name))
        for file_name, content in files.items():
          self.write(os.path.join(name, file_name), content)
        worker = self.start_worker(name, data=os.path.join(name, self.data_file))
        code = worker.wait()
        log = worker.log()
        self.assertTrue(1 <= code <= 127, f"exit code {code}\n{log}")
        for text in (self.path(name), *texts):
          self.assertIn(text, log.split(" error ")[-1])
        self.assertNotIn(" round ", log)
        self.assertEqual("registered with" in log, connects, log)
    status = self.status()
    self.assertEqual((status["state"], status["round"], members_of(status)),
                     ("waiting_for_workers", "0", []))

  def test_tokens(self):
    self.server = self.start_server()
    self.data_file = "tokens.bin"
    good = [i % 256 for i in range(1000)]
    self.expect_refused([
        ("too_large", {"tokens.bin": tokens(good[:500] + [300] + good[:500])},
         ["tokens.bin", "token at offset 2024 is 300", "256", "uint16", "GPT-2"]),
        ("too_large_without_header", {"tokens.bin": struct.pack("<1001H", *good, 999)},
         ["tokens.bin", "token at offset 2000 is 999", "256"]),
        ("wide", {"tokens.bin": struct.pack("<1000I", *good)},
         ["tokens.bin", "look like uint32", "--token_bytes=4"]),
        ("wide_by_header", {"tokens.bin": tokens([1] * 1000, 20240801, 7, width="I")[:-4] +
                            struct.pack("<I", 100000)},
         ["tokens.bin", "token at offset 5020 is 100000", "Llama 3", "128256"]),
    ], connects=True)
    self.expect_refused([
        ("truncated", {"tokens.bin": tokens(good, count=2000)},
         ["tokens.bin", "2000 tokens of 2 bytes", "5024 bytes", "the file has 3024"]),
        ("header_only_in_part", {"tokens.bin": tokens(good)[:100]},
         ["tokens.bin", "offset 100", "1024"]),
        ("version", {"tokens.bin": tokens(good, version=2)},
         ["tokens.bin", "version 2", "offset 4"]),
        ("half_a_token", {"tokens.bin": bytes(2001)}, ["tokens.bin", "2001 bytes"]),
        ("questions", {"tokens.bin": tokens(good, magic=20240522)}, ["questions of an evaluation"]),
        ("int64", {"tokens.bin": struct.pack("<1000q", *good)}, ["tokens.bin", "int64", "<i8"]),
        ("other_header", {"tokens.bin": tokens(good, magic=12345)}, ["tokens.bin", "12345"]),
        ("pointer", {"tokens.bin": "version https://git-lfs.github.com/spec/v1\nsize 5\n"},
         ["tokens.bin", "git lfs pull"]),
    ], connects=False)
    self.stop_job(self.server)

  def test_text(self):
    self.server = self.start_server()
    self.data_file = ""
    self.expect_refused([
        ("short", {"a.txt": "17 bytes at least"}, ["a.txt", "17 tokens", "context 16"]),
        ("images", {IMAGES: idx_images(3), LABELS: idx_labels([0, 1, 2]),
                    HELDOUT_IMAGES: idx_images(1), HELDOUT_LABELS: idx_labels([0])},
         ["idx images", "needs text or tokens"]),
    ], connects=True)
    self.expect_refused([
        ("empty", {"a.txt": "", "b.txt": ""}, ["empty corpus", "2 files"]),
        ("no_files", {}, ["empty corpus", "0 files"]),
        ("packed", {"a.txt": gzip.compress(b"text" * 1000)}, ["a.txt", "gzip data", "unpack"]),
        ("program", {"a.txt": "text", "b": b"\x7fELF\2\1\1" + bytes(100)},
         ["b (an ELF program)", "remove it"]),
        ("random", {"a": bytes(i * i * 7 % 256 for i in range(3000))}, ["control codes", "a ("]),
        ("mixed", {"other.txt": "text", "train.bin": bytes(100)},
         ["other.txt", "train.bin", "--data_format=tokens"]),
    ], connects=False)
    self.stop_job(self.server)

  def test_before_there_is_a_server(self):
    self.port = 1  # no process listens there
    worker = self.start_worker("lost", data="nowhere")
    self.assertTrue(1 <= worker.wait() <= 127, worker.log())
    self.assertIn(self.path("nowhere") + ": No such file or directory", worker.log())
    self.assertNotIn("not connected", worker.log())

  def test_more_files_than_the_soft_limit_of_open_files(self):
    self.port = 1  # no process listens there
    os.mkdir(self.path("many"))
    for i in range(100):
      self.write(os.path.join("many", f"{i}.txt"), "To be, or not to be. " * 20)
    worker = self.start(
        ["sh", "-c", 'ulimit -Sn 40; exec "$0" "$@"', BINARIES["gpu_worker"], "--coordinator=127.0.0.1:1",
         "--data=" + self.path("many"), "--device=cpu", "--threads=1", "--connect_timeout=1s"], "worker_many")
    self.assertEqual(worker.wait(), 129, worker.log())
    self.assertNotIn("Too many open files", worker.log())

  def test_data_that_is_cut_short_while_it_is_trained_on(self):
    self.server = self.start_server()
    self.write("long.txt", "words and words " * 10000)
    worker = self.start_worker("late", data="long.txt")
    self.wait_for_status(lambda status: int(status["round"]) > 2, "rounds")
    os.truncate(self.path("long.txt"), 1000)
    self.assertTrue(1 <= worker.wait() <= 127, worker.log())
    for text in (self.path("long.txt"), "changed while it was in use", "had 160000 bytes", "has 1000"):
      self.assertIn(text, worker.log().split(" error ")[-1])
    self.stop_job(self.server)

  def test_idx(self):
    self.write("model.textproto", 'name: "tiny" mlp { widths: [4, 3] }')
    self.server = self.start_server()
    self.data_file = ""
    good = {IMAGES: idx_images(5), LABELS: idx_labels([0, 1, 2, 0, 1]),
            HELDOUT_IMAGES: idx_images(2), HELDOUT_LABELS: idx_labels([0, 1])}
    packed = gzip.compress(good[IMAGES])
    without_images = {name: content for name, content in good.items() if name != IMAGES}
    self.expect_refused([
        ("label", {**good, LABELS: idx_labels([0, 1, 2, 3, 0])},
         [LABELS, "label at offset 11 is 3", "3 classes"]),
        ("size", {**good, IMAGES: idx_images(5, side=3), HELDOUT_IMAGES: idx_images(2, side=3)},
         [IMAGES, "9 pixels", "4 pixels"]),
        ("text", {"a.txt": "words " * 100}, ["holds text", "needs images"]),
    ], connects=True)
    self.expect_refused([
        ("truncated", {**good, IMAGES: good[IMAGES][:-3]},
         [IMAGES, "5 entries", "36 bytes", "ends at offset 33"]),
        ("truncated_labels", {**good, LABELS: good[LABELS][:-1]}, [LABELS, "ends at offset 12"]),
        ("header_only_in_part", {**good, IMAGES: good[IMAGES][:9]}, [IMAGES, "offset 9", "16"]),
        ("magic", {**good, IMAGES: idx_images(5, magic=0x804)},
         [IMAGES, "0x00000804", "offset 0", "0x00000803"]),
        ("swapped", {**good, LABELS: idx_images(5)}, [LABELS, "0x00000803", "0x00000801"]),
        ("counts", {**good, LABELS: idx_labels([0, 1])}, [LABELS, "2 labels", "5 images"]),
        ("packed_and_truncated", {**without_images, IMAGES + ".gz": packed[:-9]},
         [IMAGES + ".gz", f"of {len(packed) - 9} compressed bytes", "ends early"]),
        ("missing", without_images, [IMAGES, "no such file"]),
    ], connects=False)
    self.stop_job(self.server)

  def test_cifar10(self):
    self.write("model.textproto", 'name: "tiny" mlp { widths: [3072, 2] }')
    self.server = self.start_server()
    self.data_file = ""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    good = {name: bytes(2 * CIFAR10_RECORD_BYTES) for name in names}
    self.expect_refused([
        ("label", {**good, names[5]: b"\2" + bytes(CIFAR10_RECORD_BYTES - 1)},
         [names[5], "label at offset 0 is 2", "2 classes"]),
    ], connects=True)
    self.expect_refused([
        ("truncated", {**good, names[2]: bytes(2 * CIFAR10_RECORD_BYTES - 1)},
         [names[2], "offset 3073", "3073 bytes"]),
        ("missing", {name: good[name] for name in names[1:]}, [names[0], "no such file"]),
    ], connects=False)
    self.stop_job(self.server)


if __name__ == "__main__":
  cluster_processes.main()
