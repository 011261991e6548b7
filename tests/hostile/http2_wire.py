# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 as bytes, with none of its rules: frames of any length, header blocks of any size, on a
plain socket or behind TLS. Standard library only."""
import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9)
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
SETTINGS_HEADER_TABLE_SIZE, SETTINGS_INITIAL_WINDOW_SIZE, SETTINGS_MAX_FRAME_SIZE = 1, 4, 5
LARGEST_WINDOW = (1 << 31) - 1


def frame(kind, flags, stream, payload=b"", length=None):
  """`length`: what the frame says of itself, if that is not the truth."""
  size = len(payload) if length is None else length
  return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, prefix_bits, first=0):
  """RFC 7541, 5.1."""
  most = (1 << prefix_bits) - 1
  if value < most:
    return bytes([first | value])
  out = bytearray([first | most])
  value -= most
  while value >= 128:
    out.append(value % 128 + 128)
    value //= 128
  out.append(value)
  return bytes(out)


def literal(name, value, indexed=False):
  """A header, without Huffman coding; `indexed`: it goes into the peer's table."""
  out = b"\x40" if indexed else b"\x00"
  for text in (name, value):
    data = text if isinstance(text, bytes) else text.encode()
    out += integer(len(data), 7) + data
  return out


def request_headers(path, extra=()):
  headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "lodestar"),
             ("te", "trailers"), ("content-type", "application/grpc")]
  return b"".join(literal(name, value) for name, value in [*headers, *extra])


def settings(*pairs):
  return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in pairs))


def grpc_message(data, length=None):
  """The prefix of gRPC and `data`; `length`: what the prefix says, if that is not the truth."""
  return struct.pack(">BI", 0, len(data) if length is None else length) + data


class Connection:
  """One connection. Whatever comes back is read and dropped, so that the peer can always write;
  unless `reads` is false."""

  def __init__(self, address, tls=None, source=None, seconds=10.0, greets=True):
    self.socket = socket.create_connection(address, seconds, source)
    self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is not None:
      self.socket = tls.wrap_socket(self.socket, server_hostname="lodestar")
    self.next_stream = 1
    if greets:
      self.send(PREFACE + settings())

  def send(self, data):
    self.socket.sendall(data)

  def drain(self):
    """What has come by now; None: the peer has closed."""
    self.socket.setblocking(False)
    came = bytearray()
    try:
      while True:
        data = self.socket.recv(1 << 16)
        if not data:
          return None
        came += data
    except (BlockingIOError, ssl.SSLWantReadError):
      return bytes(came)
    finally:
      self.socket.settimeout(10.0)

  def open(self, path, extra=(), flags=END_HEADERS):
    """Begins a call; returns its stream."""
    stream = self.next_stream
    self.next_stream += 2
    self.send(frame(HEADERS, flags, stream, request_headers(path, extra)))
    return stream

  def close(self):
    self.socket.close()
