// A network plugin for tests, as others write them for NCCL: TCP over the loopback device
// (socket_network.h). It has every version of the interface; compiled with TUTTI_PLUGIN_VERSION it
// has that one alone. The tables are declared here a second time, from the plugin's side.
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "socket_network.h"

namespace {

using namespace tutti::test;

using Profiler = int (*)(void**, int, void*, std::int64_t, void*);

// --- What differs from version to version (a library of one has not all of it) -------------------

template <class Size>
int receive_messages(void* receiver, int count, void** data, Size* bytes, void** memory,
                     void** request) {
  if (is_to_fail("irecv")) return fail(kSystem, "told to fail");
  if (count != 1) return fail(kInternal, "%d receives at once", count);
  return receive_message(receiver, data[0], static_cast<std::size_t>(bytes[0]), memory[0], request);
}

int init(Logger log) {
  logger = log;
  log(3, ~0UL, __FILE__, __LINE__, "%s begins", "a network of sockets");
  return is_to_fail("init") ? fail(kSystem, "there is no loopback today") : kSuccess;
}
[[maybe_unused]] int init(Logger log, Profiler profiler) {
  return profiler == nullptr ? kInternal : init(log);
}

struct Config {
  int traffic_class;
};
/// Of a group of ranks, from version 11 on.
struct Context {
  Config* config;
};
[[maybe_unused]] int init(void** context, std::uint64_t, Config* config, Logger log,
                          Profiler profiler) {
  const int status = init(log, profiler);
  if (status == kSuccess) *context = new Context{config};
  return status;
}
[[maybe_unused]] int finalize(void* context) {
  auto* const c = static_cast<Context*>(context);
  const bool is_undefined = c->config->traffic_class == -1;
  delete c;
  return is_undefined ? kSuccess : kInternal;
}
[[maybe_unused]] int listen_in(void* context, int device, void* handle, void** listener) {
  return context == nullptr ? int{kInternal} : listen_at(device, handle, listener);
}
[[maybe_unused]] int connect8(int device, void* handle, void** sender, void**) {
  return connect_to(device, handle, sender);
}
[[maybe_unused]] int connect10(int device, Config* config, void* handle, void** sender, void**) {
  if (config == nullptr || config->traffic_class != -1) return kInternal;
  return connect_to(device, handle, sender);
}
[[maybe_unused]] int connect11(void* context, int device, void* handle, void** sender, void**) {
  return context == nullptr ? int{kInternal} : connect_to(device, handle, sender);
}
[[maybe_unused]] int send8(void* sender, void* data, int bytes, int, void* memory, void** request) {
  return send_message(sender, data, static_cast<std::size_t>(bytes), memory, request);
}
[[maybe_unused]] int send9(void* sender, void* data, std::size_t bytes, int, void* memory,
                           void** request) {
  return send_message(sender, data, bytes, memory, request);
}
[[maybe_unused]] int send10(void* sender, void* data, std::size_t bytes, int, void* memory, void*,
                            void** request) {
  return send_message(sender, data, bytes, memory, request);
}
[[maybe_unused]] int receive8(void* receiver, int n, void** data, int* bytes, int*, void** memory,
                              void** request) {
  return receive_messages(receiver, n, data, bytes, memory, request);
}
[[maybe_unused]] int receive9(void* receiver, int n, void** data, std::size_t* bytes, int*,
                              void** memory, void** request) {
  return receive_messages(receiver, n, data, bytes, memory, request);
}
[[maybe_unused]] int receive10(void* receiver, int n, void** data, std::size_t* bytes, int*,
                               void** memory, void**, void** request) {
  return receive_messages(receiver, n, data, bytes, memory, request);
}

template <int>
struct None {};  // each of another type, so none takes room
template <int Version>
struct Properties {
  static constexpr bool kIs9 = Version >= 9, kIs11 = Version >= 11, kIs12 = Version >= 12;
  struct Parts {
    int count;
    int device[kIs12 ? 8 : 4];
  };
  char* name;
  char* path;
  std::uint64_t guid;
  int pointers;
  int global;
  [[no_unique_address]] std::conditional_t<kIs9, int, None<1>> force_flush;
  int speed;
  int port;
  float latency;
  int most_connections;
  int most_receives;
  int device_type;
  int device_version;
  [[no_unique_address]] std::conditional_t<kIs9, Parts, None<2>> parts;
  [[no_unique_address]] std::conditional_t<kIs9, std::array<std::size_t, 2>, None<3>> most_bytes;
  [[no_unique_address]] std::conditional_t<kIs11, int, None<4>> most_at_once;
  [[no_unique_address]] std::conditional_t<kIs12, std::array<std::int16_t, 2>, None<5>> rail_plane;
};
static_assert(sizeof(Properties<8>) == 64 && sizeof(Properties<9>) == 104 &&
              sizeof(Properties<11>) == 112 && sizeof(Properties<12>) == 128);

std::array<char, 16> names[2] = {{"sockets0"}, {"sockets1"}};

template <int Version>
int properties(int device, Properties<Version>* p) {
  if (device < 0 || device > 1) return kInternal;
  *p = {};
  p->name = names[device].data();
  p->guid = static_cast<std::uint64_t>(device);
  p->pointers = 1;
  p->speed = 10000 + device;
  p->most_connections = 1024;
  p->most_receives = 1;
  if constexpr (Version >= 9) {
    p->parts.count = 1;
    p->parts.device[0] = device;
    p->most_bytes = {std::size_t{1} << 30, std::size_t{1} << 20};
  }
  if constexpr (Version >= 11) p->most_at_once = 1;
  if constexpr (Version >= 12) p->rail_plane = {-1, -1};
  return kSuccess;
}

using Unused = int (*)();
template <class Init, class GetProperties, class Listen, class Connect, class Send, class Receive>
struct Plugin {
  const char* name;
  Init* init;
  int (*devices)(int*);
  GetProperties* get_properties;
  Listen* listen;
  Connect* connect;
  int (*accept)(void*, void**, void**);
  int (*reg)(void*, void*, std::size_t, int, void**);
  Unused reg_dmabuf;
  int (*dereg)(void*, void*);
  Send* send;
  Receive* receive;
  Unused flush;
  int (*test)(void*, int*, int*);
  int (*close_send)(void*);
  int (*close_receive)(void*);
  int (*close_listen)(void*);
  Unused device_mr, consumed, make_device;
  int (*finalize)(void*);
  Unused set_attributes;
};

template <class... Functions>
constexpr Plugin<std::remove_pointer_t<Functions>...> plugin(int (*end)(void*), Functions... f) {
  return std::apply(
      [&](auto begin, auto get, auto listen, auto connect, auto send, auto receive) {
        return Plugin<std::remove_pointer_t<Functions>...>{"Test sockets",
                                                           begin,
                                                           devices,
                                                           get,
                                                           listen,
                                                           connect,
                                                           accept_one,
                                                           register_memory,
                                                           nullptr,
                                                           deregister,
                                                           send,
                                                           receive,
                                                           nullptr,
                                                           test,
                                                           close_connection,
                                                           close_connection,
                                                           close_listener,
                                                           nullptr,
                                                           nullptr,
                                                           nullptr,
                                                           end,
                                                           nullptr};
      },
      std::tuple(f...));
}

using Init8 = int (*)(Logger);
using Init10 = int (*)(Logger, Profiler);
using Init11 = int (*)(void**, std::uint64_t, Config*, Logger, Profiler);

}  // namespace

#if !defined(TUTTI_PLUGIN_VERSION)
#define TUTTI_HAS_VERSION(v) 1
#else
#define TUTTI_HAS_VERSION(v) (TUTTI_PLUGIN_VERSION == (v))
#endif

extern "C" {
#if TUTTI_HAS_VERSION(8)
[[gnu::visibility("default")]] extern const auto ncclNetPlugin_v8 =
    plugin(nullptr, static_cast<Init8>(init), &properties<8>, listen_at, connect8, send8, receive8);
#endif
#if TUTTI_HAS_VERSION(9)
[[gnu::visibility("default")]] extern const auto ncclNetPlugin_v9 =
    plugin(nullptr, static_cast<Init8>(init), &properties<9>, listen_at, connect8, send9, receive9);
#endif
#if TUTTI_HAS_VERSION(10)
[[gnu::visibility("default")]] extern const auto ncclNetPlugin_v10 = plugin(
    nullptr, static_cast<Init10>(init), &properties<10>, listen_at, connect10, send10, receive10);
#endif
#if TUTTI_HAS_VERSION(11)
[[gnu::visibility("default")]] extern const auto ncclNetPlugin_v11 = plugin(
    finalize, static_cast<Init11>(init), &properties<11>, listen_in, connect11, send10, receive10);
#endif
#if TUTTI_HAS_VERSION(12)
[[gnu::visibility("default")]] extern const auto ncclNetPlugin_v12 = plugin(
    finalize, static_cast<Init11>(init), &properties<12>, listen_in, connect11, send10, receive10);
#endif
}
