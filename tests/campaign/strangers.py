"""Programs that connect to the ports of a job's ranks and have no business there."""
import contextlib
import os
import socket
import subprocess
import sys
import time


def ports_of(pid):
    """The addresses at which a process listens for TCP, as (address, port)."""
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/net/tcp") as table:
        for line in table.readlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address, port = words[1].split(":")
                raw = bytes.fromhex(address)[::-1]
                found.append((socket.inet_ntoa(raw), int(port, 16)))
    return found


def listeners(run):
    """Of all ranks, with the words by which a program gets to where it can reach them."""
    for process in run.job.processes:
        for pid in run.pids_of(process):
            for address, port in ports_of(pid):
                if run.hosts:
                    host = run.host_of(process.number)
                    other = (host + 1) % run.hosts.count
                    yield run.hosts.prefix(other), run.hosts.address(host), port
                else:
                    yield [], "127.0.0.1" if address == "0.0.0.0" else address, port


def messages(kind, random):
    if kind == "http":
        return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    if kind == "huge":
        return b"\xff" * 4096
    if kind in ("silent", "many"):
        return b""
    return random.randbytes(random.randrange(1, 3000))


def start(prefix, address, port, data, seconds, connections=1, trickle=False):
    words = [sys.executable, "-B", os.path.abspath(__file__), address, str(port), data.hex() or "-", str(seconds),
             str(connections), str(int(trickle))]
    return subprocess.Popen(prefix + words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def end(run, guests):
    for guest in guests:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guest.wait(10)
        if guest.poll() is None:
            guest.kill()
            guest.wait()
    run.notes["strangers"] = len(guests)


def visit(run, kind):
    run.job.wait(lambda: any(listeners(run)), 0.5)  # the meeting's listener may be to come
    connections = 100 if kind == "many" else 3
    guests = [start(*listener, messages(kind, run.random), 1, connections, kind == "trickle")
              for listener in listeners(run)]
    run.job.wait(lambda: all(g.poll() is not None for g in guests), 3)
    end(run, guests)


def replay(run, file, mutate):
    said = {}
    with open(file) as lines:
        for line in lines:
            _, host, port, data = line.split()
            said.setdefault((host, int(port)), []).append(bytes.fromhex(data))
    guests = []
    for prefix, address, port in listeners(run):
        for data in said.get((address.rsplit(".", 1)[1], port), [])[:8]:
            if mutate and data:
                at = run.random.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << run.random.randrange(8)]) + data[at + 1:]
            guests.append(start(prefix, address, port, data, 1))
    run.job.wait(lambda: all(g.poll() is not None for g in guests), 3)
    end(run, guests)


def main(address, port, data, seconds, connections, trickle):
    data = bytes.fromhex(data) if data != "-" else b""
    opened = []
    for _ in range(int(connections)):
        with contextlib.suppress(OSError):
            opened.append(socket.create_connection((address, int(port)), 1))
    for one in opened:
        with contextlib.suppress(OSError):
            if trickle == "1":
                for byte in data[:20]:
                    one.send(bytes([byte]))
                    time.sleep(float(seconds) / 20)
            else:
                one.sendall(data)
    time.sleep(float(seconds) * 0.7)


if __name__ == "__main__":
    main(*sys.argv[1:])
