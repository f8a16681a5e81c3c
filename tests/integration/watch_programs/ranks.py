"""A rank under torchrun: sums over the ranks, compiles a function, and says who it is."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
torch.compile(lambda x: x + rank, backend="eager")(total)
dist.barrier()
line = f"rank {rank} of {os.environ['WORLD_SIZE']}: {total.item():g}\n"
os.write(1, line.encode())  # one write: unbuffered, print makes two, and the other rank's can come between them
dist.destroy_process_group()
