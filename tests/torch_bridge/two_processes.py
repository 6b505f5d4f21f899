"""The same work done by two processes that talk to each other (gloo)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_two_processes(work: Callable[[int], Any], folder: Path) -> tuple[Any, Any]:
    """What `work(rank)` returns for ranks 0 and 1; a function of a module, so that it pickles."""
    mp.spawn(_run, (work, str(folder)), nprocs=2)
    first, second = (torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2))
    return first, second


def _run(rank: int, work: Callable[[int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback:  # needs neither a network nor a host name that resolves
        os.environ["GLOO_SOCKET_IFNAME"] = loopback[0]
    meeting = (Path(folder) / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    try:
        torch.save(work(rank), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
