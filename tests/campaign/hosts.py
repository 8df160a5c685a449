"""Hosts of a campaign: network namespaces, joined by the kernel's bridge or by a switch of our own (switch.py)."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent


def ip(*words):
    return subprocess.run(["ip", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Hosts:
    """`count` hosts. Kept for several runs: reset() makes all links well again."""

    made = 0

    def __init__(self, count, wires=False):
        Hosts.made += 1
        self.count, self.wires = count, wires
        self.name = f"camp{os.getpid()}x{Hosts.made}"
        self.bridge = f"{self.name}b"
        self.spaces = [f"{self.name}h{h}" for h in range(count)]
        self.switch = None
        self.changed = True
        right = True
        for space in self.spaces:
            right = right and ip("netns", "add", space) and ip("-n", space, "link", "set", "lo", "up")
        if not right:
            self.delete()
            raise OSError("network namespaces cannot be made here: they need root and iproute2")
        if not wires:
            ip("netns", "add", self.bridge)
            ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
            ip("-n", self.bridge, "link", "set", "br0", "up")
            for h, space in enumerate(self.spaces):
                ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"port{h}",
                   "netns", self.bridge)
                ip("-n", space, "addr", "add", f"10.77.0.{h + 1}/24", "dev", "eth0")
                ip("-n", space, "link", "set", "eth0", "up")
                ip("-n", self.bridge, "link", "set", f"port{h}", "master", "br0", "up")
        for space in self.spaces:
            for setting in ("tcp_congestion_control=reno", "tcp_no_metrics_save=1"):
                subprocess.run(["ip", "netns", "exec", space, "sysctl", "-qw", f"net.ipv4.{setting}"],
                               stderr=subprocess.DEVNULL)
        self.reset(0)

    def reset(self, seed):
        """All links are well, whatever has been done to them."""
        if self.wires:
            self.end_switch()
            self.switch = subprocess.Popen([sys.executable, "-B", str(HERE / "switch.py"), str(seed), *self.spaces],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.switch.stdout.readline() != "READY\n":
                raise OSError("the switch does not start: is there /dev/net/tun?")
        elif self.changed:
            for h, space in enumerate(self.spaces):
                self.link(h, True)
                ip("-n", self.bridge, "link", "set", f"port{h}", "type", "bridge_slave", "isolated", "off")
                ip("-n", space, "link", "set", "eth0", "mtu", "1500")
                subprocess.run(["tc", "-n", space, "qdisc", "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)
                subprocess.run(["ip", "netns", "exec", space, "nft", "flush", "ruleset"], stderr=subprocess.DEVNULL)
            time.sleep(0.05)
        self.changed = False

    def prefix(self, host):
        return ["ip", "netns", "exec", self.spaces[host]]

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def tell(self, line):
        """To the switch."""
        self.switch.stdin.write(line + "\n")
        self.switch.stdin.flush()

    def record(self, file):
        self.tell(f"record {file}")
        self.switch.stdout.readline()

    def link(self, host, up):
        self.changed = True
        ip("-n", self.bridge, "link", "set", f"port{host}", "up" if up else "down")

    def mtu(self, host, size):
        self.changed = True
        ip("-n", self.spaces[host], "link", "set", "eth0", "mtu", str(size))

    def rate(self, host, megabits):
        self.changed = True
        subprocess.run(["tc", "-n", self.spaces[host], "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                        f"{megabits}mbit", "burst", "32k", "latency", "50ms"], check=True)

    def rules(self, host, rule):
        """A rule of the firewall for what comes in."""
        self.changed = True
        text = f"table ip campaign {{\nchain input {{\ntype filter hook input priority 0;\n{rule}\n}}\n}}\n"
        subprocess.run(["ip", "netns", "exec", self.spaces[host], "nft", "-f", "-"], input=text, text=True, check=True)

    def end_switch(self):
        if self.switch is not None:
            self.switch.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.switch.wait(5)
            if self.switch.poll() is None:
                self.switch.kill()
                self.switch.wait()
            self.switch.stdout.close()
            self.switch = None

    def delete(self):
        """Returns what could not be deleted."""
        self.end_switch()
        spaces = self.spaces + ([] if self.wires else [self.bridge])
        for space in spaces:
            for _ in range(20):
                if ip("netns", "del", space) or not pathlib.Path("/run/netns", space).exists():
                    break
                time.sleep(0.1)
        return [space for space in spaces if pathlib.Path("/run/netns", space).exists()]
