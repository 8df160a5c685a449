// What the ranks of a host that meet say to each other in shared memory: whether they are there
// (life_word.h), and which communicators they will not join. Each rank has a place on the board.
// The board exists before any communicator of these ranks, and as long as one of them knows
// another.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "transport/host/connection.h"
#include "transport/host/life_word.h"
#include "transport/host/shared_memory.h"

namespace tutti {

class HostBoard {
 public:
  static constexpr char kLabel[] = "tutti-host";
  /// The bytes of a board for so many ranks.
  static std::size_t bytes(std::size_t ranks) {
    return sizeof(Head) + ranks * (sizeof(LifeWord) + sizeof(Refusals));
  }

  HostBoard(std::shared_ptr<SharedMemory> memory, std::size_t ranks)
      : memory_(std::move(memory)),
        head_(reinterpret_cast<Head*>(memory_->data())),
        lives_(reinterpret_cast<LifeWord*>(head_ + 1)),
        refusals_(reinterpret_cast<Refusals*>(lives_ + ranks)) {}

  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  LifeWord& life(int place) const { return lives_[place]; }

  /// Place `place` will not join communicator `id`, because of the rank `because_of` (identities;
  /// 0: for other reasons). One writer for a place. The newest kKept stay.
  void refuse(int place, std::uint64_t id, std::uint64_t because_of) {
    Refusals& r = refusals_[place];
    Refusal& next = r.kept[r.count.fetch_add(1, std::memory_order_relaxed) % kKept];
    next.id.store(0, std::memory_order_relaxed);
    // release, twice: a reader that finds the id finds what belongs to it.
    next.because_of.store(because_of, std::memory_order_release);
    next.id.store(id, std::memory_order_release);
    head_->refusals.fetch_add(1, std::memory_order_release);
  }
  /// Whether any place has refused any communicator.
  bool has_refusals() const { return head_->refusals.load(std::memory_order_acquire) > 0; }
  /// The rank because of which place `place` will not join communicator `id`; none: it has not said
  /// so.
  std::optional<std::uint64_t> refusal(int place, std::uint64_t id) const {
    for (const Refusal& r : refusals_[place].kept) {
      if (r.id.load(std::memory_order_acquire) != id) continue;
      const std::uint64_t because_of = r.because_of.load(std::memory_order_acquire);
      if (r.id.load(std::memory_order_relaxed) == id) return because_of;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kKept = 11;
  struct Refusal {
    std::atomic<std::uint64_t> id, because_of;
  };
  struct Refusals {
    std::atomic<std::uint64_t> count;
    std::uint64_t unused;
    std::array<Refusal, kKept> kept;
  };
  static_assert(sizeof(Refusals) % kCacheLine == 0);

  struct alignas(kCacheLine) Head {
    std::atomic<std::uint64_t> refusals;
  };

  std::shared_ptr<SharedMemory> memory_;
  Head* head_;
  LifeWord* lives_;
  Refusals* refusals_;
};

}  // namespace tutti
