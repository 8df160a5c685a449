// Memory as C++ threads may see it (RC11: C++20 without load buffering). Each atomic word has its
// stores in modification order. A thread may read every store that it does not know to be
// overwritten, and what it knows is a view: for each word the place in that order, for each thread
// how far that one had come. Stores hand on views, and loads and fences take them in, as their
// orders say. So a stale value is a choice, which the explorer makes (explorer.h).
//
// A plain access is checked against all plain and atomic accesses of its bytes that do not come
// before it: a data race is a failure.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti::model {

inline constexpr std::size_t kMostThreads = 5;

/// Makes the choices of an execution: a number below `ways`. 0 is the usual way.
using Choose = std::size_t (*)(std::size_t ways);

/// What is known of how far all threads have come (the first kMostThreads entries), and all words.
class View {
 public:
  std::uint64_t operator[](std::size_t n) const { return n < times_.size() ? times_[n] : 0; }
  void raise(std::size_t n, std::uint64_t time) {
    if (n >= times_.size()) times_.resize(n + 1);
    times_[n] = std::max(times_[n], time);
  }
  /// Of the words alone where `first` is kMostThreads.
  void join(const View& other, std::size_t first = 0) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (std::size_t n = first; n < other.times_.size(); ++n) {
      times_[n] = std::max(times_[n], other.times_[n]);
    }
  }

 private:
  std::vector<std::uint64_t> times_;
};

class Memory {
 public:
  explicit Memory(Choose choose) : choose_(choose) {}
  /// Begins an execution of `threads` threads, before which everything was written.
  void begin(std::size_t threads);

  std::uint64_t load(std::size_t thread, std::uintptr_t at, std::size_t bytes,
                     std::memory_order order);
  void store(std::size_t thread, std::uintptr_t at, std::size_t bytes, std::uint64_t value,
             std::memory_order order);
  /// Returns what was there, and stores `change(that)`.
  template <class Change>
  std::uint64_t modify(std::size_t thread, std::uintptr_t at, std::size_t bytes,
                       std::memory_order order, Change change) {
    Word& word = word_at(thread, at, bytes, true);
    const std::size_t read = pick(word, lowest(thread, word, order), true, nullptr);
    const std::uint64_t found = word.stores[read].value;
    take(thread, word, read, order);
    put(thread, word, read, change(found), order, true);
    return found;
  }
  /// A weak one may fail without a reason.
  bool exchange(std::size_t thread, std::uintptr_t at, std::size_t bytes, std::uint64_t& expected,
                std::uint64_t value, std::memory_order order, std::memory_order otherwise,
                bool weak);
  void fence(std::size_t thread, std::memory_order order);
  /// An asymmetric fence: one of two that meet is a heavy one.
  void light_fence(std::size_t thread);
  void heavy_fence(std::size_t thread);
  /// What lies in `view` has come before `thread` (or the other way).
  void acquire(std::size_t thread, const View& view) { take_in(thread, view); }
  View release(std::size_t thread);
  /// Time has passed: `thread` finds no older value of a word than the one that it has now.
  void refresh(std::size_t thread);

  void plain(std::size_t thread, std::uintptr_t at, std::size_t bytes, bool writes);
  /// How many there were so far.
  std::uint64_t stores() const { return stores_; }
  /// The first data race; empty: there was none.
  const std::string& race() const { return race_; }

 private:
  struct Store {
    std::uint64_t time = 0;
    std::uint64_t value = 0;
    bool follows =
        false;  // nothing may come between the one before and this one, which has read it
    View view;
  };
  using Clocks = std::array<std::uint64_t, kMostThreads>;
  struct Word {
    std::size_t number = 0;  // in views
    std::uintptr_t at = 0;
    std::size_t bytes = 0;
    std::vector<Store> stores;      // in modification order
    std::uint64_t newest_time = 0;  // also of stores that a plain store has ended
    Clocks loaded{}, stored{};      // by each thread, last
  };
  struct Byte {
    std::uint64_t time = 0;  // of the last store
    std::size_t thread = 0;
    Clocks loaded{};
  };
  struct Thread {
    View now;       // what it knows
    View loaded;    // what it would know after an acquire fence
    View released;  // what its relaxed stores hand on
    View arrived;   // the words that have come to it by now, in whatever order they were stored
  };

  Word& word_at(std::size_t thread, std::uintptr_t at, std::size_t bytes, bool stores);
  std::uint64_t lowest(std::size_t thread, const Word& word, std::memory_order order) const;
  std::size_t pick(const Word& word, std::uint64_t lowest, bool modifies,
                   const std::uint64_t* expected);
  bool is_open_after(const Word& word, std::size_t n) const {
    return n + 1 == word.stores.size() ||
           (!word.stores[n + 1].follows && word.stores[n + 1].time - word.stores[n].time > 1);
  }
  void take(std::size_t thread, const Word& word, std::size_t n, std::memory_order order);
  void put(std::size_t thread, Word& word, std::size_t after, std::uint64_t value,
           std::memory_order order, bool modifies);
  void take_in(std::size_t thread, const View& view);
  void step(std::size_t thread);
  bool comes_before(const Clocks& clocks, std::size_t thread) const;
  void found_race(std::uintptr_t at, std::size_t thread);

  Choose choose_;
  std::size_t count_ = 0, next_number_ = kMostThreads;
  std::array<Thread, kMostThreads> threads_;
  View order_;          // what sequentially consistent operations have seen, in their one order
  View light_, heavy_;  // what asymmetric fences of a kind have seen
  std::unordered_map<std::uintptr_t, Word> words_;
  std::unordered_map<std::uintptr_t, Byte> bytes_;
  std::uint64_t stores_ = 0;
  std::string race_;
};

}  // namespace tutti::model
