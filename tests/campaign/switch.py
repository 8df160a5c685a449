"""A virtual switch between hosts, each a network namespace, that loses, doubles, delays, reorders and alters frames.

    switch.py SEED SPACE...

Every namespace gets a device `wire` with the address 10.77.0.<number + 1>. It prints "READY", and takes lines:

    lose P | double P | delay MS | reorder P MS | alter P | rate BYTES_PER_SECOND   (P: of a frame)
    version N     greetings of Tutti have version N, as if another release had sent them
    cut A B       nothing goes from host A to host B any more (not the other way)
    clear         nothing is done to frames any more
    record FILE   what has begun each TCP stream so far, a line each: from, to, port, bytes in hexadecimal

An altered frame gets a right TCP checksum, so that the receiver's system takes it for good.
"""
import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import sys
import time

TUNSETIFF, TAP, NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000


def open_device(space):
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{space}", os.O_RDONLY)
    if libc.setns(there, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {space}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22s", b"wire", TAP | NO_PI, b""))
    libc.setns(own, CLONE_NEWNET)
    os.close(own)
    os.close(there)
    return device


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tcp_of(frame):
    """Where TCP and its data begin in an Ethernet frame with IPv4, or nothing."""
    if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return None
    tcp = 14 + 4 * (frame[14] & 15)
    return tcp, tcp + 4 * (frame[tcp + 12] >> 4), 14 + struct.unpack("!H", frame[16:18])[0]


class Switch:
    def __init__(self, seed, spaces):
        self.random = random.Random(seed)
        self.devices = [open_device(space) for space in spaces]
        self.clear()
        self.later, self.count, self.free_at = [], 0, 0
        self.begun = {}
        for h, space in enumerate(spaces):
            for command in (f"addr add 10.77.0.{h + 1}/24 dev wire", "link set wire up", "link set lo up"):
                subprocess.run(["ip", "-n", space, *command.split()], check=True)

    def clear(self):
        self.version = 0
        self.lose = self.double = self.delay = self.reorder = self.alter = self.rate = 0.0
        self.reorder_by = 0.005
        self.cuts = set()

    def obey(self, line):
        what, *words = line.split()
        if what == "clear":
            self.clear()
        elif what == "cut":
            self.cuts.add((int(words[0]), int(words[1])))
        elif what == "record":
            with open(words[0], "w") as file:
                for (source, target, port), data in self.begun.items():
                    file.write(f"{source} {target} {port} {data.hex()}\n")
            print("RECORDED", flush=True)
        elif what == "delay":
            self.delay = float(words[0]) / 1000
        else:
            setattr(self, what, float(words[0]))
            if what == "reorder" and len(words) > 1:
                self.reorder_by = float(words[1]) / 1000

    def altered(self, frame):
        where = tcp_of(frame)
        if where is None or where[1] >= where[2]:
            return frame
        tcp, data, end = where
        frame = bytearray(frame[:end])
        if self.version:
            struct.pack_into("=I", frame, data + 8, int(self.version))
        else:
            frame[self.random.randrange(data, end)] ^= 1 << self.random.randrange(8)
        frame[tcp + 16:tcp + 18] = b"\0\0"
        pseudo = bytes(frame[26:34]) + struct.pack("!HH", 6, end - tcp)
        struct.pack_into("!H", frame, tcp + 16, checksum(pseudo + bytes(frame[tcp:end])))
        return bytes(frame)

    def record(self, frame):
        where = tcp_of(frame)
        if where is None or where[1] >= where[2]:
            return
        tcp, data, end = where
        source, target = struct.unpack("!HH", frame[tcp:tcp + 4])
        key = (f"{frame[29]}:{source}", str(frame[33]), target)
        kept = self.begun.setdefault(key, b"")
        if len(kept) < 2048 and len(self.begun) < 200:
            self.begun[key] = kept + frame[data:end]

    def take(self, source, frame):
        self.record(frame)
        broadcast = frame[0] & 1 or frame[12:14] != b"\x08\x00"
        targets = range(len(self.devices)) if broadcast else [frame[33] - 1]
        for target in targets:
            if target == source or not 0 <= target < len(self.devices) or (source, target) in self.cuts:
                continue
            draw = self.random.random
            if draw() < self.lose:
                continue
            altered = b"tutti-hs" in frame[54:100] if self.version else draw() < self.alter
            sent = self.altered(frame) if altered else frame
            for _ in range(2 if draw() < self.double else 1):
                at = time.monotonic() + self.delay + (self.reorder_by if draw() < self.reorder else 0)
                if self.rate:
                    self.free_at = max(self.free_at, time.monotonic()) + len(sent) / self.rate
                    at += self.free_at - time.monotonic()
                if at - time.monotonic() > 1e-4:
                    self.count += 1
                    heapq.heappush(self.later, (at, self.count, target, sent))
                else:
                    self.send(target, sent)

    def send(self, target, frame):
        try:
            os.write(self.devices[target], frame)
        except OSError:
            pass  # as a full queue of a switch

    def run(self):
        selector = selectors.DefaultSelector()
        for h, device in enumerate(self.devices):
            selector.register(device, selectors.EVENT_READ, h)
        os.set_blocking(0, False)
        selector.register(0, selectors.EVENT_READ, -1)
        print("READY", flush=True)
        lines = b""
        while True:
            wait = max(0, self.later[0][0] - time.monotonic()) if self.later else None
            for key, _ in selector.select(wait):
                if key.data < 0:
                    data = os.read(0, 4096)
                    if not data:
                        return
                    *whole, lines = (lines + data).split(b"\n")
                    for line in whole:
                        self.obey(line.decode())
                    continue
                for _ in range(32):
                    try:
                        frame = os.read(key.fd, 70000)
                    except BlockingIOError:
                        break
                    except OSError:
                        break
                    self.take(key.data, frame)
            while self.later and self.later[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(self.later)
                self.send(target, frame)


if __name__ == "__main__":
    Switch(sys.argv[1], sys.argv[2:]).run()
