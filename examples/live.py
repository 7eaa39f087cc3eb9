"""Send a film over a socket to a slow receiver, at a bitrate that adapts to the connection.

    python examples/live.py film.mkv received.h264

The sender encodes each frame at once. It halves its bitrate while unsent bytes pile up, and raises the bitrate while
no bytes wait. The receiver reads 60 kB a second, decodes, and writes the packets to a file that players can open.
"""

import argparse
import asyncio
import socket
import struct
from pathlib import Path

import codecfleet
from codecfleet import Decoder, Encoder, Packet, RateChange

HEADER = struct.Struct(">IQ")  # a packet's size, and its picture's time in ticks of 1/25 s
LOWEST_BPS, HIGHEST_BPS = 50_000, 2_000_000
WAITING_BYTES = 16_000  # more unsent bytes mean that the network falls behind
SOCKET_BYTES = 8192  # a small buffer, so that unsent bytes wait where the sender sees them


def next_rate(rate_bps: int, waiting_bytes: int) -> int:
    """Return the next bitrate: half if the network falls behind, a little more if it keeps up."""
    if waiting_bytes > WAITING_BYTES:
        return max(LOWEST_BPS, rate_bps // 2)
    return min(HIGHEST_BPS, rate_bps + rate_bps // 10) if not waiting_bytes else rate_bps


async def send(source: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Encode the frames of a film, and send them."""
    rate_bps = HIGHEST_BPS
    options = (("tune", "zerolatency"),)
    async with Encoder(
        fps=25,
        preset=1,
        bitrate_bps=rate_bps,
        maxrate_bps=rate_bps,
        bufsize_bits=rate_bps // 5,
        encoder_options=options,
    ) as encoder:
        async for frame in codecfleet.frames(source):
            for packet in await encoder.encode_async(frame.to_video_frame()):
                writer.write(HEADER.pack(packet.bsl, packet.pts) + packet.data)
            waiting_bytes = writer.transport.get_write_buffer_size()
            if (wanted_bps := next_rate(rate_bps, waiting_bytes)) != rate_bps:
                print(f"frame {frame.index}: {waiting_bytes} bytes wait, {rate_bps} -> {wanted_bps} bit/s")
                rate_bps = wanted_bps
                await encoder.reconfigure_async(RateChange(bitrate=rate_bps, vbvbufsize=rate_bps // 5))
            await writer.drain()  # waits while far too many bytes are unsent
        for packet in await encoder.finish_async():
            writer.write(HEADER.pack(packet.bsl, packet.pts) + packet.data)
    writer.write_eof()
    await reader.read()  # wait until the receiver has everything and closes the connection
    writer.close()
    await writer.wait_closed()


async def receive(port: int, bytes_a_second: int) -> tuple[int, bytes]:
    """Decode packets as they arrive; return the number of frames, and the packets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=SOCKET_BYTES)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    frames, received = 0, []
    async with Decoder("h264") as decoder:
        while header := await reader.read(1):
            size, pts = HEADER.unpack(header + await reader.readexactly(HEADER.size - 1))
            received.append(await reader.readexactly(size))
            frames += len(await decoder.decode_async(Packet(data=received[-1], pts=pts)))
            await asyncio.sleep(size / bytes_a_second)
        frames += len(await decoder.flush_async())
    writer.close()
    return frames, b"".join(received)


async def send_and_receive(arguments: argparse.Namespace) -> tuple[int, bytes]:
    """Send a film to this process; return the received frames and packets."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await send(arguments.source, reader, writer)
        finally:
            done.set()

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    async with await asyncio.start_server(serve, sock=listening, limit=SOCKET_BYTES) as server:
        port = server.sockets[0].getsockname()[1]
        frames, received = await receive(port, arguments.bytes_a_second)
        await done.wait()
    return frames, received


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--bytes-a-second", type=int, default=60_000)
    arguments = parser.parse_args()
    frames, received = asyncio.run(send_and_receive(arguments))
    Path(arguments.output).write_bytes(received)
    print(f"received {frames} frames")


if __name__ == "__main__":
    main()
