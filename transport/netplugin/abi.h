// What a network plugin of NCCL looks like from outside: a library with one table of functions per
// version of the interface, ncclNetPlugin_v8 to ncclNetPlugin_v12.
//
// All versions have the functions in the same order. Some functions take other arguments in some
// versions, and are Untyped here: NetPlugin (plugin.cpp) gives them the arguments of the version.
// Every function returns a status: 0 for success. None waits: what cannot be done yet leaves its
// result null, and is asked again with the same arguments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::netabi {

inline constexpr int kOldest = 8, kNewest = 12;
inline constexpr std::size_t kHandleBytes = 128;  // of a listening end's handle
inline constexpr int kMostRequests = 32;          // under way on a connection, of one direction
inline constexpr int kHostMemory = 1;             // in `memory_kinds`, and as what is registered
inline constexpr int kNoOffload = 0;              // in `offload`: no part runs on the GPU

using Untyped = void (*)();
/// The plugin writes its log through it, as printf() does. Level 2 is a warning, 3 information.
using Log = void (*)(int level, unsigned long subsystems, const char* file, int line,
                     const char* format, ...);
/// The plugin tells of events for a profiler.
using Profile = int (*)(void** event, int type, void* parent, std::int64_t plugin, void* data);

/// Of a connection (version 10), or of all that a context makes (from 11 on).
struct Config {
  int traffic_class = -1;  // undefined
};

struct Table {
  const char* name;
  Untyped init;
  int (*devices)(int* count);
  Untyped get_properties;
  Untyped listen;
  Untyped connect;
  int (*accept)(void* listener, void** receiver, void** offloaded);
  int (*register_memory)(void* connection, void* data, std::size_t bytes, int kind, void** handle);
  Untyped register_dmabuf;
  int (*deregister)(void* connection, void* handle);
  Untyped send;
  Untyped receive;
  Untyped flush;
  int (*test)(void* request, int* done, int* bytes);
  int (*close_sender)(void* sender);
  int (*close_receiver)(void* receiver);
  int (*close_listener)(void* listener);
  Untyped device_registration;
  Untyped received_on_device;
  // From version 9 on:
  Untyped make_device;
  // From version 11 on:
  int (*finalize)(void* context);
  Untyped set_attributes;
};

/// The properties of a device, in version 8.
struct Properties8 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int memory_kinds;  // a sum
  int registration_is_global;
  int megabits;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int offload;
  int offload_version;
};

/// Properties from version 9 on. From 12 on a device may be made of more (`Parts`). What follows
/// `most_collective_bytes` is written in part: by version 11 the first number, by 12 all three.
template <int Parts>
struct Properties9 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int memory_kinds;
  int registration_is_global;
  int flushes_always;
  int megabits;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int offload;
  int offload_version;
  int parts;
  int part[Parts];
  std::size_t most_bytes;
  std::size_t most_collective_bytes;
  int most_requests_at_once;
  std::int16_t rail;
  std::int16_t plane;
};
}  // namespace tutti::netabi
