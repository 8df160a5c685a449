// What things cost on a machine: the constants from which predict.h makes times. `tutti calibrate`
// measures them and stores them in a file; where there is none, they follow from the cache sizes
// and from what is usual for a server.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/model/constant.h"
#include "core/types.h"

namespace tutti {

/// Plain data: rank 0's travels to the other ranks as it is. Times in ns, or in ns per KiB moved.
struct Machine {
  // The caches: they decide at which of the speeds below memory is read and written.
  double l2_bytes = 0;  // of one core
  double l3_bytes = 0;  // shared by all ranks

  // Synchronisation.
  double call_ns = 0;         // a call, without its steps
  double step_ns = 0;         // a step, whatever it moves
  double link_ns = 0;         // each message that a step sends or takes
  double latency_ns = 0;      // from the sender's core to a waiting receiver's
  double far_latency_ns = 0;  // the same, where the two share no cache
  double switch_ns = 0;       // a core passes from one rank to another
  double window_ns = 0;       // a call that addresses other ranks' memory, without its messages

  // The kernel copies from or to another process (transport/host/cma.h).
  double copy_ns = 0;     // each copy, whatever its size
  double copy_pages = 0;  // to get at the pages, without reading and writing

  // Messages longer than a header line: copied into a slot, and out of it.
  double slot_write = 0;
  double slot_read = 0;

  // Data between cores that share no cache cost at least so much, read or written.
  double far_data = 0;

  // Between hosts. The wire is shared by the ranks of a host, each direction by itself.
  double net_latency_ns = 0;  // from the sender's side to the receiver's
  double net_message_ns = 0;  // each message, at either end
  double net_send = 0;        // the core's part of sending, and of receiving: the kernel copies
  double net_receive = 0;
  double net_wire = 0;  // of one host, in one direction

  // A rank's own memory and other ranks' windows, by where the call's buffers fit.
  double l2_read = 0, l2_write = 0;
  double l3_read = 0, l3_write = 0;
  double memory_read = 0, memory_write = 0;
  double stream_write = 0;      // past the caches
  double memory_bandwidth = 0;  // of all ranks together, in bytes per ns
  double reduce_float32 = 0;    // the arithmetic alone, per KiB of each source
  double reduce_float16 = 0;    // also bfloat16
  double reduce_float8 = 0;
  double reduce_other = 0;

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// By their names in the file.
using MachineConstant = Constant<Machine>;
std::span<const MachineConstant> machine_constants();

/// Whether all constants are numbers that can be calculated with.
bool is_valid(const Machine& machine);

/// Arithmetic of a reduction of `type`, ns per KiB of each source.
double reduce_cost(const Machine& machine, DataType type);

/// This machine's constants as far as its cache sizes tell them.
Machine default_machine();
/// The constants of thread blocks instead of cores, by gpu_constants.h: messages of LL over NVLink.
/// The rest is assumed, with an H200's memory. A message costs as much there as a MiB that is
/// moved, where it is a KiB or two on CPUs.
Machine gpu_machine();
/// Model, cores and cache sizes: what a file is valid for. One line.
std::string machine_name();

/// Constants and where they are from.
struct MachineRecord {
  Machine machine;
  std::string name;  // machine_name() where they were measured
  std::string date;  // of the measurement
};

inline constexpr std::string_view kMachineVersion = "2";  // of the file's form
/// From text: `name = value` lines, each once, in any order (machine_file.h writes it). Throws
/// Error(invalid_argument) that says which line is wrong; nothing that a file holds does harm.
MachineRecord machine_from_text(std::string_view text);

/// Where this machine's file is: TUTTI_MACHINE, else under $XDG_CACHE_HOME/tutti or
/// ~/.cache/tutti; "" where there is no home.
std::string machine_path();
/// Throws Error(system) if `path` cannot be read, or Error(invalid_argument) as above.
MachineRecord read_machine(const std::string& path);

/// What this process uses: the file's constants, or the defaults. Read on each call; a file that
/// cannot be used is logged as a warning, once in a process.
struct UsedMachine {
  Machine machine;
  std::string origin;  // for users: "calibrated on DATE (FILE)", "defaults: ..."
};
UsedMachine used_machine();

}  // namespace tutti
