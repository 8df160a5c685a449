// A lane: the records from this rank to one other rank and back, in order. It knows nothing of what
// they mean. On one host a rank writes them into the other's memory. Between hosts they are puts of
// a window, each with a signal. The mail's lock guards it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bindings/mpi/record.h"
#include "tutti.h"

namespace tutti::mpi {

class Lane {
 public:
  Lane(Window& window, WindowShape shape, int own, int peer);

  bool is_near() const { return theirs_ != nullptr; }
  int peer() const { return peer_; }

  /// Writes a record whose payload is `body` and then `data`. False: there is no room for it yet.
  bool write(Header header, std::span<const std::byte> body, std::span<const std::byte> data);
  /// The next record that has come; null: none. read_on() frees it.
  const Header* next();
  void read_on();
  static std::span<const std::byte> payload(const Header& header) {
    return {reinterpret_cast<const std::byte*>(&header) + sizeof header, header.payload};
  }

  /// Wakes the other rank, if it sleeps. After write().
  void wake() const;
  /// Tells the other rank what it must know before it waits for room: see Credit.
  void tell_credit(bool all);
  void took_eager(std::size_t bytes) { eager_taken_ += bytes; }
  /// Bytes of eager messages that the other rank keeps, as no receive has taken them.
  std::uint64_t kept_there() const {
    return eager_sent_ - mine_->eager.load(std::memory_order_acquire);
  }
  void sent_eager(std::size_t bytes) { eager_sent_ += bytes; }

  /// The other rank's process, and whether this one may copy from its memory.
  int pid() const { return pid_; }
  bool may_copy() const { return may_copy_; }
  /// When all ranks have opened the window. `cma`: copying is allowed; `light`: this process has
  /// joined the heavy fences; `ring` wakes this rank when a record has come from another host.
  void meet(bool cma, bool light, std::function<void()> ring);

  /// Whether a record may have come.
  bool has_news() const {
    if (theirs_ == nullptr) return !news_.valid() || news_.ready();
    return std::atomic_ref<const std::uint32_t>(
               *reinterpret_cast<const std::uint32_t*>(ring_ + head_ % shape_.ring))
               .load(std::memory_order_acquire) == next_stamp(read_);
  }
  bool may_have_room() const { return mine_->head.load(std::memory_order_acquire) != known_head_; }

 private:
  void await_news();
  std::byte* room(std::size_t bytes);
  void put_far(const Header& header, std::span<const std::byte> body,
               std::span<const std::byte> data);
  void skip_far(std::size_t bytes);

  Window& window_;
  const WindowShape shape_;
  const int own_, peer_;
  // To the other rank:
  std::byte* theirs_ = nullptr;  // its window, as this process sees it; null: on another host
  const Credit* mine_;           // what it says of the ring there
  std::uint64_t tail_ = 0, known_head_ = 0;
  std::uint32_t written_ = 0;
  std::uint64_t eager_sent_ = 0;
  std::vector<std::byte> staged_;
  // From it:
  const std::byte* ring_;
  std::uint64_t head_ = 0, told_head_ = 0, eager_taken_ = 0, told_eager_ = 0;
  std::uint32_t read_ = 0;
  Future news_;  // of a rank of another host: the next signal, which says that a record has come
  std::function<void()> on_news_;
  bool light_ = false;
  int pid_ = 0;
  bool may_copy_ = false;
};

}  // namespace tutti::mpi
