// A network plugin of NCCL: a library that brings NCCL, and here Tutti, onto a network (EFA,
// Slingshot, ...). Whatever the version of its interface, this class has one set of calls.
//
// NCCL_NET_PLUGIN says which plugin, as it does for NCCL: the name of a library (a path, if it has
// a slash), or the NAME of libnccl-net-NAME.so; several, separated by commas, are tried in turn;
// none: none. Where it is not set: libnccl-net.so. Of the tables in the library the newest counts.
//
// Nothing waits: a call that cannot be done yet returns null, and is made again. A call that fails
// throws Error(system), which names the plugin, its function, and its last warning. A plugin may be
// used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/netplugin/abi.h"

namespace tutti {

class NetPlugin {
 public:
  struct Device {
    std::string name;
    bool takes_host_memory = false;
    std::size_t most_bytes = 0;  // of a message
  };
  /// By which another rank connects to a listener.
  using Handle = std::array<std::byte, netabi::kHandleBytes>;

  /// Throws Error(system), with what was tried, where there is none that can be used.
  static std::unique_ptr<NetPlugin> load();
  ~NetPlugin();
  NetPlugin(const NetPlugin&) = delete;
  NetPlugin& operator=(const NetPlugin&) = delete;

  /// As it calls itself. All ranks have to use the same.
  const std::string& name() const { return name_; }
  int version() const { return version_; }
  /// For people: the name, the version, and the file.
  std::string description() const;
  /// There is at least one.
  const std::vector<Device>& devices() const { return devices_; }

  // Connections. Each goes in one direction, and keeps the order of its messages.
  void* listen(int device, Handle& handle);
  /// `handle` stays where it is until there is a connection: plugins keep notes in it.
  void* connect(int device, Handle& handle);
  void* accept(void* listener);
  // The ends may be closed with requests under way; those are not asked for any more.
  void close_sender(void* sender);
  void close_receiver(void* receiver);
  void close_listener(void* listener);

  // Messages. All memory is registered with its connection, and is the plugin's until test().
  void* register_memory(void* connection, void* data, std::size_t bytes);
  void deregister(void* connection, void* registration);
  /// At most netabi::kMostRequests are under way on a connection.
  void* send(void* sender, const std::byte* data, std::size_t bytes, void* registration);
  void* receive(void* receiver, std::byte* data, std::size_t bytes, void* registration);
  struct Done {
    bool done = false;
    std::size_t bytes = 0;  // received
  };
  Done test(void* request);

 private:
  struct Library;
  explicit NetPlugin(const Library& library);
  void end();
  static Library& open(const std::string& name, std::string& why_not);
  Device properties(int device) const;
  void check(int status, const char* function) const;

  const netabi::Table* table_;
  int version_;
  std::string name_, file_;
  std::vector<Device> devices_;
  netabi::Config config_;
  void* context_ = nullptr;
};

}  // namespace tutti
