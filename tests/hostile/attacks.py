# SPDX-License-Identifier: Apache-2.0
"""What strangers, and workers that lie, may do to a server: one function per attack, in ATTACKS.

Runs as a program, so that its nice value and its CPU time are its own:
  attacks.py NAME --address=HOST:PORT [--seconds=N] [--seed=N] [--credentials=FOLDER] [--tls]
Prints how much it has done. Whatever the server does, it goes on until its time is over.
"""
import argparse
import contextlib
import os
import random
import resource
import socket
import ssl
import struct
import time

import http2_wire as wire

WIRE_VERSION = 3
ATTACKS = {}
OPEN_FILES = 12000


class Attack:
  """One of ATTACKS. `needs`: anyone (nothing of it reaches gRPC where there is TLS), tls (only
  there), http2 (gets to gRPC: anyone in plain text, else who has a certificate)."""

  def __init__(self, run, needs):
    self.run = run
    self.needs = needs
    self.text = run.__doc__


def attack(needs):

  def register(function):
    ATTACKS[function.__name__] = Attack(function, needs)
    return function

  return register


class Peer:
  """The server as it is to an attacker, and how long to go on."""

  def __init__(self, address, seconds, seed, tls=None, speaks_tls=False):
    self.address = address
    self.tls = tls  # an SSLContext with a certificate
    self.speaks_tls = speaks_tls
    self.random = random.Random(seed)
    self._end = time.monotonic() + seconds
    self.done = 0  # of what the attack does

  def goes_on(self):
    return time.monotonic() < self._end

  def pause(self, seconds):
    time.sleep(max(0.0, min(seconds, self._end - time.monotonic())))

  def raw(self, patience=1.0):
    """A TCP connection; None: refused."""
    try:
      plain = socket.create_connection(self.address, patience)
      plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
      return plain
    except OSError:
      return None

  def http2(self, greets=True):
    """A connection that has got to gRPC; None: refused."""
    try:
      return wire.Connection(self.address, self.tls, seconds=2.0, greets=greets)
    except OSError:
      return None

  def each(self, step, num_connections=1, greets=True, pause=0.0):
    """Calls step(connection) for all in turn; those that break are opened anew."""
    connections = [None] * num_connections
    while self.goes_on():
      for i, connection in enumerate(connections):
        if not self.goes_on():
          break
        if connection is None:
          connections[i] = self.http2(greets)
          if connections[i] is None:
            self.pause(0.01)
          continue
        try:
          step(connection)
          if connection.drain() is None:
            raise OSError("closed")
        except (OSError, ssl.SSLError):
          connection.close()
          connections[i] = None
      self.pause(pause)
    for connection in connections:
      if connection is not None:
        connection.close()

  def crowd(self, opening, size, on_each=None, pause=0.05):
    """Keeps `size` connections that have sent `opening`; on_each(socket) now and then."""
    crowd = []
    while self.goes_on():
      while len(crowd) < size and self.goes_on():
        member = self.raw(0.3)
        if member is None:
          break
        self.done += 1
        with contextlib.suppress(OSError):
          member.sendall(opening)
        member.setblocking(False)
        crowd.append(member)
        if len(crowd) % 64 == 0:
          break
      living = []
      for member in crowd:
        try:
          if on_each is not None:
            on_each(member)
          if member.recv(1 << 16) == b"":
            raise OSError("closed")
        except BlockingIOError:
          pass
        except OSError:
          member.close()
          continue
        living.append(member)
      crowd = living
      self.pause(pause)
    for member in crowd:
      member.close()


# Protobuf by hand: a tag, then a varint or a length and bytes.


def varint(value):
  out = bytearray()
  value &= (1 << 64) - 1
  while value >= 128:
    out.append(value % 128 + 128)
    value //= 128
  out.append(value)
  return bytes(out)


def number(field, value):
  return varint(field << 3) + varint(value)


def text(field, data):
  data = data if isinstance(data, bytes) else data.encode()
  return varint(field << 3 | 2) + varint(len(data)) + data


def registration(name, layout=b"", instance=7):
  return (number(1, WIRE_VERSION) + text(3, name) + number(4, instance) +
          (text(6, layout) if layout else b""))


def client_hello(with_tls13=True):
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname = False
  context.verify_mode = ssl.CERT_NONE
  if not with_tls13:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
  came, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
  session = context.wrap_bio(came, sent, server_hostname="lodestar")
  with contextlib.suppress(ssl.SSLWantReadError):
    session.do_handshake()
  return sent.read()


def call(connection, path, message):
  """A whole call with one small message; its answer is not waited for."""
  stream = connection.open(path)
  connection.send(wire.frame(wire.DATA, wire.END_STREAM, stream, wire.grpc_message(message)))


CLUSTER = "/lodestar.v1.ClusterService/"
PARAMETERS = "/lodestar.v1.ParameterService/"
STATUS = "/lodestar.v1.StatusService/"

# At the port.


@attack("anyone")
def random_bytes(peer):
  """connections that send up to 4 KiB of noise each"""
  while peer.goes_on():
    connection = peer.raw()
    if connection is None:
      continue
    with contextlib.suppress(OSError):
      connection.sendall(peer.random.randbytes(peer.random.randint(1, 4096)))
    connection.close()
    peer.done += 1


@attack("anyone")
def http1(peer):
  """requests of HTTP/1.1"""
  while peer.goes_on():
    connection = peer.raw()
    if connection is None:
      continue
    with contextlib.suppress(OSError):
      connection.sendall(b"GET /" + b"x" * 500 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
      connection.recv(4096)
    connection.close()
    peer.done += 1


@attack("anyone")
def silent_connections(peer):
  """5000 connections that say nothing"""
  peer.crowd(b"", 5000)


@attack("anyone")
def slow_loris(peer):
  """500 connections that send their first message byte by byte"""
  opening = client_hello() if peer.speaks_tls else wire.PREFACE + wire.settings()
  sent = {}

  def one_more(member):
    position = sent.get(member.fileno(), 1)
    sent[member.fileno()] = position + 1
    member.send(opening[position % len(opening):][:1])

  peer.crowd(opening[:1], 500, one_more, pause=0.5)


@attack("http2")
def idle_connections(peer):
  """5000 connections that have greeted as gRPC's clients do, and do nothing more"""
  if peer.tls is None:
    return peer.crowd(wire.PREFACE + wire.settings(), 5000)
  peer.each(lambda connection: None, num_connections=5000, pause=0.5)
  return None


@attack("tls")
def half_open_tls(peer):
  """5000 connections with a ClientHello and nothing behind it"""
  peer.crowd(client_hello(), 5000)


@attack("tls")
def old_tls(peer):
  """handshakes of clients that know TLS 1.2 at most"""
  hello = client_hello(with_tls13=False)
  while peer.goes_on():
    connection = peer.raw()
    if connection is None:
      continue
    with contextlib.suppress(OSError):
      connection.sendall(hello)
      connection.recv(4096)
    connection.close()
    peer.done += 1


@attack("tls")
def handshakes(peer):
  """whole handshakes without a certificate: the server computes a key and a signature for each"""
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname = False
  context.verify_mode = ssl.CERT_NONE
  context.set_alpn_protocols(["h2"])
  while peer.goes_on():
    connection = peer.raw()
    if connection is None:
      continue
    with contextlib.suppress(OSError):
      tls = context.wrap_socket(connection, server_hostname="lodestar")
      tls.recv(1)
      tls.close()
    connection.close()
    peer.done += 1


@attack("anyone")
def enrolments_left(peer):
  """200 connections that begin an enrolment and say no more"""
  peer.crowd(b"LODESTAR-ENROLL-1\n", 200, pause=0.2)


@attack("tls")
def wrong_secrets(peer):
  """enrolments with secrets that are guessed"""
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname = False
  context.verify_mode = ssl.CERT_NONE
  while peer.goes_on():
    connection = peer.raw()
    if connection is None:
      continue
    with contextlib.suppress(OSError):
      connection.sendall(b"LODESTAR-ENROLL-1\n")
      tls = context.wrap_socket(connection, server_hostname="lodestar")
      request = (number(1, WIRE_VERSION) + text(2, "%012x" % peer.random.getrandbits(48)) +
                 text(3, "%032x" % peer.random.getrandbits(128)) + text(4, "no request"))
      tls.sendall(struct.pack(">I", len(request)) + request)
      tls.recv(4096)
      tls.close()
    connection.close()
    peer.done += 1


# HTTP/2.


@attack("http2")
def random_frames(peer):
  """frames of random kinds, flags, streams and contents"""

  def step(connection):
    for _ in range(20):
      peer.done += 1
      connection.send(wire.frame(peer.random.randint(0, 12), peer.random.getrandbits(8),
                                 peer.random.choice([0, 1, 3, 5, 1 << 30]),
                                 peer.random.randbytes(peer.random.randint(0, 200))))

  peer.each(step)


@attack("http2")
def wrong_lengths(peer):
  """frames and messages that are not as long as they say"""

  def step(connection):
    peer.done += 1
    path = peer.random.choice([CLUSTER + "Register", CLUSTER + "Heartbeat", PARAMETERS + "Push"])
    kind = peer.random.randint(0, 3)
    stream = connection.open(path)
    if kind == 0:  # far above what is allowed
      connection.send(wire.frame(wire.DATA, 0, stream, wire.grpc_message(b"x", (1 << 32) - 1)))
    elif kind == 1:  # ends too early
      connection.send(wire.frame(wire.DATA, 1, stream, wire.grpc_message(b"x" * 10, 1000)))
    elif kind == 2:  # more than it says
      connection.send(wire.frame(wire.DATA, 1, stream, wire.grpc_message(b"\xff" * 100, 10)))
    else:  # a frame of 16 MiB
      connection.send(wire.frame(wire.DATA, 0, stream, b"x" * 100, (1 << 24) - 1))

  peer.each(step)


@attack("http2")
def header_flood(peer):
  """calls with hundreds of headers, beyond what is allowed"""
  headers = b"".join(wire.literal(f"x-{i}", "v" * 100) for i in range(140))

  def step(connection):
    peer.done += 1
    stream = connection.next_stream
    connection.next_stream += 2
    connection.send(wire.frame(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, stream,
                               wire.request_headers(CLUSTER + "Heartbeat") + headers))

  peer.each(step)


@attack("http2")
def endless_header(peer):
  """one header of 1 GiB, in frames of 16 KiB"""
  started = set()
  part = b"x" * 16000

  def step(connection):
    peer.done += 1
    if id(connection) not in started:
      started.add(id(connection))
      head = b"\x00" + wire.integer(1, 7) + b"a" + wire.integer(1 << 30, 7)
      connection.send(wire.frame(wire.HEADERS, 0, 1, head))
    connection.send(wire.frame(wire.CONTINUATION, 0, 1, part))

  peer.each(step)


@attack("http2")
def header_tables(peer):
  """headers that are to be remembered, with the largest table that can be asked for"""

  def step(connection):
    peer.done += 1
    if connection.next_stream == 1:
      connection.send(wire.settings((wire.SETTINGS_HEADER_TABLE_SIZE, (1 << 32) - 1)))
    resize = wire.integer((1 << 31) - 1, 5, 0x20)
    remembered = b"".join(
        wire.literal("x-%x" % peer.random.getrandbits(64), "v" * 60, True) for _ in range(30))
    stream = connection.next_stream
    connection.next_stream += 2
    connection.send(wire.frame(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, stream,
                               (resize if peer.random.random() < 0.01 else b"") +
                               wire.request_headers(CLUSTER + "Heartbeat") + remembered))

  peer.each(step)


@attack("http2")
def rapid_reset(peer):
  """calls that are cut off in the moment that they begin (CVE-2023-44487)"""
  headers = wire.request_headers(CLUSTER + "Heartbeat")

  def step(connection):
    burst = bytearray()
    for _ in range(100):
      peer.done += 1
      stream = connection.next_stream
      connection.next_stream += 2
      burst += wire.frame(wire.HEADERS, wire.END_HEADERS, stream, headers)
      burst += wire.frame(wire.RST_STREAM, 0, stream, struct.pack(">I", 8))
    connection.send(burst)

  peer.each(step)


@attack("http2")
def settings_flood(peer):
  """settings without end, each of which is to be acknowledged"""
  burst = wire.settings((wire.SETTINGS_INITIAL_WINDOW_SIZE, 65535)) * 200

  def step(connection):
    peer.done += 200
    connection.send(burst)

  peer.each(step)


@attack("http2")
def ping_flood(peer):
  """pings without end"""
  burst = wire.frame(wire.PING, 0, 0, b"12345678") * 200

  def step(connection):
    peer.done += 200
    connection.send(burst)

  peer.each(step)


@attack("http2")
def unfinished_streams(peer):
  """thousands of calls on each of 20 connections, none of which ever gets its message"""
  paths = [CLUSTER + "Register", CLUSTER + "NextGrant", PARAMETERS + "Push", PARAMETERS + "Pull"]

  def step(connection):
    for _ in range(50):
      if connection.next_stream > 10000:
        return
      peer.done += 1
      connection.open(peer.random.choice(paths))

  peer.each(step, num_connections=20, pause=0.05)


class Windowed:
  """A connection whose calls send as much as the server's windows allow."""

  def __init__(self, connection):
    self.connection = connection
    self.streams = {}  # [window, what is left of the message, whether that ends the call]
    self._window = 65535
    self._initial_window = 65535
    self._received = b""

  def call(self, path, message, is_whole=True):
    """`is_whole` false: the last byte is never sent."""
    stream = self.connection.open(path)
    data = memoryview(wire.grpc_message(message))
    self.streams[stream] = [self._initial_window, data if is_whole else data[:-1], is_whole]

  def drain(self):
    """Takes what has come. False: the server has closed."""
    came = self.connection.drain()
    if came is None:
      return False
    self._received += came
    while len(self._received) >= 9:
      length = int.from_bytes(self._received[:3], "big")
      if len(self._received) < 9 + length:
        break
      kind = self._received[3]
      stream = int.from_bytes(self._received[5:9], "big") & 0x7FFFFFFF
      self._on_frame(kind, stream, self._received[9:9 + length])
      self._received = self._received[9 + length:]
    return True

  def _on_frame(self, kind, stream, payload):
    if kind == wire.WINDOW_UPDATE:
      more = int.from_bytes(payload, "big")
      if stream == 0:
        self._window += more
      elif stream in self.streams:
        self.streams[stream][0] += more
    elif kind == wire.SETTINGS:
      for begin in range(0, len(payload) - 5, 6):
        key, value = struct.unpack(">HI", payload[begin:begin + 6])
        if key == wire.SETTINGS_INITIAL_WINDOW_SIZE:
          for entry in self.streams.values():
            entry[0] += value - self._initial_window
          self._initial_window = value
    elif kind == wire.RST_STREAM:
      self.streams.pop(stream, None)

  def send_more(self, most=1 << 18):
    """Bytes sent."""
    sent = 0
    for stream, entry in list(self.streams.items()):
      while sent < most:
        count = min(entry[0], len(entry[1]), self._window, 16000)
        if count <= 0:
          break
        is_last = count == len(entry[1]) and entry[2]
        self.connection.send(wire.frame(wire.DATA, wire.END_STREAM if is_last else 0, stream,
                                        bytes(entry[1][:count])))
        entry[0] -= count
        entry[1] = entry[1][count:]
        self._window -= count
        sent += count
        if is_last:
          del self.streams[stream]
          break
    return sent


def within_windows(peer, num_connections, most_open, begin):
  """Keeps `most_open` calls under way on each connection; begin(windowed) makes one."""
  states = [None] * num_connections
  while peer.goes_on():
    moved = 0
    for i, state in enumerate(states):
      if not peer.goes_on():
        break
      try:
        if state is None:
          connection = peer.http2()
          if connection is None:
            continue
          state = states[i] = Windowed(connection)
        if len(state.streams) < most_open:
          peer.done += 1
          begin(state)
        if not state.drain():
          raise OSError("closed")
        moved += state.send_more()
      except OSError:
        if state is not None:
          state.connection.close()
        states[i] = None
    if moved == 0:
      peer.pause(0.01)


@attack("http2")
def partial_messages(peer):
  """messages of 8 MiB that lack their last byte, 100 on each of 40 connections, as fast as the
  server opens its windows"""
  message = bytes((8 << 20) - 100)
  within_windows(peer, 40, 100,
                 lambda windowed: windowed.call(CLUSTER + "Register", message, is_whole=False))


@attack("http2")
def unread_answers(peer):
  """calls whose answers have no room: the client's window is 0"""

  def step(connection):
    if connection.next_stream == 1:
      connection.send(wire.settings((wire.SETTINGS_INITIAL_WINDOW_SIZE, 0)))
    if connection.next_stream < 2000:
      peer.done += 1
      call(connection, STATUS + "GetStatus", b"")

  peer.each(step, num_connections=10, pause=0.01)


@attack("http2")
def reflection_streams(peer):
  """calls of the reflection service, each of which blocks a thread of the server"""

  def step(connection):
    if connection.next_stream < 4000:
      peer.done += 1
      connection.open("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")

  peer.each(step, num_connections=20, pause=0.01)


# Calls.


@attack("http2")
def registrations(peer):
  """registrations under one new name after the other"""

  def step(connection):
    peer.done += 1
    call(connection, CLUSTER + "Register",
         registration("stranger-%x" % peer.random.getrandbits(48)))

  peer.each(step, num_connections=4)


@attack("http2")
def large_registrations(peer):
  """registrations with 2^40 elements, 10^6 tensors, names of 1 MB, and 3 MB of tensors without
  anything"""
  tensor = text(1, "t") + text(2, varint(1 << 20) * 2)
  layouts = [text(1, text(1, "t") + text(2, varint(1 << 20) + varint(1 << 20))),
             b"".join(text(1, text(1, "%x" % i)) for i in range(1000000)), text(1, tensor),
             text(1, b"") * 1500000]
  messages = [registration("large", layout) for layout in layouts]
  messages.append(registration("x" * 1000000))

  within_windows(peer, 8, 8, lambda windowed: windowed.call(CLUSTER + "Register",
                                                            peer.random.choice(messages)))


@attack("http2")
def false_members(peer):
  """joins, heartbeats, reports and departures in the name of others"""
  names = ["Join", "Heartbeat", "StayConnected", "NextGrant", "Leave"]

  def step(connection):
    peer.done += 1
    call(connection, CLUSTER + peer.random.choice(names),
         number(1, peer.random.randint(0, 4)) + number(2, peer.random.getrandbits(64)))

  peer.each(step, num_connections=4)


@attack("http2")
def far_pulls(peer):
  """pulls that are held for a round that never comes, each asking for a million buckets"""
  buckets = text(4, bytes(1000000))

  def begin(windowed):
    windowed.call(PARAMETERS + "Pull",
                  number(1, peer.random.randint(1, 1000)) + number(2, peer.random.getrandbits(60)) +
                  number(3, 1 << 50) + number(5, 1) +
                  (buckets if peer.random.random() < 0.1 else number(4, 0)))

  within_windows(peer, 8, 100, begin)


@attack("http2")
def slow_pushes(peer):
  """pushes whose chunks come at one byte a second, on 16 connections with 100 streams each"""
  chunk = number(1, 7) + number(2, 9) + number(3, 1) + number(8, 1) + text(15, b"\x00" * 1000)
  message = wire.grpc_message(chunk, 4 << 20)

  def step(connection):
    while connection.next_stream < 200:
      connection.open(PARAMETERS + "Push")
    for stream in range(1, connection.next_stream, 2):
      peer.done += 1
      position = getattr(connection, "position", 0) % len(message)
      connection.send(wire.frame(wire.DATA, 0, stream, message[position:position + 1]))
    connection.position = getattr(connection, "position", 0) + 1

  peer.each(step, num_connections=16, pause=1.0)


@attack("http2")
def shared_memory(peer):
  """calls for shared memory that name none, or that of another process"""

  def step(connection):
    if connection.next_stream < 4000:
      peer.done += 1
      stream = connection.open(PARAMETERS + "ShareMemory")
      if peer.random.random() < 0.5:
        request = (number(1, 1) + number(3, 1) + number(4, 3) + text(5, b"n" * 16) +
                   number(6, 1 << 40) + number(7, 4096))
        connection.send(wire.frame(wire.DATA, 0, stream, wire.grpc_message(request)))

  peer.each(step, num_connections=8, pause=0.01)


@attack("http2")
def status_flood(peer):
  """the status, asked for again and again, and watched"""

  def step(connection):
    peer.done += 1
    if peer.random.random() < 0.2 and connection.next_stream < 2000:
      call(connection, STATUS + "WatchStatus", number(1, 100))
    else:
      call(connection, STATUS + "GetStatus", b"")

  peer.each(step, num_connections=8)


@attack("http2")
def descriptions(peer):
  """DescribeCalls for a million calls"""
  allowed = text(1, b"12345678" * 65536)
  too_many = text(1, b"12345678" * 1000000)

  within_windows(peer, 4, 8, lambda windowed: windowed.call(PARAMETERS + "DescribeCalls",
                                                            peer.random.choice([allowed, too_many])))


def worker_context(folder):
  """As gpu_worker --join leaves it."""
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname = False
  context.verify_mode = ssl.CERT_NONE
  context.load_cert_chain(os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem"))
  context.set_alpn_protocols(["h2"])
  return context


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("name", choices=sorted(ATTACKS))
  parser.add_argument("--address", required=True)
  parser.add_argument("--seconds", type=float, default=5)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--credentials")
  parser.add_argument("--tls", action="store_true")
  args = parser.parse_args()
  resource.setrlimit(resource.RLIMIT_NOFILE,
                     (OPEN_FILES, max(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
  host, port = args.address.rsplit(":", 1)
  tls = worker_context(args.credentials) if args.credentials else None
  peer = Peer((host, int(port)), args.seconds, args.seed, tls, args.tls)
  ATTACKS[args.name].run(peer)
  print(peer.done)


if __name__ == "__main__":
  main()
