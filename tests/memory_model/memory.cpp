// See memory.h.
#include "tests/memory_model/memory.h"

#include <fmt/format.h>

namespace tutti::model {
namespace {

constexpr std::uint64_t kGap = std::uint64_t{1} << 24;  // room for stores that come between
constexpr std::size_t kWordsOnly = kMostThreads;

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_consume ||
         order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

// memcpy() would be the program's (hooks.cpp).
template <class Use>
void with_type(std::size_t bytes, Use use) {
  switch (bytes) {
    case 1:
      return use(std::uint8_t{});
    case 2:
      return use(std::uint16_t{});
    case 4:
      return use(std::uint32_t{});
    default:
      return use(std::uint64_t{});
  }
}

std::uint64_t in_memory(std::uintptr_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  with_type(bytes, [&]<class T>(T) { value = *reinterpret_cast<const T*>(at); });
  return value;
}

void set_in_memory(std::uintptr_t at, std::size_t bytes, std::uint64_t value) {
  with_type(bytes, [&]<class T>(T) { *reinterpret_cast<T*>(at) = static_cast<T>(value); });
}

}  // namespace

void Memory::begin(std::size_t threads) {
  count_ = threads;
  threads_ = {};
  for (std::size_t t = 0; t < threads; ++t) threads_[t].now.raise(t, 1);
  order_ = light_ = heavy_ = {};
  next_number_ = kMostThreads;
  words_.clear();
  bytes_.clear();
  stores_ = 0;
  race_.clear();
}

void Memory::step(std::size_t thread) {
  Thread& t = threads_[thread];
  t.now.raise(thread, t.now[thread] + 1);
}

bool Memory::comes_before(const Clocks& clocks, std::size_t thread) const {
  for (std::size_t t = 0; t < count_; ++t) {
    if (t != thread && clocks[t] > threads_[thread].now[t]) return false;
  }
  return true;
}

void Memory::found_race(std::uintptr_t at, std::size_t thread) {
  if (race_.empty()) race_ = fmt::format("data race of thread {} at {:#x}", thread, at);
}

Memory::Word& Memory::word_at(std::size_t thread, std::uintptr_t at, std::size_t bytes,
                              bool stores) {
  Word& word = words_[at];
  if (word.bytes == 0) {
    word.number = next_number_++;
    word.at = at;
    word.bytes = bytes;
  }
  if (word.bytes != bytes) found_race(at, thread);  // halves of atomic words are no words
  if (word.stores.empty()) {
    word.newest_time += kGap;
    word.stores.push_back({word.newest_time, in_memory(at, bytes), false, {}});
  }
  for (std::uintptr_t b = at; b < at + bytes; ++b) {
    const auto byte = bytes_.find(b);
    if (byte == bytes_.end()) continue;
    Clocks written{};
    written[byte->second.thread] = byte->second.time;
    if (!comes_before(written, thread)) found_race(b, thread);
    if (stores && !comes_before(byte->second.loaded, thread)) found_race(b, thread);
  }
  (stores ? word.stored : word.loaded)[thread] = threads_[thread].now[thread];
  return word;
}

std::uint64_t Memory::lowest(std::size_t thread, const Word& word, std::memory_order order) const {
  const Thread& t = threads_[thread];
  const std::uint64_t known = std::max(t.now[word.number], t.arrived[word.number]);
  return order == std::memory_order_seq_cst ? std::max(known, order_[word.number]) : known;
}

/// A store from `lowest` on, newest first. `modifies`: one after which another may come, unless
/// `expected` is not what it has stored.
std::size_t Memory::pick(const Word& word, std::uint64_t lowest, bool modifies,
                         const std::uint64_t* expected) {
  std::array<std::size_t, 64> found;
  std::size_t count = 0;
  for (std::size_t n = word.stores.size(); n-- > 0 && count < found.size();) {
    const Store& s = word.stores[n];
    if (s.time < lowest) break;
    const bool is_taken = modifies && (expected == nullptr || s.value == *expected);
    if (!is_taken || is_open_after(word, n)) found[count++] = n;
  }
  return found[count > 1 ? choose_(count) : 0];
}

void Memory::take_in(std::size_t thread, const View& view) {
  threads_[thread].now.join(view);
  threads_[thread].loaded.join(threads_[thread].now);
}

void Memory::take(std::size_t thread, const Word& word, std::size_t n, std::memory_order order) {
  Thread& t = threads_[thread];
  const Store& s = word.stores[n];
  t.now.raise(word.number, s.time);
  t.loaded.join(s.view);
  t.loaded.raise(word.number, s.time);
  if (acquires(order)) take_in(thread, s.view);
  if (order == std::memory_order_seq_cst) order_.raise(word.number, s.time);
}

void Memory::put(std::size_t thread, Word& word, std::size_t after, std::uint64_t value,
                 std::memory_order order, bool modifies) {
  Thread& t = threads_[thread];
  const bool is_last = after + 1 == word.stores.size();
  const std::uint64_t before = word.stores[after].time;
  Store s;
  s.time = is_last ? before + kGap : before + (word.stores[after + 1].time - before) / 2;
  s.value = value;
  s.follows = modifies;
  t.now.raise(word.number, s.time);
  t.loaded.join(t.now);
  s.view = releases(order) ? t.now : t.released;
  if (modifies) s.view.join(word.stores[after].view);  // a release sequence goes on
  s.view.raise(word.number, s.time);
  if (order == std::memory_order_seq_cst) order_.raise(word.number, s.time);
  word.stores.insert(word.stores.begin() + static_cast<std::ptrdiff_t>(after) + 1, std::move(s));
  word.newest_time = word.stores.back().time;
  set_in_memory(word.at, word.bytes, word.stores.back().value);
  ++stores_;
  step(thread);
}

std::uint64_t Memory::load(std::size_t thread, std::uintptr_t at, std::size_t bytes,
                           std::memory_order order) {
  const Word& word = word_at(thread, at, bytes, false);
  const std::size_t n = pick(word, lowest(thread, word, order), false, nullptr);
  take(thread, word, n, order);
  return word.stores[n].value;
}

void Memory::store(std::size_t thread, std::uintptr_t at, std::size_t bytes, std::uint64_t value,
                   std::memory_order order) {
  Word& word = word_at(thread, at, bytes, true);
  put(thread, word, pick(word, lowest(thread, word, order), true, nullptr), value, order, false);
}

bool Memory::exchange(std::size_t thread, std::uintptr_t at, std::size_t bytes,
                      std::uint64_t& expected, std::uint64_t value, std::memory_order order,
                      std::memory_order otherwise, bool weak) {
  Word& word = word_at(thread, at, bytes, true);
  const std::size_t n = pick(word, lowest(thread, word, order), true, &expected);
  const std::uint64_t found = word.stores[n].value;
  const bool stores = found == expected && !(weak && choose_(2) == 1);
  take(thread, word, n, stores ? order : otherwise);
  if (stores) put(thread, word, n, value, order, true);
  expected = found;
  return stores;
}

void Memory::fence(std::size_t thread, std::memory_order order) {
  Thread& t = threads_[thread];
  if (acquires(order)) t.now.join(t.loaded);
  if (order == std::memory_order_seq_cst) {
    t.now.join(order_, kWordsOnly);
    order_.join(t.now, kWordsOnly);
  }
  t.loaded.join(t.now);
  if (releases(order)) t.released = t.now;
  step(thread);
}

void Memory::light_fence(std::size_t thread) {
  Thread& t = threads_[thread];
  t.now.join(heavy_, kWordsOnly);
  t.loaded.join(t.now);
  light_.join(t.now, kWordsOnly);
}

void Memory::heavy_fence(std::size_t thread) {
  Thread& t = threads_[thread];
  t.now.join(light_, kWordsOnly);
  fence(thread, std::memory_order_seq_cst);
  heavy_.join(t.now, kWordsOnly);
}

void Memory::refresh(std::size_t thread) {
  for (const auto& [at, word] : words_) {
    if (!word.stores.empty()) {
      threads_[thread].arrived.raise(word.number, word.stores.back().time);
    }
  }
}

View Memory::release(std::size_t thread) {
  View view = threads_[thread].now;
  step(thread);
  return view;
}

void Memory::plain(std::size_t thread, std::uintptr_t at, std::size_t bytes, bool writes) {
  for (std::uintptr_t w = at >= 7 ? at - 7 : 0; w < at + bytes; ++w) {
    const auto found = words_.find(w);
    if (found == words_.end() || w + found->second.bytes <= at) continue;
    Word& word = found->second;
    if (!comes_before(word.stored, thread) || (writes && !comes_before(word.loaded, thread))) {
      found_race(w, thread);
    }
    if (writes) word.stores.clear();  // the next atomic access finds what is there now
  }
  const std::uint64_t now = threads_[thread].now[thread];
  for (std::uintptr_t b = at; b < at + bytes; ++b) {
    Byte& byte = bytes_[b];
    Clocks written{};
    written[byte.thread] = byte.time;
    if (!comes_before(written, thread) || (writes && !comes_before(byte.loaded, thread))) {
      found_race(b, thread);
    }
    if (writes) {
      byte.time = now;
      byte.thread = thread;
    } else {
      byte.loaded[thread] = now;
    }
  }
}

}  // namespace tutti::model
