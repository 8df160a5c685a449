#include "collectives/model/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>

#include "collectives/model/gpu_constants.h"
#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/number.h"
#include "core/settings.h"

namespace tutti {
namespace {

constexpr std::size_t kMostText = std::size_t{64} << 10;
constexpr double kMostValue = 1e15;  // beyond every machine, and far from where sums overflow

constexpr std::array kConstants{
    MachineConstant{"l2_bytes", "bytes", &Machine::l2_bytes, "cache of one core"},
    MachineConstant{"l3_bytes", "bytes", &Machine::l3_bytes, "cache that the ranks share"},
    MachineConstant{"call_ns", "ns", &Machine::call_ns, "a call, besides its steps"},
    MachineConstant{"step_ns", "ns", &Machine::step_ns, "a step, whatever it moves"},
    MachineConstant{"link_ns", "ns", &Machine::link_ns, "each message that a step sends or takes"},
    MachineConstant{"latency_ns", "ns", &Machine::latency_ns, "a message on its way to a core"},
    MachineConstant{"far_latency_ns", "ns", &Machine::far_latency_ns,
                    "the same, to one that shares no cache"},
    MachineConstant{"switch_ns", "ns", &Machine::switch_ns, "a core passes to another rank"},
    MachineConstant{"window_ns", "ns", &Machine::window_ns, "a call through windows, besides that"},
    MachineConstant{"copy_ns", "ns", &Machine::copy_ns, "a copy by the kernel, of any size"},
    MachineConstant{"copy_pages", "ns/KiB", &Machine::copy_pages, "the same, to get at the pages"},
    MachineConstant{"slot_write", "ns/KiB", &Machine::slot_write, "copying into a slot"},
    MachineConstant{"slot_read", "ns/KiB", &Machine::slot_read, "copying out of a slot"},
    MachineConstant{"far_data", "ns/KiB", &Machine::far_data,
                    "data between cores that share no cache, at least"},
    MachineConstant{"net_latency_ns", "ns", &Machine::net_latency_ns,
                    "a message on its way to another host", true},
    MachineConstant{"net_message_ns", "ns", &Machine::net_message_ns,
                    "a message between hosts, at either end", true},
    MachineConstant{"net_send", "ns/KiB", &Machine::net_send,
                    "sending to another host, the core's part", true},
    MachineConstant{"net_receive", "ns/KiB", &Machine::net_receive,
                    "receiving from another host, the core's part", true},
    MachineConstant{"net_wire", "ns/KiB", &Machine::net_wire,
                    "the wire of a host, in one direction", true},
    MachineConstant{"l2_read", "ns/KiB", &Machine::l2_read, "reading from L2"},
    MachineConstant{"l2_write", "ns/KiB", &Machine::l2_write, "writing to L2"},
    MachineConstant{"l3_read", "ns/KiB", &Machine::l3_read, "reading from L3"},
    MachineConstant{"l3_write", "ns/KiB", &Machine::l3_write, "writing to L3"},
    MachineConstant{"memory_read", "ns/KiB", &Machine::memory_read, "reading from memory"},
    MachineConstant{"memory_write", "ns/KiB", &Machine::memory_write, "writing to memory"},
    MachineConstant{"stream_write", "ns/KiB", &Machine::stream_write,
                    "writing to memory, past the caches"},
    MachineConstant{"memory_bandwidth", "bytes/ns", &Machine::memory_bandwidth,
                    "memory, all cores together"},
    MachineConstant{"reduce_float32", "ns/KiB", &Machine::reduce_float32,
                    "adding up float32, arithmetic alone"},
    MachineConstant{"reduce_float16", "ns/KiB", &Machine::reduce_float16, "float16 and bfloat16"},
    MachineConstant{"reduce_float8", "ns/KiB", &Machine::reduce_float8, "8-bit floats"},
    MachineConstant{"reduce_other", "ns/KiB", &Machine::reduce_other, "float64 and integers"},
};
static_assert(sizeof(Machine) == kConstants.size() * sizeof(double), "a constant without a name");

[[noreturn]] void refuse(std::size_t line, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("line {}: {}", line, why));
}

double number_from(std::string_view text, std::size_t line) {
  const auto x = parse_number<double>(text);
  if (!x || *x < 0 || *x > kMostValue) refuse(line, "expected a number from 0 to 1e15");
  return *x;
}

/// TCP over Ethernet with 40 Gbit/s.
void set_network(Machine& m) {
  m.net_latency_ns = 10000;
  m.net_message_ns = 2000;
  m.net_send = 180;
  m.net_receive = 100;
  m.net_wire = 204.8;
}

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fmt::format("{}/tutti", cache);
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fmt::format("{}/.cache/tutti", home);
  return "";
}

}  // namespace

std::span<const MachineConstant> machine_constants() { return kConstants; }

bool is_valid(const Machine& m) {
  return m.memory_bandwidth > 0 && std::ranges::all_of(kConstants, [&](const MachineConstant& c) {
           return m.*c.value >= 0 && m.*c.value <= kMostValue;
         });
}

double reduce_cost(const Machine& m, DataType type) {
  switch (type) {
    case DataType::float32:
      return m.reduce_float32;
    case DataType::float16:
    case DataType::bfloat16:
      return m.reduce_float16;
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return m.reduce_float8;
    default:
      return m.reduce_other;
  }
}

Machine default_machine() {
  const Host& h = host();
  Machine m;
  m.l2_bytes = static_cast<double>(h.l2_bytes);
  m.l3_bytes = static_cast<double>(h.l3_bytes);
  // Usual for a server of the 2020s; what matters is their proportions.
  m.call_ns = 80;
  m.step_ns = 15;
  m.link_ns = 15;
  m.latency_ns = 150;
  m.far_latency_ns = 400;
  m.switch_ns = 2000;
  m.window_ns = 200;
  // What kernels take for copies differs too much for a guess: slots, until it has been measured.
  m.copy_ns = 2000;
  m.copy_pages = 400;
  m.slot_write = 70;
  m.slot_read = 40;
  m.far_data = 200;
  set_network(m);
  m.l2_read = m.l2_write = 15;
  m.l3_read = m.l3_write = 30;
  m.memory_read = 70;
  m.memory_write = 140;
  m.stream_write = 90;
  m.memory_bandwidth = 20 + 5 * h.cores;
  m.reduce_float32 = 10;
  m.reduce_float16 = 25;
  m.reduce_float8 = 100;
  m.reduce_other = 10;
  return m;
}

Machine gpu_machine() {
  Machine m;
  m.l2_bytes = m.l3_bytes = 50 << 20;  // one cache, that all share
  m.call_ns = 3000;
  m.step_ns = 200;
  m.link_ns = 100;
  m.latency_ns = m.far_latency_ns = m.window_ns = 1000 * GpuConstants{}.link_ll;
  m.slot_write = m.slot_read = 0.5;  // LL's flags are half of what is moved
  m.l2_read = m.l2_write = m.l3_read = m.l3_write = 0.3;
  m.memory_read = m.memory_write = m.stream_write = 0.4;
  m.memory_bandwidth = 4300;
  m.reduce_float32 = m.reduce_float16 = m.reduce_other = 0.05;
  m.reduce_float8 = 0.2;
  set_network(m);
  return m;
}

std::string machine_name() {
  const Host& h = host();
  return fmt::format("{}, {} cores, L2 {} KiB, L3 {} KiB", h.cpu, h.cores, h.l2_bytes >> 10,
                     h.l3_bytes >> 10);
}

MachineRecord machine_from_text(std::string_view text) {
  if (text.size() > kMostText) refuse(1, "too long to be a file of constants");
  MachineRecord record;
  std::set<std::string_view> seen;
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) refuse(number, "expected NAME = VALUE");
    const std::string_view name = trimmed(line.substr(0, equals));
    const std::string_view value = trimmed(line.substr(equals + 1));
    if (!seen.insert(name).second) refuse(number, fmt::format("{} is there twice", name));
    if (name == "version") {
      if (value != kMachineVersion) refuse(number, "another version wrote it");
    } else if (name == "machine") {
      record.name = value;
    } else if (name == "date") {
      record.date = value;
    } else {
      const MachineConstant* constant = nullptr;
      for (const MachineConstant& c : kConstants) {
        if (c.name == name) constant = &c;
      }
      if (constant == nullptr) refuse(number, fmt::format("there is no constant '{}'", name));
      record.machine.*constant->value = number_from(value, number);
    }
  }
  const Machine defaults = default_machine();
  for (const std::string_view name : {"version", "machine", "date"}) {
    if (!seen.contains(name)) refuse(number, fmt::format("{} is missing", name));
  }
  for (const MachineConstant& c : kConstants) {
    if (seen.contains(c.name)) continue;
    if (!c.may_be_left_out) refuse(number, fmt::format("{} is missing", c.name));
    record.machine.*c.value = defaults.*c.value;
  }
  if (!is_valid(record.machine)) refuse(number, "memory_bandwidth is 0");
  return record;
}

std::string machine_path() {
  const std::string wish = setting_text("TUTTI_MACHINE");
  if (!wish.empty()) return wish;
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  return fmt::format("{}/machine-{:016x}.txt", folder, std::hash<std::string>{}(machine_name()));
}

MachineRecord read_machine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostText + 1, '\0');
  // Opening a folder works; reading from it does not.
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) throw_system_error(fmt::format("cannot read {}", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  try {
    return machine_from_text(text);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", path, e.what()));
  }
}

UsedMachine used_machine() {
  const std::string path = machine_path();
  const auto defaults = [](const std::string& why) {
    return UsedMachine{default_machine(), fmt::format("defaults: {}", why)};
  };
  if (path.empty()) return defaults("no home folder, so no calibration");
  std::error_code error;  // a home folder of another user, say
  if (setting_text("TUTTI_MACHINE").empty() && !std::filesystem::exists(path, error) && !error) {
    return defaults("`tutti calibrate` was not run on this machine");
  }
  std::string problem;
  try {
    const MachineRecord record = read_machine(path);
    // A file that the user names may describe another machine on purpose.
    if (!setting_text("TUTTI_MACHINE").empty() || record.name == machine_name()) {
      return {record.machine, fmt::format("calibrated on {} ({})", record.date, path)};
    }
    problem = fmt::format("{} is about another machine ({}, but this is {})", path, record.name,
                          machine_name());
  } catch (const Error& e) {
    problem = e.what();
  }
  static std::once_flag once;
  std::call_once(once, [&] {
    log().warn("{}; times are predicted with defaults, until `tutti calibrate` is run", problem);
  });
  return defaults(problem);
}

}  // namespace tutti
