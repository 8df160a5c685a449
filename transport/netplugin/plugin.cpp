#include "transport/netplugin/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/log.h"

namespace tutti {
namespace {

using namespace netabi;

/// Calls what takes just these arguments.
template <class... Arguments>
int call(Untyped function, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

// --- What a plugin says --------------------------------------------------------------------------

std::mutex warning_mutex;
std::string last_warning;

[[gnu::format(printf, 5, 6)]] void hear(int level, unsigned long, const char*, int,
                                        const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  std::string_view line(text.data());
  while (line.ends_with('\n')) line.remove_suffix(1);
  constexpr int kWarning = 2;
  if (level > kWarning) return log().debug("network plugin: {}", line);
  log().info("network plugin: {}", line);
  const std::lock_guard lock(warning_mutex);
  last_warning = line;
}

constexpr int kNoDevice = 7;  // no status of a plugin

int ignore_event(void**, int, void*, std::int64_t, void*) { return 0; }

std::string_view text_of(int status) {
  constexpr std::array<std::string_view, 8> kTexts{
      "success",          "GPU error",     "system error", "internal error",
      "invalid argument", "invalid usage", "remote error", "it has none"};
  return status >= 0 && status < int(kTexts.size()) ? kTexts[std::size_t(status)] : "unknown error";
}

[[noreturn]] void throw_failure(const std::string& plugin, const char* function, int status) {
  std::string said;
  {
    const std::lock_guard lock(warning_mutex);
    said = std::exchange(last_warning, {});
  }
  throw Error(ErrorCode::system, fmt::format("the network plugin {} failed in {}(): {} ({}){}{}",
                                             plugin, function, text_of(status), status,
                                             said.empty() ? "" : "; its last warning was: ", said));
}

// --- Which it is ---------------------------------------------------------------------------------

std::vector<std::string> asked_for() {
  const char* const list = std::getenv("NCCL_NET_PLUGIN");
  if (list == nullptr) return {"libnccl-net.so"};
  std::vector<std::string> names;
  for (std::string_view rest(list); !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (comma > 0) names.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return names == std::vector<std::string>{"none"} ? std::vector<std::string>{} : names;
}

/// The files that a name may mean.
std::vector<std::string> files_of(const std::string& name) {
  const bool is_file =
      name.find('/') != std::string::npos || (name.starts_with("lib") && name.ends_with(".so"));
  if (is_file) return {name};
  return {name, fmt::format("libnccl-net-{}.so", name)};
}

bool is_complete(const Table& t) {
  return t.name != nullptr && t.init != nullptr && t.devices != nullptr &&
         t.get_properties != nullptr && t.listen != nullptr && t.connect != nullptr &&
         t.accept != nullptr && t.register_memory != nullptr && t.deregister != nullptr &&
         t.send != nullptr && t.receive != nullptr && t.test != nullptr &&
         t.close_sender != nullptr && t.close_receiver != nullptr && t.close_listener != nullptr;
}

}  // namespace

/// Stays loaded: a plugin may have threads, and memory of other libraries.
struct NetPlugin::Library {
  const Table* table = nullptr;
  int version = 0;
  std::string file;
  bool begun = false;  // before version 11: once in a process
};

NetPlugin::Library& NetPlugin::open(const std::string& name, std::string& why_not) {
  static std::map<std::string, Library> opened;
  Library& library = opened[name];
  if (library.table != nullptr) return library;
  for (const std::string& file : files_of(name)) {
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      why_not += fmt::format("; {}", dlerror());
      continue;
    }
    const link_map* map = nullptr;
    library.file = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : file;
    for (int version = kNewest; version >= kOldest; --version) {
      const std::string symbol = fmt::format("ncclNetPlugin_v{}", version);
      const auto* const table = static_cast<const Table*>(dlsym(handle, symbol.c_str()));
      if (table == nullptr) continue;
      if (is_complete(*table)) {
        library.table = table;
        library.version = version;
        return library;
      }
      why_not += fmt::format("; {} of {} lacks functions", symbol, library.file);
    }
    why_not +=
        fmt::format("; {} has none of ncclNetPlugin_v{} to v{}", library.file, kOldest, kNewest);
  }
  return library;
}

std::unique_ptr<NetPlugin> NetPlugin::load() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::vector<std::string> names = asked_for();
  if (names.empty()) {
    throw Error(ErrorCode::system, "NCCL_NET_PLUGIN=none: no network plugin is to be used");
  }
  std::string why_not;
  for (const std::string& name : names) {
    Library& library = open(name, why_not);
    if (library.table == nullptr) continue;
    try {
      std::unique_ptr<NetPlugin> plugin(new NetPlugin(library));
      library.begun = true;
      return plugin;
    } catch (const Error& error) {
      why_not += fmt::format("; {}", error.what());
    }
  }
  throw Error(
      ErrorCode::system,
      fmt::format("there is no network plugin that can be used{}. NCCL_NET_PLUGIN names one, "
                  "LD_LIBRARY_PATH says where it may lie",
                  why_not));
}

NetPlugin::NetPlugin(const Library& library)
    : table_(library.table),
      version_(library.version),
      name_(library.table->name),
      file_(library.file) {
  occupy_standard_descriptors();
  const Log log = hear;
  const Profile profile = ignore_event;
  if (version_ >= 11) {
    check(call(table_->init, &context_, std::uint64_t{0}, &config_, log, profile), "init");
  } else if (!library.begun) {
    check(version_ == 10 ? call(table_->init, log, profile) : call(table_->init, log), "init");
  }
  try {
    name_ = table_->name;  // some know it now only
    int count = 0;
    check(table_->devices(&count), "devices");
    for (int device = 0; device < count; ++device) devices_.push_back(properties(device));
    if (devices_.empty()) throw_failure(description(), "devices", kNoDevice);
  } catch (...) {
    end();
    throw;
  }
}

NetPlugin::~NetPlugin() { end(); }

void NetPlugin::end() {
  if (version_ >= 11 && table_->finalize != nullptr) table_->finalize(context_);
}

std::string NetPlugin::description() const {
  return fmt::format("{} (v{}, {})", name_, version_, file_);
}

void NetPlugin::check(int status, const char* function) const {
  if (status != 0) throw_failure(description(), function, status);
}

NetPlugin::Device NetPlugin::properties(int device) const {
  const auto get = [&](auto properties, std::size_t most_bytes) {
    check(call(table_->get_properties, device, &properties), "getProperties");
    const auto& p = properties;
    if constexpr (requires { p.most_bytes; }) most_bytes = p.most_bytes;
    return Device{p.name != nullptr ? p.name : "?",
                  (p.memory_kinds & kHostMemory) != 0 && p.offload == kNoOffload, most_bytes};
  };
  if (version_ >= 12) return get(Properties9<8>{}, 0);
  if (version_ >= 9) return get(Properties9<4>{}, 0);
  return get(Properties8{}, std::size_t{1} << 30);  // an int counts them
}

// --- Connections ---------------------------------------------------------------------------------

void* NetPlugin::listen(int device, Handle& handle) {
  void *const to = handle.data(), *listener = nullptr;
  check(version_ >= 11 ? call(table_->listen, context_, device, to, &listener)
                       : call(table_->listen, device, to, &listener),
        "listen");
  return listener;
}

void* NetPlugin::connect(int device, Handle& handle) {
  void *const to = handle.data(), *sender = nullptr, *offloaded = nullptr;
  check(version_ >= 11   ? call(table_->connect, context_, device, to, &sender, &offloaded)
        : version_ == 10 ? call(table_->connect, device, &config_, to, &sender, &offloaded)
                         : call(table_->connect, device, to, &sender, &offloaded),
        "connect");
  return sender;
}

void* NetPlugin::accept(void* listener) {
  void *receiver = nullptr, *offloaded = nullptr;
  check(table_->accept(listener, &receiver, &offloaded), "accept");
  return receiver;
}

void NetPlugin::close_sender(void* sender) { check(table_->close_sender(sender), "closeSend"); }
void NetPlugin::close_receiver(void* receiver) {
  check(table_->close_receiver(receiver), "closeRecv");
}
void NetPlugin::close_listener(void* listener) {
  check(table_->close_listener(listener), "closeListen");
}

// --- Messages ------------------------------------------------------------------------------------

void* NetPlugin::register_memory(void* connection, void* data, std::size_t bytes) {
  void* registration = nullptr;
  check(table_->register_memory(connection, data, bytes, kHostMemory, &registration), "regMr");
  return registration;
}

void NetPlugin::deregister(void* connection, void* registration) {
  check(table_->deregister(connection, registration), "deregMr");
}

void* NetPlugin::send(void* sender, const std::byte* data, std::size_t bytes, void* registration) {
  void *const from = const_cast<std::byte*>(data), *request = nullptr, *event = nullptr;
  const int tag = 0, bytes8 = static_cast<int>(bytes);
  check(version_ >= 10 ? call(table_->send, sender, from, bytes, tag, registration, event, &request)
        : version_ == 9 ? call(table_->send, sender, from, bytes, tag, registration, &request)
                        : call(table_->send, sender, from, bytes8, tag, registration, &request),
        "isend");
  return request;
}

void* NetPlugin::receive(void* receiver, std::byte* data, std::size_t bytes, void* registration) {
  void *to = data, *request = nullptr, *event = nullptr;
  int tag = 0, bytes8 = static_cast<int>(bytes);
  const Untyped function = table_->receive;
  check(version_ >= 10
            ? call(function, receiver, 1, &to, &bytes, &tag, &registration, &event, &request)
        : version_ == 9 ? call(function, receiver, 1, &to, &bytes, &tag, &registration, &request)
                        : call(function, receiver, 1, &to, &bytes8, &tag, &registration, &request),
        "irecv");
  return request;
}

NetPlugin::Done NetPlugin::test(void* request) {
  int done = 0, bytes = 0;
  check(table_->test(request, &done, &bytes), "test");
  return {done != 0, static_cast<std::size_t>(bytes)};
}

}  // namespace tutti
