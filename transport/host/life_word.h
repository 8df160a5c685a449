// A word in shared memory that tells the other processes of a host whether a rank is still there.
//
// The word is a robust futex (set_robust_list(2)): when the process ends, however it ends, the
// kernel marks the word. So a rank costs its neighbours no descriptor, and a process reads memory
// to know which ranks are gone. A thread of the process holds the words, as the kernel marks those
// of a thread that ends; that thread sleeps until the process ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/host/shared_memory.h"

namespace tutti {

struct LifeWord {
  LifeWord* next;  // the kernel's list of the words of its thread, in that process's addresses
  std::atomic<std::uint32_t> word;
  std::uint32_t unused;

  enum class State : std::uint8_t { unborn, absent, alive, left, ended };
  /// acquire: what the rank did before it left is seen.
  State state() const;
  /// Another rank says that this one, where it is unborn, is absent: it never takes the word any
  /// more. True where it is absent from now on.
  bool shut_out();
};
static_assert(sizeof(LifeWord) == 16);

inline bool is_gone(LifeWord::State state) { return state >= LifeWord::State::left; }

/// Holds a word for this process, for as long as it lives; then the word says that the rank has
/// left. A child by fork() neither holds nor ends it.
class Life {
 public:
  /// `word` lies in `memory`. Throws Error(system) where the system has no robust futexes.
  Life(LifeWord& word, std::shared_ptr<SharedMemory> memory);
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  /// False: another rank has said before that this one is absent.
  bool is_held() const { return is_held_; }

 private:
  LifeWord& word_;
  const std::shared_ptr<SharedMemory> memory_;
  const std::uint32_t generation_;
  const bool is_held_;
};

}  // namespace tutti
