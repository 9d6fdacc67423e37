"""A relay that makes a database as far away as a network would: what comes from either side goes on half a round trip
later."""

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from psycopg.conninfo import conninfo_to_dict, make_conninfo


@contextmanager
def far_away(server: str, round_trip: float) -> Iterator[str]:
    """The connection string of a server on a socket of this machine, `round_trip` seconds away."""
    where = conninfo_to_dict(server)
    path = f"{where['host']}/.s.PGSQL.{where.get('port') or 5432}"
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_serve, args=(path, round_trip / 2, sender), daemon=True)
    process.start()
    try:
        yield make_conninfo(server, host="127.0.0.1", port=receiver.recv())
    finally:
        process.terminate()
        process.join()


def _serve(path: str, delay: float, ready: Connection) -> None:
    async def serve() -> None:
        listener = await asyncio.start_server(handle, "127.0.0.1", 0)
        ready.send(listener.sockets[0].getsockname()[1])
        await listener.serve_forever()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_unix_connection(path)
        await asyncio.gather(_pass(reader, to_write, delay), _pass(to_read, writer, delay))

    asyncio.run(serve())


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send() -> None:
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                target.close()
                return
            target.write(data)

    sending = asyncio.create_task(send())
    data = b" "
    while data:
        data = await source.read(1 << 16)
        waiting.put_nowait((loop.time() + delay, data))
    await sending
