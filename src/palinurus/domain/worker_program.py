"""The program of a worker process. Knows nothing of Palinurus, because it is started as a program.

    python worker_program.py MODULE.py ARGUMENTS...

MODULE.py has a function `start(*arguments)` that loads what it needs and returns `handle(order, send_piece)`, which
gives the bytes of the answer. Frames go both ways: a header (bytes of the body, number, kind) and a body. An order is a
number, QUERY or BATCH, and JSON. The answer has the same number: any PIECE, and then DONE, or FAILED with a sentence.
Number 0 says that `start` has returned. The program ends when stdin does, whatever it is doing.

Orders of the two kinds are worked on by a thread each, and the thread of BATCH is nice: a query does not wait for it.
"""

from __future__ import annotations

import json
import os
import queue
import runpy
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

HEADER = struct.Struct("<IIB")
QUERY, BATCH = 1, 2
PIECE, DONE, FAILED = 3, 4, 5
NICE = 15
Handle = Callable[[Any, Callable[[bytes], None]], bytes]
Orders = queue.SimpleQueue[tuple[int, Any]]
_writing = threading.Lock()


def main(program: str, *arguments: str) -> None:
    orders: dict[int, Orders] = {QUERY: queue.SimpleQueue(), BATCH: queue.SimpleQueue()}
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    handle = runpy.run_path(program)["start"](*arguments)
    _write(0, DONE, b"")
    threading.Thread(target=_work_nicely, args=(handle, orders[BATCH]), daemon=True).start()
    _work(handle, orders[QUERY])


def _read_orders(orders: dict[int, Orders]) -> None:
    stdin = sys.stdin.buffer
    while header := stdin.read(HEADER.size):
        size, number, kind = HEADER.unpack(header)
        orders[kind].put((number, json.loads(stdin.read(size))))
    os._exit(0)  # native code may be busy and cannot be interrupted


def _work(handle: Handle, orders: Orders) -> None:
    while True:
        number, order = orders.get()
        try:
            answer = handle(order, lambda piece, number=number: _write(number, PIECE, piece))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001  reported to the parent; the next order may go better
            _write(number, FAILED, _sentence(error))
        else:
            _write(number, DONE, answer)


def _work_nicely(handle: Handle, orders: Orders) -> None:
    # Linux has a nice value per thread. Elsewhere it applies to the process, so queries get it too.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    elif hasattr(os, "nice"):
        os.nice(NICE)
    _work(handle, orders)


def _write(number: int, kind: int, body: bytes) -> None:
    with _writing:
        sys.stdout.buffer.write(HEADER.pack(len(body), number, kind) + body)
        sys.stdout.buffer.flush()


def _sentence(error: Exception) -> bytes:
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001  the edge of the process: reported to the parent
        _write(0, FAILED, _sentence(error))
        os._exit(1)
