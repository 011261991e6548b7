#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""The proxy does what it is told, to the byte, and nothing else.

Usage: fault_proxy_test.py
"""
import contextlib
import os
import socket
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
from fault_proxy import BULK_BYTES, HTTP2_PREFACE, FaultProxy, FrameScanner

PATIENCE_SECONDS = 20


def frame(payload, kind=0):
  return len(payload).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + payload


class FrameScannerTest(unittest.TestCase):

  def test_finds_large_data_frames_however_the_stream_is_cut(self):
    bulk = bytes(BULK_BYTES)
    stream = (HTTP2_PREFACE + frame(b"settings", kind=4) + frame(bulk, kind=1) + frame(b"small") +
              frame(bulk) + frame(b"") + frame(bulk))
    wanted = [stream.index(frame(bulk)) + 9, len(stream) - BULK_BYTES]
    for step in (1, 7, 1000, len(stream)):
      scanner = FrameScanner(has_preface=True)
      found = [at + i for at in range(0, len(stream), step)
               for begin, end in scanner.feed(stream[at:at + step]) for i in range(begin, end)]
      self.assertEqual(found, [begin + i for begin in wanted for i in range(BULK_BYTES)])


class FaultProxyTest(unittest.TestCase):

  def setUp(self):
    self._exit = contextlib.ExitStack()
    self.addCleanup(self._exit.close)
    self.proxy = self._exit.enter_context(FaultProxy())
    self._listener = self._exit.enter_context(socket.create_server(("127.0.0.1", 0)))
    self.port = self.proxy.add_route("route", self._listener.getsockname()[1])

  def connect(self):
    """Both ends of a connection through the proxy."""
    near = self._exit.enter_context(
        socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS))
    far = self._exit.enter_context(self._listener.accept()[0])
    far.settimeout(PATIENCE_SECONDS)
    near.sendall(b"?")  # the proxy knows of the connection once something has passed
    self.assertEqual(far.recv(1), b"?")
    return near, far

  def receive(self, end, num_bytes):
    received = b""
    while len(received) < num_bytes:
      piece = end.recv(num_bytes - len(received))
      self.assertTrue(piece, "the connection has ended")
      received += piece
    return received

  def assert_is_reset(self, end):
    with self.assertRaises(ConnectionResetError):
      end.recv(1)

  def test_carries_both_ways_and_ends_with_its_ends(self):
    near, far = self.connect()
    sent = os.urandom(1 << 20)
    sender = threading.Thread(target=near.sendall, args=(sent,))
    sender.start()
    self.assertEqual(self.receive(far, len(sent)), sent)
    sender.join()
    far.sendall(b"answer")
    self.assertEqual(self.receive(near, 6), b"answer")
    near.close()
    self.assertEqual(far.recv(1), b"")

  def test_cuts_at_the_byte(self):
    near, far = self.connect()
    self.assertTrue(self.proxy.cut("route", 0.5, is_up=True, num_bytes=3))
    near.sendall(b"12")
    self.assertEqual(self.receive(far, 2), b"12")
    near.sendall(b"345")
    with self.assertRaises(ConnectionResetError):
      self.assertEqual(far.recv(8), b"3")
      far.recv(8)
    self.assert_is_reset(near)

  def test_swallows_one_direction_of_one_connection(self):
    near, far = self.connect()
    self.assertTrue(self.proxy.half_open("route", 0, up=True, down=False))
    near.sendall(b"lost")
    far.sendall(b"answer")
    self.assertEqual(self.receive(near, 6), b"answer")
    far.setblocking(False)
    self.assertRaises(BlockingIOError, far.recv, 1)
    self.connect()

  def test_flips_one_bit_of_the_next_tensor(self):
    near, far = self.connect()
    self.proxy.flip_bit("route", 0.999)
    sent = frame(b"small") + frame(bytes(BULK_BYTES)) * 2
    far.sendall(sent)
    received = self.receive(near, len(sent))
    flipped = [i for i, (a, b) in enumerate(zip(sent, received)) if a != b]
    self.assertEqual(len(flipped), 1)
    self.assertEqual((sent[flipped[0]] ^ received[flipped[0]]).bit_count(), 1)
    self.assertEqual(self.proxy.routes["route"].flips, 1)

  def test_refuses_and_listens_again_on_the_same_port(self):
    near, _ = self.connect()
    self.proxy.refuse("route")
    self.assert_is_reset(near)
    self.assertRaises(ConnectionRefusedError, socket.create_connection, ("127.0.0.1", self.port))
    self.proxy.listen("route")
    self.connect()

  def test_moves_to_another_port(self):
    near, _ = self.connect()
    moved = self._exit.enter_context(socket.create_server(("127.0.0.1", 0)))
    self.proxy.move("route", moved.getsockname()[1])
    self.assert_is_reset(near)
    self._listener = moved
    self.connect()

  def test_resets_who_dials_while_nobody_listens_behind(self):
    self._listener.close()
    near = self._exit.enter_context(socket.create_connection(("127.0.0.1", self.port)))
    self.assert_is_reset(near)


if __name__ == "__main__":
  unittest.main()
