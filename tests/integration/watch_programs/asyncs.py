"""An event loop with an executor, a task that fails in it, and a torch-like error that a future keeps."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor


def work(n: int) -> int:
    if n == 3:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return n * n


async def main() -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2, thread_name_prefix="pool") as pool:
        tasks = [loop.run_in_executor(pool, work, n) for n in range(5)]
        print(await asyncio.gather(*tasks, return_exceptions=True), flush=True)


asyncio.run(main())
