"""`python -m bench.bare_loop PORT FOLDER CONNECTIONS`: send a folder of mails, as fast as it goes.

One process per core, as Spark has one worker per core, with the connections divided among them.
"""

import os
import smtplib
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path


def send(port: int, paths: list[Path]) -> None:
    """Send mails over one connection, one after the other."""
    with smtplib.SMTP("127.0.0.1", port) as server:
        for path in paths:
            mail = path.read_bytes()
            to = mail.split(b"\nTo: ")[1].split(b"<")[1].split(b">")[0].decode()
            server.sendmail("weekly@shardpost.example", [to], mail)


def send_all(port: int, paths: list[Path], connections: int) -> None:
    """Send mails over that many connections."""
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(lambda own: send(port, paths[own::connections]), range(connections)))


def main(port: int, folder: Path, connections: int) -> None:
    """Send all mails of a folder."""
    cores = os.cpu_count() or 1
    paths = sorted(folder.glob("*.eml"))
    each = connections // cores
    with ProcessPoolExecutor(cores) as pool:
        jobs = [pool.submit(send_all, port, paths[core::cores], each) for core in range(cores)]
        for job in jobs:
            job.result()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
