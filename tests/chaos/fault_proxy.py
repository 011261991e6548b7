# SPDX-License-Identifier: Apache-2.0
"""TCP routes between the processes of a cluster that lose, delay, damage and cut what they carry.

A route listens on a port of 127.0.0.1 and passes connections on to a port behind it. What is done to
it is decided by the caller; the proxy has no chance of its own. It runs on a thread of its own, and
its methods may be called from any other.
"""
import asyncio
import socket
import struct
import threading
import time

PIECE_BYTES = 64 << 10
# Frames of at least this size carry tensors, which have checksums of their own. What is smaller
# carries calls, whose bits only TCP and TLS guard.
BULK_BYTES = 4 << 10
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
DATA_FRAME = 0


class FrameScanner:
  """Finds the payload of large DATA frames in one direction of an HTTP/2 connection."""

  def __init__(self, has_preface):
    self._preface = len(HTTP2_PREFACE) if has_preface else 0
    self._header = b""
    self._left = 0  # of the frame at hand
    self._is_bulk = False

  def feed(self, piece):
    """The ranges [begin, end) of the piece that are such payload."""
    found = []
    at = min(self._preface, len(piece))
    self._preface -= at
    while at < len(piece):
      if self._left == 0:
        taken = piece[at:at + FRAME_HEADER_BYTES - len(self._header)]
        self._header += taken
        at += len(taken)
        if len(self._header) == FRAME_HEADER_BYTES:
          self._left = int.from_bytes(self._header[:3], "big")
          self._is_bulk = self._header[3] == DATA_FRAME and self._left >= BULK_BYTES
          self._header = b""
        continue
      end = min(len(piece), at + self._left)
      if self._is_bulk:
        found.append((at, end))
      self._left -= end - at
      at = end
    return found


def reset(writer):
  """The other end sees a reset, not an end."""
  end = writer.get_extra_info("socket")
  if end.fileno() >= 0:  # open
    linger_for_no_time = struct.pack("ii", 1, 0)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_no_time)
  writer.transport.abort()


class Direction:
  """One way of one connection."""

  def __init__(self, route, is_up):
    self.is_up = is_up  # from whom has dialled to whom listens
    self.is_swallowing = False
    self.bytes_until_cut = None
    self._route = route
    self._frames = FrameScanner(has_preface=is_up)

  def treat(self, piece):
    """What is to be passed on of it, and whether the connection ends then."""
    bulk = self._frames.feed(piece)
    if self._route.flip is not None and bulk:
      piece = self._flip(bytearray(piece), bulk[0])
    is_cut = self.bytes_until_cut is not None and len(piece) >= self.bytes_until_cut
    if is_cut:
      piece = piece[:self.bytes_until_cut]
    elif self.bytes_until_cut is not None:
      self.bytes_until_cut -= len(piece)
    return (b"" if self.is_swallowing else piece), is_cut

  def _flip(self, piece, payload):
    begin, end = payload
    bit = int(self._route.flip * (end - begin) * 8)
    piece[begin + bit // 8] ^= 1 << bit % 8
    self._route.flip = None
    self._route.flips += 1
    return bytes(piece)


class Connection:

  def __init__(self, route, near, far):
    self.up = Direction(route, is_up=True)
    self.down = Direction(route, is_up=False)
    self._route = route
    self.moved_at = time.monotonic()  # when it last carried something
    self._near = near  # (reader, writer) of who has dialled
    self._far = far

  async def carry(self):
    await asyncio.gather(self._carry(self._near[0], self._far[1], self.up),
                         self._carry(self._far[0], self._near[1], self.down))

  async def _carry(self, reader, writer, direction):
    try:
      while piece := await reader.read(PIECE_BYTES):
        self.moved_at = time.monotonic()
        if self._route.delay_seconds > 0:
          await asyncio.sleep(self._route.delay_seconds)
        piece, is_cut = direction.treat(piece)
        writer.write(piece)
        await writer.drain()
        if is_cut:
          self.abort()
          return
      if not direction.is_swallowing:
        writer.close()
    except OSError:
      if not direction.is_swallowing:
        self.abort()

  def close(self):
    """Both ends see an orderly end."""
    for _, writer in (self._near, self._far):
      writer.close()

  def abort(self):
    """Both ends see a reset."""
    for _, writer in (self._near, self._far):
      reset(writer)


class Route:
  """One listening port and the connections through it; see FaultProxy for what can be done to it."""

  def __init__(self, target_port):
    self.target_port = target_port
    self.delay_seconds = 0.0
    self.flip = None  # 0 <= place < 1 in the next payload of BULK_BYTES; None: none is wanted
    self.flips = 0  # done so far
    self.connections = []  # oldest first
    self._server = None
    # The socket is bound all the time, so that no other process gets the port while the route does not listen.
    self._reserved = self._bound_socket(0)
    self.port = self._reserved.getsockname()[1]

  @staticmethod
  def _bound_socket(port):
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound

  async def listen(self):
    if self._server is None:
      self._server = await asyncio.start_server(self._accept, sock=self._bound_socket(self.port))

  async def refuse(self):
    if self._server is not None:
      self._server.close()
      self._server = None
    for connection in list(self.connections):
      connection.abort()

  async def close(self):
    await self.refuse()
    self._reserved.close()

  async def _accept(self, *near):
    try:
      far = await asyncio.open_connection("127.0.0.1", self.target_port)
    except OSError:
      reset(near[1])
      return
    connection = Connection(self, near, far)
    self.connections.append(connection)
    try:
      await connection.carry()
    finally:
      self.connections.remove(connection)


class FaultProxy:
  """Routes by name; leaving the context ends all of them."""

  def __enter__(self):
    self.routes = {}
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *_):
    for route in self.routes.values():
      self._run(route.close())
    self._run(self._end_tasks())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()

  def add_route(self, name, target_port):
    """Returns the port that it listens on."""
    self.routes[name] = Route(target_port)
    self._run(self.routes[name].listen())
    return self.routes[name].port

  def cut(self, name, place, is_up, num_bytes):
    """Resets one connection after that many more bytes of one direction; 0 <= place < 1 says which.

    Returns whether there was one.
    """

    def act(connection):
      direction = connection.up if is_up else connection.down
      direction.bytes_until_cut = num_bytes
      if num_bytes == 0:
        connection.abort()

    return self._on_one(name, place, act)

  def end_connections(self, name, idle_seconds=0.0, is_orderly=False):
    """Resets, or closes, those that have carried nothing for so long; new ones may come at once.

    Returns how many there were.
    """

    async def run():
      ended = [connection for connection in self.routes[name].connections
               if time.monotonic() - connection.moved_at >= idle_seconds]
      for connection in ended:
        if is_orderly:
          connection.close()
        else:
          connection.abort()
      return len(ended)

    return self._run(run())

  def half_open(self, name, place, up, down):
    """From now on one connection swallows what goes these ways, for good, and stays open."""

    def act(connection):
      connection.up.is_swallowing |= up
      connection.down.is_swallowing |= down

    return self._on_one(name, place, act)

  def set_delay(self, name, seconds):
    """Everything waits for so long, piece by piece."""
    self.routes[name].delay_seconds = seconds

  def flip_bit(self, name, place):
    """Flips one bit of the next tensor that passes, either way."""
    self.routes[name].flip = place

  def refuse(self, name):
    """Resets all connections, and refuses new ones until listen()."""
    self._run(self.routes[name].refuse())

  def listen(self, name):
    self._run(self.routes[name].listen())

  def move(self, name, target_port):
    """Resets all connections; later ones go to that port."""
    self.refuse(name)
    self.routes[name].target_port = target_port
    self.listen(name)

  def _on_one(self, name, place, act):

    async def run():
      connections = self.routes[name].connections
      if connections:
        act(connections[int(place * len(connections))])
      return bool(connections)

    return self._run(run())

  async def _end_tasks(self):
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
      task.cancel()
    await asyncio.gather(*others, return_exceptions=True)

  def _run(self, coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
