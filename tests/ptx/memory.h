// The memory that PTX sees, as weak as PTX's model of memory allows (PTX ISA, "Memory consistency
// model"), over the real bytes of the test's process.
//
// Plain data has one value that a thread may read without a race: the newest. So a plain access
// goes to the real bytes, and the races are what is looked for (race_cells.h). A word that is
// accessed strongly (relaxed, acquire, release, atomically) has a history: a load reads any write
// that is neither older than one which happened before, nor older than what the thread has read
// before; a store that orders nothing may come before writes that its thread has not seen. So
// stores seem to drain late and out of order, and loads seem to be early. The real bytes are the
// newest write.
//
// Loads may also be late (accesses.cpp). What is stricter than PTX's model: no load is later than
// an acquire, a release or a fence of its thread, and a thread that meets others at a barrier sees
// all that they had read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/ptx/clock.h"
#include "tests/ptx/program.h"
#include "tests/ptx/race_cells.h"
#include "tests/ptx/random.h"

namespace tutti::ptx {

/// Something that must not happen: the text says what and where.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of memory, as a thread of a block sees it.
struct BlockView {
  std::uint32_t index = 0;     // of all that run
  std::uint32_t interval = 0;  // barriers so far, of all blocks with this index
  std::uint32_t gpu = 0;
  Clock known;  // by all its threads
};

/// A strong write. Its thread is nobody if it is older than all of them, or the host's.
struct Message {
  std::uint64_t value = 0, number = 0;
  Moment moment;
  std::shared_ptr<const Clock> view;  // of the thread that acquires it
  Scope scope = Scope::system;        // of that
  bool exchanged = false;             // nothing comes between it and the one before
};

struct ThreadView {
  BlockView* block = nullptr;
  std::uint32_t number = 0;  // Moment::thread
  std::uint32_t tick = 0;
  std::unique_ptr<Clock> own;             // if it knows more than its block
  std::shared_ptr<const Clock> released;  // by its last fence, in this scope
  Scope released_to = Scope::none;
  std::vector<Message> pending;  // what its next fence acquires
  std::uint64_t seen = 0;
  struct Read {
    std::uint64_t address = 0, number = 0;
  };
  Read reads[8];  // the newest of these words that it has read

  const Clock& known() const { return own ? *own : block->known; }
  Moment now() const { return {number, std::uint64_t{block->interval} << 8 | tick}; }
};

class Memory {
 public:
  explicit Memory(std::uint64_t seed) : random_(seed) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Makes [begin, begin + bytes) accessible. `blank`: has no values yet.
  void add(std::byte* begin, std::size_t bytes, bool blank);
  void remove(std::byte* begin);
  /// As if nobody had accessed it.
  void blank(std::byte* begin);

  /// Weak accesses. `op`: for messages.
  void read(ThreadView& t, std::uint64_t address, std::uint32_t bytes, void* to);
  void write(ThreadView& t, std::uint64_t address, std::uint32_t bytes, const void* from);

  /// Strong accesses of 8 bytes. `count` words, in one piece or each by itself.
  void load(ThreadView& t, const std::uint64_t* addresses, std::uint32_t count, bool whole,
            std::uint64_t* values);
  /// One piece of several threads.
  void load_line(ThreadView* const* threads, const std::uint64_t* addresses, std::uint64_t* values);
  void store(ThreadView& t, std::uint64_t address, std::uint64_t value);
  void store_line(ThreadView* const* threads, const std::uint64_t* addresses,
                  const std::uint64_t* values);
  /// `f` makes of the value before the one after; the former is returned.
  template <class F>
  std::uint64_t exchange(ThreadView& t, std::uint64_t address, const F& f) {
    const std::uint64_t before = exchange_begin(t, address);
    exchange_end(t, address, before, f(before));
    return before;
  }
  void fence(ThreadView& t);
  void reseed(std::uint64_t seed) { random_ = Random(seed); }

  /// All threads of a block have met.
  static void meet(BlockView& block, std::vector<ThreadView>& threads);

  /// What the access at hand asks for, and how it is called in a message.
  struct Manner {
    Order order = Order::weak;
    Scope scope = Scope::none;
    std::uint32_t op = 0;
  };
  Manner manner;
  std::function<std::string(std::uint32_t op)> place;
  std::function<std::string(std::uint32_t thread)> who;
  std::vector<std::uint32_t> gpus;  // of blocks, by index
  bool weak = true;                 // false: strong loads read the newest
  bool has_fences = false;          // of the programs
  bool whole_lines = true;          // what a warp accesses of a 128-byte line is one piece

 private:
  struct Region {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    Granule* granules = nullptr;
    std::vector<std::uint8_t> written;  // bits, of what is blank at first
  };
  struct History {
    std::vector<Message> messages;  // the newest last
  };

  [[noreturn]] void fail(const ThreadView& t, const std::string& what) const;
  Region& region(const ThreadView& t, std::uint64_t address, std::uint32_t bytes);
  void check(ThreadView& t, std::uint64_t address, std::uint32_t bytes, bool write);
  Granule& granule(std::uint64_t address);
  History* history(std::uint64_t address);
  History& make_history(std::uint64_t address);
  void forget(Granule& g);
  bool knows(const ThreadView& t, const Message& m) const;
  bool synchronises(const ThreadView& t, const Message& m) const;
  std::uint64_t lowest(const ThreadView& t, const History& h, std::uint64_t address) const;
  std::uint64_t pick(const ThreadView& t, const History& h, std::uint64_t address);
  std::uint64_t read_up_to(ThreadView& t, std::uint64_t address, std::uint64_t number);
  void acquire(ThreadView& t, const Message& m);
  static void remember(ThreadView& t, std::uint64_t address, std::uint64_t number);
  static std::uint64_t remembered(const ThreadView& t, std::uint64_t address);
  std::shared_ptr<const Clock> release(ThreadView& t);
  static Clock& own(ThreadView& t);
  Message message(ThreadView& t, std::uint64_t value);
  void append(std::uint64_t address, History& h, Message m);
  std::uint64_t exchange_begin(ThreadView& t, std::uint64_t address);
  void exchange_end(ThreadView& t, std::uint64_t address, std::uint64_t before,
                    std::uint64_t after);

  std::map<std::uint64_t, Region> regions_;  // by end
  Region* last_ = nullptr;
  std::vector<History> histories_{1};  // 0 is none
  std::vector<std::uint32_t> free_;
  std::uint64_t number_ = 1;
  Clock sequential_;  // what fences of sc order have passed on
  Random random_;
};

}  // namespace tutti::ptx
