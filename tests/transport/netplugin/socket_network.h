// The network of the plugin for tests: connections over the loopback device, and no better than a
// network is. socket_plugin.cpp gives it the interface of NCCL.
//
// It is strict where plugins are: memory has to be registered with its connection, for as long as
// it is in use; a connection has room for so many requests; a message must fit where it is
// received; two threads must not use one connection at once. It writes a few bytes at a time, now
// and then it says "not now", and it takes in nothing that no receive was posted for.
//
// Of its environment: TUTTI_TEST_PLUGIN_FAIL=function[:n] has the n-th call of that function fail,
// TUTTI_TEST_PLUGIN_STALL=n lets no request after the n-th be done.
#pragma once

#include <cstddef>

namespace tutti::test {

enum Status : int { kSuccess = 0, kSystem = 2, kInternal = 3, kUsage = 5, kRemote = 6 };
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

extern Logger logger;
template <class... Values>
int fail(Status status, const char* format, Values... values) {
  if (logger != nullptr) logger(2, ~0UL, __FILE__, __LINE__, format, values...);
  return status;
}

/// Whether a test wants this call to go wrong.
bool is_to_fail(const char* function);

// The functions that are the same in all versions of the interface.
int devices(int* count);
int listen_at(int device, void* handle, void** listener);
int connect_to(int device, void* handle, void** sender);
int accept_one(void* listener, void** receiver, void**);
int register_memory(void* connection, void* data, std::size_t bytes, int kind, void** handle);
int deregister(void* connection, void* handle);
int send_message(void* sender, void* data, std::size_t bytes, void* memory, void** request);
int receive_message(void* receiver, void* data, std::size_t bytes, void* memory, void** request);
int test(void* request, int* done, int* bytes);
int close_connection(void* connection);
int close_listener(void* listener);

}  // namespace tutti::test
