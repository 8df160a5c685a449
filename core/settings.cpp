// The table of settings, and the functions that read it.
#include "core/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/number.h"

namespace tutti {
namespace {

constexpr std::array kSettings{
    Setting{"TUTTI_LOG", SettingType::text, "warn",
            "The messages that go to standard error: off, error, warn, info or debug.", "", "",
            "Messages and waits"},
    Setting{"TUTTI_TIMEOUT", SettingType::seconds, "0",
            "How long an operation may wait for another rank before it fails. 0: no limit, as a "
            "slow rank is not a broken one.",
            "0"},
    Setting{"TUTTI_REPORT_AFTER", SettingType::seconds, "30",
            "An operation that has waited this long logs a warning, which names the rank it waits "
            "for. 0: never.",
            "0"},
    Setting{"TUTTI_RENDEZVOUS_TIMEOUT", SettingType::seconds, "60",
            "How long the ranks of a new communicator wait for each other.", "1ms", "",
            "How ranks meet"},
    Setting{
        "TUTTI_ADDRESS", SettingType::text, "",
        "The address of this host at which a rendezvous listens: IPv4 or IPv6 (fe80::1%eth0), not "
        "a name, and not 0.0.0.0. Empty: for ranks of one host 127.0.0.1, if it has that; where "
        "ranks may be on several hosts, the address by which those reach this one "
        "(docs/hosts.md)."},
    Setting{
        "TUTTI_ID_FILE", SettingType::text, "",
        "A file that all ranks' hosts see. Rank 0 writes there where and under which secret "
        "the ranks meet. For launchers that start ranks on several hosts and have no store of "
        "their own for that (docs/hosts.md); it goes before the launcher's store. Tutti appends "
        "the launcher's name of the job."},
    Setting{"TUTTI_HOST_ID", SettingType::text, "",
            "Ranks with different host ids do not share memory, as if they were on different "
            "hosts. Empty: what the system says (boot and network namespace)."},
    Setting{"TUTTI_SOCKET_IFNAME", SettingType::text, "",
            "The network interfaces by which other hosts reach this one: the beginnings of names, "
            "separated by commas; after =, whole names; after ^, the interfaces not to use. Empty: "
            "the interface that leads to rank 0's host."},
    Setting{"TUTTI_PORTS", SettingType::text, "",
            "The TCP ports at which ranks listen, as 20000-20100 or one number, for firewalls. A "
            "rank needs one port, and one more while the ranks meet. UCX listens at ports of its "
            "own (UCX_TCP_PORT_RANGE). Empty: any free port."},
    Setting{"TUTTI_PEER_TIMEOUT", SettingType::seconds, "4.5",
            "How long a network may be down, or another host be silent, without harm. Ranks of a "
            "host that is silent for longer count as lost, 2 to 3 s later (on Linux before 6.15: "
            "as long again later). 0: as long as the system allows.",
            "0", "", "Hosts that are silent"},
    Setting{"TUTTI_QUORUM", SettingType::boolean, "0",
            "shrink() makes a communicator only of a majority of the ranks before, or of half of "
            "them with their rank 0. So at most one part of a job goes on when its network comes "
            "apart. The same on all ranks."},
    Setting{"TUTTI_TRANSPORT", SettingType::text, "",
            "The transport of links to other hosts: verbs (RDMA), tcp, ucx, or plugin (a network "
            "plugin of NCCL, which NCCL_NET_PLUGIN names). Empty: verbs between hosts with RDMA "
            "ports of the same kind of network, else tcp.",
            "", "", "Between hosts"},
    Setting{"TUTTI_UCX_TLS", SettingType::text, "",
            "The transports that UCX may use, as UCX_TLS takes them (tcp, or rc,ud). Empty: what "
            "UCX_TLS says, or all."},
    Setting{"TUTTI_UCX_NET_DEVICES", SettingType::text, "",
            "The devices that UCX may use, as UCX_NET_DEVICES takes them (eth0, mlx5_0:1). Empty: "
            "what UCX_NET_DEVICES says, or all."},
    Setting{"TUTTI_TCP_CONGESTION", SettingType::text, "",
            "The congestion control of TCP connections between hosts; system: the system's "
            "default. Empty: cubic, or reno where that is not allowed."},
    Setting{
        "TUTTI_TCP_STREAMS", SettingType::integer, "0",
        "How many TCP connections carry the long messages between two ranks of different hosts; "
        "of two ranks that differ, the lower number counts. 0: one for each way between the two: "
        "the one by which they meet, and each pair of further addresses in the same network, on "
        "interfaces of the same known speed. More than there are ways: several take one.",
        "0", "8"},
    Setting{"TUTTI_TCP_CHECKSUM", SettingType::boolean, "0",
            "Data to other hosts over TCP carry checksums (CRC32C). Data that were altered on "
            "their way end the call with an error. Rank 0's counts."},
    Setting{"TUTTI_ENCRYPT", SettingType::boolean, "0",
            "Ranks of different hosts encrypt and authenticate all that they send each other. Over "
            "TCP only. Rank 0's counts."},
    Setting{
        "TUTTI_ALGORITHM", SettingType::text, "",
        "The algorithm to use wherever it can do the operation. Empty: chosen by predicted time.",
        "", "", "Algorithms, and the bits of results"},
    Setting{
        "TUTTI_ROUND_ONCE", SettingType::boolean, "0",
        "Sums of 16- and 8-bit floats are rounded once, when they are complete: for them only "
        "algorithms that do so are chosen (ROUNDED is 1 in `tutti plan list`). Rank 0's counts."},
    Setting{"TUTTI_INVARIANT", SettingType::boolean, "0",
            "Reductions give bits that depend on the inputs and the order of the ranks alone, not "
            "on sizes, memory, algorithms or hosts (docs/determinism.md). The same on all ranks."},
    Setting{"TUTTI_VLLM", SettingType::boolean, "1",
            "vLLM for CPUs takes Tutti for its groups where it finds it (docs/inference.md)."},
    Setting{"TUTTI_MPI_INTEL", SettingType::boolean, "0",
            "The program was built with Intel MPI's mpi_abi.h, with other values (docs/mpi.md)."},
    Setting{"TUTTI_TOPO_TRUST", SettingType::boolean, "0",
            "Believe all that a topology file or the system says of links, also where it "
            "contradicts itself. Otherwise a warning names such records, and Tutti repairs them.",
            "", "", "What is known of the machine"},
    Setting{"TUTTI_TOPO_FILE", SettingType::text, "",
            "A description of this host, in any format that `tutti topo --file` reads. It decides "
            "the order of ranks with GPUs, and the ports for other hosts. Empty: what the system "
            "shows. off: GPUs are in the order of ranks, and ports are used in turn."},
    Setting{
        "TUTTI_MACHINE", SettingType::text, "",
        "The file with the machine's constants, from which times are predicted. Empty: the file "
        "that `tutti calibrate` wrote for this machine, if there is one. Rank 0's counts."},
    Setting{
        "TUTTI_SLOTS", SettingType::integer, "0",
        "Slots of a connection between two ranks: how many messages may be under way. 0: 32, of "
        "which 8 to 32 may be full, depending on the number of ranks and cores.",
        "2", "4096", "Inside a host"},
    Setting{"TUTTI_SLOT_BYTES", SettingType::bytes, "0",
            "Bytes of one slot. 0: 64K, or up to 512K where every rank is on a host of its own.",
            "1K", "1G"},
    Setting{"TUTTI_CMA", SettingType::boolean, "1",
            "Copy memory outside of windows with process_vm_readv and process_vm_writev, where the "
            "kernel allows it and it is predicted to be faster than slots. All ranks must agree."},
    Setting{"TUTTI_WINDOWS", SettingType::boolean, "1",
            "Use windows: other ranks' memory, mapped into this process."},
    Setting{"TUTTI_TILE_BYTES", SettingType::bytes, "4M",
            "Bytes that a plan over windows moves between two synchronisations.", "4K", "1T"},
    Setting{
        "TUTTI_SPIN", SettingType::integer, "-1",
        "How often a wait looks before it yields the processor, or, where each rank has a core, "
        "looks at the clock. With more ranks than cores: before each yield, unless it waits for a "
        "rank on the same core. -1: chosen.",
        "0", "1000000000"},
    Setting{"TUTTI_APART", SettingType::boolean, "0",
            "Ranks that are threads of one process treat each other as processes: sockets, and "
            "mappings of their own. For tests, under a sanitizer that sees one process only."},
    Setting{"TUTTI_CUDA_IPC", SettingType::boolean, "1",
            "Map the GPU memory of other processes. Where that is off, on either side, or "
            "impossible, data between two processes' GPUs go through memory of the host.",
            "", "", "GPUs"},
    Setting{"TUTTI_CUDA_WINDOWS", SettingType::boolean, "0",
            "Long collectives address the buffers on other processes' GPUs, where all ranks ask "
            "for it. A call with newly allocated memory then waits for all processes: one that is "
            "in a call of CUDA which waits for kernels, as a copy to the host does, may hold it up "
            "for ever. Otherwise such data go through slots."},
    Setting{"TUTTI_CUDA_RDMA", SettingType::boolean, "1",
            "RDMA devices read and write memory of GPUs by themselves. Where that is off, or "
            "impossible, data of that side's GPUs go through memory of the host."},
    Setting{"TUTTI_CUDA_PROTOCOLS", SettingType::text, "",
            "The protocols for collectives on GPU memory: a list of ll, ll128 and simple, or, "
            "after ^, of those not to use. Empty: all. The same on all ranks."},
    Setting{"TUTTI_CUDA_BLOCKS", SettingType::integer, "0",
            "The most thread blocks that a collective on GPU memory takes of a rank (at least one "
            "for each lane of its plan). 0: an estimate of its need. The same on all ranks.",
            "0"},
    Setting{"TUTTI_VERBS_DEVICES", SettingType::text, "",
            "The RDMA devices to use, as a list of names (mlx5_0,mlx5_1). Empty: all connected "
            "devices, up to 8 ports.",
            "", "", "RDMA devices"},
    Setting{"TUTTI_VERBS_GID_INDEX", SettingType::integer, "-1",
            "Which of an RDMA port's addresses (GIDs) to use. -1: chosen, RoCE v2 over IPv4 first.",
            "0", "255"},
    Setting{"TUTTI_VERBS_TIMEOUT", SettingType::integer, "14",
            "How long an RDMA device waits for an acknowledgement before it sends a packet again: "
            "4.096 us times 2 to this power, so 67 ms. 0: for ever.",
            "0", "31"},
    Setting{"TUTTI_VERBS_RETRY", SettingType::integer, "6",
            "How often an RDMA device sends a packet again before it gives the peer up (7: on "
            "rdma_rxe, for ever).",
            "0", "7"},
    Setting{"TUTTI_VERBS_SERVICE_LEVEL", SettingType::integer, "0",
            "The service level of RDMA packets (RoCE: the frames' priority).", "0", "15"},
    Setting{"TUTTI_VERBS_TRAFFIC_CLASS", SettingType::integer, "0",
            "The traffic class of RDMA packets (RoCE: DSCP and ECN bits).", "0", "255"},
    Setting{"TUTTI_RANK", SettingType::integer, "-1",
            "This process's rank. Set by `tutti run`; -1: not started by it.", "0", "2147483647",
            "Set by `tutti run`"},
    Setting{"TUTTI_SIZE", SettingType::integer, "-1",
            "The number of ranks. Set by `tutti run`; -1: not started by it.", "1", "2147483647"},
    Setting{"TUTTI_LOCAL_RANK", SettingType::integer, "-1",
            "This process's number among the ranks of its host, for programs that choose a GPU by "
            "it. Set by `tutti run`; -1: not started by it.",
            "0", "2147483647"},
    Setting{"TUTTI_LOCAL_SIZE", SettingType::integer, "-1",
            "The number of ranks on this host. Set by `tutti run`; -1: not started by it.", "1",
            "2147483647"},
    Setting{"TUTTI_UNIQUE_ID", SettingType::text, "",
            "Where and under which secret the ranks meet. Set by `tutti run`."},
    Setting{"TUTTI_ELASTIC", SettingType::integer, "-1",
            "The descriptor over which a rank of an elastic job hears of its rounds. Set by `tutti "
            "run --elastic`; -1: not started by it.",
            "0", "2147483647"},
};

const Setting& find(std::string_view name, SettingType type) {
  for (const Setting& setting : kSettings) {
    if (setting.name == name && setting.type == type) return setting;
  }
  throw Error(ErrorCode::internal, fmt::format("no setting {} of type {}; this is a bug in Tutti",
                                               name, type_name(type)));
}

std::string_view value_of(const Setting& setting) {
  // The names in the table are literals, so they end in a zero.
  const char* value = std::getenv(setting.name.data());
  return value != nullptr ? std::string_view(value) : setting.default_value;
}

std::optional<std::int64_t> integer_from(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

std::optional<std::uint64_t> bytes_from(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  double fraction = 0;
  if (text.starts_with('.')) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789", 1), text.size());
    const auto part = parse_number<double>(text.substr(0, digits));
    if (digits < 2 || !part) return std::nullopt;
    fraction = *part;
    text.remove_prefix(digits);
    if (text.empty() || text == "B") return std::nullopt;  // half a byte
  }
  int shift = 0;
  if (!text.empty() && text != "B") {
    const std::size_t prefix = std::string_view("KMGTkmgt").find(text[0]);
    if (prefix == std::string_view::npos) return std::nullopt;
    shift = 10 * static_cast<int>(prefix % 4 + 1);
    const std::string_view rest = text.substr(1);
    if (!rest.empty() && rest != "B" && rest != "iB") return std::nullopt;
  }
  if (number > (std::numeric_limits<std::size_t>::max() >> shift)) return std::nullopt;
  return (number << shift) + static_cast<std::uint64_t>(std::ldexp(fraction, shift));
}

std::optional<std::chrono::nanoseconds> seconds_from(std::string_view text) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit == "ms") {
    number /= 1e3;
  } else if (!unit.empty() && unit != "s") {
    return std::nullopt;
  }
  // A century: far from where nanoseconds in 64 bits overflow. The comparison refuses NaN as well.
  if (!(number >= 0 && number <= 3.2e9)) return std::nullopt;
  return std::chrono::nanoseconds(std::llround(number * 1e9));
}

std::optional<bool> boolean_from(std::string_view text) {
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  return std::nullopt;
}

template <class T, class Parse>
bool allows(const Setting& s, T value, Parse parse) {
  const auto limit = [&](std::string_view text) { return static_cast<T>(*parse(text)); };
  return ((s.least.empty() || value >= limit(s.least)) &&
          (s.most.empty() || value <= limit(s.most))) ||
         value == limit(s.default_value);
}

template <class Parse>
auto parsed(std::string_view name, SettingType type, Parse parse) {
  const Setting& setting = find(name, type);
  const std::string_view value = value_of(setting);
  const auto result = parse(value);
  if (!result || !allows(setting, *result, parse)) {
    const std::string range = range_of(setting);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the environment variable {} is \"{}\"; expected {}{}{} (default: {})",
                            name, value, expectation(type), range.empty() ? "" : ", ", range,
                            setting.default_value));
  }
  return *result;
}

template <class T>
[[noreturn]] void refuse(const Setting& s, std::string_view what, const T& value) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is {}; expected {}, or {} (the setting {})", what, value, range_of(s),
                          s.default_value, s.name));
}

/// The setting of whole numbers or bytes that has this name.
const Setting& find_number(std::string_view name) {
  const auto bytes = [&](const Setting& s) {
    return s.name == name && s.type == SettingType::bytes;
  };
  const bool is_bytes = std::ranges::any_of(kSettings, bytes);
  return find(name, is_bytes ? SettingType::bytes : SettingType::integer);
}

}  // namespace

std::string_view type_name(SettingType type) {
  switch (type) {
    case SettingType::text:
      return "text";
    case SettingType::integer:
      return "integer";
    case SettingType::bytes:
      return "bytes";
    case SettingType::seconds:
      return "seconds";
    case SettingType::boolean:
      return "boolean";
  }
  return "?";
}

std::string_view expectation(SettingType type) {
  switch (type) {
    case SettingType::text:
      return "text";
    case SettingType::integer:
      return "a whole number";
    case SettingType::bytes:
      return "a number of bytes, such as 4096, 64K, 1.5M or 2GiB";
    case SettingType::seconds:
      return "a time in seconds, such as 30 or 0.5, or in milliseconds, such as 100ms; at most a "
             "century";
    case SettingType::boolean:
      return "1 or 0 (also true, false, yes, no, on, off)";
  }
  return "?";
}

std::string range_of(const Setting& s) {
  if (!s.most.empty()) return fmt::format("from {} to {}", s.least, s.most);
  return s.least.empty() ? "" : fmt::format("at least {}", s.least);
}

std::span<const Setting> settings() { return kSettings; }

std::string setting_text(std::string_view name) {
  return std::string(value_of(find(name, SettingType::text)));
}

std::int64_t setting_integer(std::string_view name) {
  return parsed(name, SettingType::integer, integer_from);
}

std::size_t setting_bytes(std::string_view name) {
  return parsed(name, SettingType::bytes, bytes_from);
}

std::chrono::nanoseconds setting_seconds(std::string_view name) {
  return parsed(name, SettingType::seconds, seconds_from);
}

bool setting_boolean(std::string_view name) {
  return parsed(name, SettingType::boolean, boolean_from);
}

bool setting_allows(std::string_view name, std::uint64_t value) {
  const Setting& s = find_number(name);
  // What a program may set has no negative limits.
  return s.type == SettingType::bytes ? allows(s, value, bytes_from)
                                      : allows(s, value, integer_from);
}

void check_setting(std::string_view name, std::string_view what, std::uint64_t value) {
  if (!setting_allows(name, value)) refuse(find_number(name), what, value);
}

void check_setting(std::string_view name, std::string_view what, std::chrono::nanoseconds value) {
  const Setting& s = find(name, SettingType::seconds);
  if (!allows(s, value, seconds_from)) {
    refuse(s, what, fmt::format("{} ns", value.count()));
  }
}

std::size_t parse_bytes(std::string_view text) {
  const auto bytes = bytes_from(text);
  if (!bytes) {
    throw Error(ErrorCode::invalid_argument, fmt::format("\"{}\" is not a size; expected {}", text,
                                                         expectation(SettingType::bytes)));
  }
  return *bytes;
}

}  // namespace tutti
