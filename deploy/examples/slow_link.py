#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A slow network on one machine: passes TCP connections on, at a limited rate in each direction.

Usage: slow_link.py --megabits=N --port_file=FILE --to_port_file=FILE

Listens on a port of 127.0.0.1 that the system chooses and writes it to --port_file. Connections go to
the port in --to_port_file, which may appear later. Prints the megabytes that went each way at its
end.
"""

import argparse
import asyncio
import os
import signal

PIECE_BYTES = 16 << 10


class Direction:
    """Everything that goes one way shares its rate."""

    def __init__(self, bytes_per_second):
        self._seconds_per_byte = 1 / bytes_per_second
        self._free_at = 0.0
        self.bytes = 0

    async def carry(self, reader, writer):
        loop = asyncio.get_running_loop()
        try:
            while piece := await reader.read(PIECE_BYTES):
                self.bytes += len(piece)
                start = max(self._free_at, loop.time())
                self._free_at = start + len(piece) * self._seconds_per_byte
                await asyncio.sleep(self._free_at - loop.time())
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabits", type=float, required=True, help="rate in Mbit/s in each direction")
    parser.add_argument("--port_file", required=True)
    parser.add_argument("--to_port_file", required=True)
    options = parser.parse_args()
    there = Direction(options.megabits * 1e6 / 8)
    back = Direction(options.megabits * 1e6 / 8)

    async def connect(reader, writer):
        try:
            with open(options.to_port_file, encoding="ascii") as file:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(file.read()))
        except (OSError, ValueError):
            writer.close()
            return
        await asyncio.gather(there.carry(reader, far_writer), back.carry(far_reader, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    with open(options.port_file + ".tmp", "w", encoding="ascii") as file:
        file.write(f"{server.sockets[0].getsockname()[1]}\n")
    os.rename(options.port_file + ".tmp", options.port_file)
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    await end.wait()
    print(f"{there.bytes / 1e6:.1f} MB to the server, {back.bytes / 1e6:.1f} MB to the workers")


if __name__ == "__main__":
    asyncio.run(main())
