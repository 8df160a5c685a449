// Ranks that repeat calls whose buffers lie in windows, until those of one rank, or of all, lie
// there no more, and back: nobody is told. Then each call has windows of its own, which are freed
// right after it. Exits with 1 when a result is wrong.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tutti.h"

namespace {

constexpr std::size_t kCount = 20'011;  // large enough that windows are used
constexpr std::size_t kPage = 4096;
constexpr auto kType = tutti::DataType::int32;

/// Buffers in windows, and others.
struct Memory {
  explicit Memory(std::size_t count)
      : bytes((count * sizeof(std::int32_t) + kPage - 1) / kPage * kPage),
        plain(static_cast<std::int32_t*>(std::aligned_alloc(kPage, bytes))),
        window(static_cast<std::int32_t*>(tutti::allocate(bytes))) {}
  ~Memory() {
    std::free(plain);
    tutti::deallocate(window);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::int32_t* at(bool in_window) { return in_window ? window : plain; }
  /// What is in no window comes to be in one.
  void register_plain() { tutti::register_memory(plain, bytes); }
  void unregister_plain() { tutti::unregister_memory(plain); }
  /// The window is another one.
  void renew() {
    tutti::deallocate(window);
    window = static_cast<std::int32_t*>(tutti::allocate(bytes));
  }

  std::size_t bytes;
  std::int32_t* plain;
  std::int32_t* window;
};

class WindowRank {
 public:
  explicit WindowRank(tutti::Communicator& comm)
      : comm_(comm),
        ranks_(static_cast<std::size_t>(comm.size())),
        in_(ranks_ * kCount),
        out_(ranks_ * kCount) {}

  /// `calls` of each, with this rank's input and output in windows or not; in place: the input
  /// lies where the output does.
  void run(int calls, bool in_window, bool out_window, bool in_place, const char* what) {
    for (int call = 0; call < calls; ++call, ++salt_) {
      all_reduce(in_window, out_window, in_place, what);
      all_gather(in_window, out_window, in_place, what);
      reduce_scatter(in_window, out_window, what);
      all_to_all(in_window, out_window, what);
      broadcast(out_window, what);
    }
  }
  void register_plain() {
    in_.register_plain();
    out_.register_plain();
  }
  void unregister_plain() {
    in_.unregister_plain();
    out_.unregister_plain();
  }
  /// Rounds of all collectives, each in windows of its own: a rank that is late may still hear of
  /// one when its owner has freed it.
  void run_fresh(int rounds) {
    const auto renew = [&] {
      in_.renew();
      out_.renew();
      ++salt_;
    };
    const char* const what = "in fresh windows";
    for (int round = 0; round < rounds; ++round) {
      renew();
      gather(what);
      renew();
      scatter(what);
      renew();
      broadcast(true, what);
      renew();
      reduce(what);
      renew();
      run(1, true, true, false, what);
    }
  }
  std::size_t wrong() const { return wrong_; }

 private:
  std::int32_t value(std::size_t rank, std::size_t i) const {
    return static_cast<std::int32_t>(1'000'000 * (rank + 1) + 7 * i + 100 * salt_);
  }
  std::int32_t sum(std::size_t i) const {
    std::int32_t all = 0;
    for (std::size_t r = 0; r < ranks_; ++r) all += value(r, i);
    return all;
  }
  std::size_t me() const { return static_cast<std::size_t>(comm_.rank()); }
  void fill(std::int32_t* at, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) at[i] = value(me(), i);
  }
  void check(const std::int32_t* out, std::size_t count,
             const std::function<std::int32_t(std::size_t)>& expected, const char* collective,
             const char* what) {
    for (std::size_t i = 0; i < count; ++i) {
      if (out[i] == expected(i)) continue;
      if (wrong_++ == 0) {
        fmt::print(stderr, "rank {}: {}, call {}, {}: element {} is {} instead of {}\n", me(),
                   collective, salt_, what, i, out[i], expected(i));
      }
    }
  }

  void all_reduce(bool in_window, bool out_window, bool in_place, const char* what) {
    std::int32_t* const out = out_.at(out_window);
    std::int32_t* const in = in_place ? out : in_.at(in_window);
    fill(in, kCount);
    comm_.all_reduce(in, out, kCount, kType);
    check(
        out, kCount, [&](std::size_t i) { return sum(i); }, "all_reduce", what);
  }
  void all_gather(bool in_window, bool out_window, bool in_place, const char* what) {
    std::int32_t* const out = out_.at(out_window);
    std::int32_t* const in = in_place ? out + me() * kCount : in_.at(in_window);
    fill(in, kCount);
    comm_.all_gather(in, out, kCount, kType);
    const auto expected = [&](std::size_t i) { return value(i / kCount, i % kCount); };
    check(out, ranks_ * kCount, expected, "all_gather", what);
  }
  void reduce_scatter(bool in_window, bool out_window, const char* what) {
    std::int32_t* const in = in_.at(in_window);
    std::int32_t* const out = out_.at(out_window);
    fill(in, ranks_ * kCount);
    comm_.reduce_scatter(in, out, kCount, kType);
    const auto expected = [&](std::size_t i) { return sum(me() * kCount + i); };
    check(out, kCount, expected, "reduce_scatter", what);
  }
  void all_to_all(bool in_window, bool out_window, const char* what) {
    std::int32_t* const in = in_.at(in_window);
    std::int32_t* const out = out_.at(out_window);
    fill(in, ranks_ * kCount);
    comm_.all_to_all(in, out, kCount, kType);
    const auto expected = [&](std::size_t i) {
      return value(i / kCount, me() * kCount + i % kCount);
    };
    check(out, ranks_ * kCount, expected, "all_to_all", what);
  }
  void broadcast(bool in_window, const char* what) {
    std::int32_t* const at = in_.at(in_window);
    const int root = 1 % comm_.size();
    std::memset(at, 0xEE, kCount * sizeof(std::int32_t));
    if (comm_.rank() == root) fill(at, kCount);
    comm_.broadcast(at, at, kCount, kType, root);
    const auto expected = [&](std::size_t i) { return value(static_cast<std::size_t>(root), i); };
    check(at, kCount, expected, "broadcast", what);
  }

  void gather(const char* what) {
    fill(in_.window, kCount);
    comm_.gather(in_.window, out_.window, kCount, kType, 0);
    const auto expected = [&](std::size_t i) { return value(i / kCount, i % kCount); };
    if (me() == 0) check(out_.window, ranks_ * kCount, expected, "gather", what);
  }
  void scatter(const char* what) {
    fill(in_.window, ranks_ * kCount);
    comm_.scatter(in_.window, out_.window, kCount, kType, 0);
    const auto expected = [&](std::size_t i) { return value(0, me() * kCount + i); };
    check(out_.window, kCount, expected, "scatter", what);
  }
  void reduce(const char* what) {
    fill(in_.window, kCount);
    comm_.reduce(in_.window, out_.window, kCount, kType, {}, 0);
    const auto expected = [&](std::size_t i) { return sum(i); };
    if (me() == 0) check(out_.window, kCount, expected, "reduce", what);
  }

  tutti::Communicator& comm_;
  std::size_t ranks_;
  Memory in_, out_;
  std::size_t salt_ = 0;
  std::size_t wrong_ = 0;
};

}  // namespace

int main() {
  try {
    auto comm = tutti::Communicator::from_environment();
    WindowRank rank(comm);
    for (int odd = 0; odd < comm.size(); ++odd) {
      const bool mine = comm.rank() == odd;
      // Long enough that the ranks do not ask each other any more; and, of 70, that they ask again.
      rank.run(20, true, true, false, "all in windows");
      rank.run(3, !mine, true, false, "one input is not");
      rank.run(3, true, !mine, false, "one output is not");
      rank.run(3, true, !mine, true, "one buffer in place is not");
      rank.run(70, !mine, !mine, false, "one rank's are not");
      rank.run(20, true, true, true, "all in windows again, in place");
      rank.run(70, false, false, true, "none");
      rank.register_plain();
      rank.run(70, false, false, false, "all are registered");  // they ask again
      if (mine) rank.unregister_plain();
      rank.run(70, false, false, true, "one rank's are no longer registered");
      rank.unregister_plain();
      rank.run(3, false, false, false, "none is registered");
    }
    rank.run_fresh(100);
    return rank.wrong() == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
