// Hosts for tests and measurements: network namespaces of this machine, joined by a virtual switch,
// or two of them directly, by one link or several (eth0, eth1, ...), each a network of its own.
// Ranks in them could share memory, but meet over TCP as if on different machines. Needs root and
// iproute2. The namespaces go away with the object.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace tutti {

class Namespaces {
 public:
  enum class Joined : std::uint8_t { by_switch, directly };  // two of them

  /// `ways`: links, of two that are joined directly. `containers`: each host also has docker0, the
  /// bridge of its containers, with an address that all of them have, and before eth0.
  explicit Namespaces(int hosts, bool ipv6 = false, Joined joined = Joined::by_switch, int ways = 1,
                      bool containers = false)
      : ipv6_(ipv6), wanted_(hosts), ways_(ways) {
    static int made = 0;
    prefix_ = fmt::format("tt{}x{}", getpid() % 100000, made++);
    if (geteuid() != 0) {
      missing_ = "network namespaces need root";
      return;
    }
    if (!run("ip netns add " + space(hosts))) {  // that of the bridge
      missing_ = "`ip netns add` (iproute2) does not work here";
      return;
    }
    spaces_ = 1;
    bool right = run(fmt::format("ip -n {0} link add br0 type bridge && ip -n {0} link set br0 up",
                                 space(hosts)));
    for (int h = 0; right && h < hosts; ++h) {
      right = run("ip netns add " + space(h));
      ++hosts_;
      right = right && (!containers || add_containers(h));
    }
    const bool direct = joined == Joined::directly && hosts == 2;
    for (int w = 0; right && direct && w < ways; ++w) {
      right = run(fmt::format("ip link add eth{0} netns {1} type veth peer name eth{0} netns {2}",
                              w, space(0), space(1)));
    }
    for (int h = 0; right && h < hosts; ++h) {
      if (!direct) {
        right =
            run(fmt::format("ip link add eth0 netns {0} type veth peer name port{1} netns {2} && "
                            "ip -n {2} link set port{1} master br0 up",
                            space(h), h, bridge()));
      }
      right = right && run(fmt::format(
                           "ip -n {0} link set lo up && ip -n {0} addr add {1} dev eth0 {2} && "
                           "ip -n {0} link set eth0 up && "
                           "ip netns exec {0} sysctl -qw net.ipv4.tcp_congestion_control=reno && "
                           "ip netns exec {0} sysctl -qw net.ipv4.tcp_no_metrics_save=1",
                           space(h), address(h) + (ipv6 ? "/64" : "/24"), ipv6 ? "nodad" : ""));
      for (int w = 1; right && w < ways; ++w) {
        right =
            run(fmt::format("ip -n {0} addr add {1}{2} dev eth{3} {4} && ip -n {0} link set "
                            "eth{3} up",
                            space(h), address(h, w), ipv6 ? "/64" : "/24", w, ipv6 ? "nodad" : ""));
      }
    }
    for (int h = 0; right && h < hosts; ++h) {
      for (int w = 0; right && ways > 1 && w < ways; ++w) right = is_up(h, fmt::format("eth{}", w));
      if (containers) right = right && is_up(h, "docker0");
    }
    if (!right) missing_ = "veth pairs between network namespaces cannot be made here";
  }
  ~Namespaces() {
    for (int h = 0; h < hosts_; ++h) run("ip netns del " + space(h));
    if (spaces_ > 0) run("ip netns del " + bridge());
  }
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  /// Why there are no namespaces; "": there are.
  const std::string& missing() const { return missing_; }
  std::string space(int host) const { return fmt::format("{}{}", spaces(), host); }
  /// The names of all namespaces begin with this, and end with the host's number.
  std::string spaces() const { return prefix_ + "h"; }
  std::string address(int host, int way = 0) const {
    return ipv6_ ? fmt::format("fd00:99:0:{}::{}", way, host + 1)
                 : fmt::format("10.99.{}.{}", way, host + 1);
  }
  /// The command that starts a program there.
  std::vector<std::string> prefix(int host) const { return {"ip", "netns", "exec", space(host)}; }
  /// From now on this process is there, as `ip netns exec` would start it: with a /sys of its own.
  /// False: the system refuses.
  bool enter(int host) const {
    const int there = open(("/run/netns/" + space(host)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = there >= 0 && setns(there, CLONE_NEWNET) == 0;
    if (there >= 0) close(there);
    if (!entered || unshare(CLONE_NEWNS) != 0) return false;
    if (mount("", "/", "none", MS_SLAVE | MS_REC, nullptr) != 0) return false;
    umount2("/sys", MNT_DETACH);
    return mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
  }

  /// Takes the switch's port away, or brings it back.
  void link(int host, bool up) const {
    run(fmt::format("ip -n {} link set port{} {}", bridge(), host, up ? "up" : "down"));
  }
  /// These two reach the others, but not each other any more.
  void part(int one, int other) const {
    for (const int host : {one, other}) {
      run(fmt::format("ip -n {} link set port{} type bridge_slave isolated on", bridge(), host));
    }
  }
  /// From now on no program on host `from` can connect to host `host` by IPv4: its firewall answers
  /// with a reset, or drops packets. False: nftables is missing here.
  bool refuse(int host, int from, bool reset) const {
    const std::string ruleset = fmt::format(
        "table ip from{0} {{\nchain input {{\ntype filter hook input priority 0;\n"
        "ip saddr {1} tcp flags & (syn | ack) == syn {2}\n}}\n}}\n",
        from, address(from), reset ? "reject with tcp reset" : "drop");
    return run(fmt::format("printf '%s' '{}' | ip netns exec {} nft -f -", ruleset, space(host)));
  }
  /// From now on host `host` answers all that comes to it over this way, or connections that begin,
  /// with a reset. False: nftables is missing here.
  bool reset_all(int host, int way) const { return reset(host, way, "meta l4proto tcp"); }
  bool reset_new(int host, int way) const {
    return reset(host, way, "tcp flags & (syn | ack) == syn");
  }
  bool reset(int host, int way, const char* what) const {
    const std::string ruleset = fmt::format(
        "table inet way{0} {{\nchain input {{\ntype filter hook input priority 0;\n"
        "iifname eth{0} {1} reject with tcp reset\n}}\n}}\n",
        way, what);
    return run(fmt::format("printf '%s' '{}' | ip netns exec {} nft -f -", ruleset, space(host)));
  }
  /// Limits the rate at which host `host` sends over each link, in Mbit/s.
  bool limit(int host, int megabits) const {
    bool right = true;
    for (int w = 0; w < ways_; ++w) {
      right = run(fmt::format("ip netns exec {} tc qdisc add dev eth{} root tbf rate {}mbit burst "
                              "128k latency 50ms",
                              space(host), w, megabits)) &&
              right;
    }
    return right;
  }
  /// Bytes that it has sent so far over this way, headers of the network included.
  std::uint64_t bytes_sent(int host, int way = 0) const {
    const std::string file = fmt::format("/tmp/{}.bytes", prefix_);
    run(fmt::format("ip netns exec {} cat /sys/class/net/eth{}/statistics/tx_bytes > {}",
                    space(host), way, file));
    std::uint64_t bytes = 0;
    std::ifstream(file) >> bytes;
    unlink(file.c_str());
    return bytes;
  }

 private:
  /// Gives it docker0, and a container.
  bool add_containers(int host) const {
    return run(
        fmt::format("ip -n {0} link add docker0 type bridge && "
                    "ip link add port0 netns {0} type veth peer name container{1} netns {2} && "
                    "ip -n {2} link set container{1} up && "
                    "ip -n {0} link set port0 master docker0 up && "
                    "ip -n {0} addr add 172.17.0.1/16 dev docker0 && "
                    "ip -n {0} link set docker0 up",
                    space(host), host, bridge()));
  }
  std::string bridge() const { return space(wanted_); }
  /// Waits until the kernel says that this link of `host` is up: it says so of a few once a second.
  bool is_up(int host, const std::string& link) const {
    for (int look = 0; look < 100; ++look) {
      if (run(fmt::format("ip -n {} -o link show dev {} | grep -q 'state UP'", space(host),
                          link))) {
        return true;
      }
      usleep(50'000);
    }
    return false;
  }
  static bool run(const std::string& command) {
    return std::system((command + " 2>/dev/null").c_str()) == 0;
  }

  bool ipv6_;
  std::string prefix_, missing_;
  int wanted_, ways_;
  int hosts_ = 0, spaces_ = 0;
};

}  // namespace tutti
