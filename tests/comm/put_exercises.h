// What tests of windows do on all ranks of a communicator, be they threads, processes or hosts.
// Every byte that is put tells its writer, its receiver, its time and its place. The rank that
// waits for the signal looks at all of them. Faults are thrown.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tutti.h"

namespace tutti::test {

/// Where the memory of a window comes from.
enum class PutMemory : std::uint8_t { owned, allocated, registered, plain };

/// Memory of a kind, and the window in which a communicator has it. The window ends first.
class PutWindow {
 public:
  PutWindow(Communicator& comm, PutMemory kind, std::size_t bytes);
  ~PutWindow();
  PutWindow(PutWindow&&) = default;

  Window& operator*() { return window_; }
  Window* operator->() { return &window_; }
  std::byte* data() { return data_; }

 private:
  PutMemory kind_;
  std::unique_ptr<std::byte, void (*)(std::byte*)> block_;
  std::byte* data_ = nullptr;
  Window window_;
};

/// The byte at `position` of message `message` from rank `from` to rank `to`.
std::byte put_value(int from, int to, std::uint64_t message, std::size_t position);

/// All ranks put to all, with windows of different sizes; no other byte changes.
void put_all_to_all(Communicator& comm, PutMemory kind);
/// Puts of many sizes to the next rank, one after the other, each with its signal; the next rank
/// looks at once.
void put_in_order(Communicator& comm, PutMemory kind, int rounds);
/// More puts of a size than a network has room for, then a signal, and at once a wait for the
/// answer.
void put_many(Communicator& comm);
/// Random puts, signals and waits between all ranks, blocking, started and in groups, among
/// collectives, through windows that come and go. The same `seed` on all ranks.
void put_storm(Communicator& comm, std::uint64_t seed, std::chrono::milliseconds time);

}  // namespace tutti::test
