// What a rank does with buffers that other processes address: any place of theirs, memory that is
// freed while its address is used again, memory that cannot be shared. It looks at the data, and at
// the communicator's counts of what went through windows.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/impl.h"
#include "device/team.h"
#include "tests/device/device_exercises.h"

namespace tutti::test {

class WindowRank {
 public:
  using Memory = Accelerator::Memory;

  /// all_gather and all_to_all, which read others' inputs; or all_reduce, which by
  /// "two_shot_window" also writes others' outputs. The communicator's algorithm is to be one of
  /// those. `alone`: in its process, so that what is counted there is this rank's.
  WindowRank(Communicator& comm, Accelerator& gpu, Tally& tally, bool reduces, bool alone)
      : comm_(comm), gpu_(gpu), tally_(tally), reduces_(reduces), alone_(alone) {
    gpu.adopt(comm);
  }

  /// Buffers that lie elsewhere on each rank, and all in few windows.
  void places() {
    const auto rank = static_cast<std::size_t>(comm_.rank());
    const std::uint64_t opened = comm_.impl().team ? counts().opened.load() : 0;
    std::byte* const one = gpu_.allocate(kMost);
    std::byte* const two = gpu_.allocate(kMost / 2);
    for (const std::size_t count : {1, 1000, 40'001}) {
      // On even ranks both in one window.
      const std::size_t in = 16 * (rank + 1) + 4;
      const std::size_t out = kMost / 2 + 4096 * rank + 8;
      const bool together = rank % 2 == 0;
      go("places", count, one + in, together ? one + out : two + out / 16 * 4, {1, 0});
      go("in place", count, nullptr, one + out, {1, 0});
    }
    expect(counts().opened - opened, rank % 2 == 0 ? 1 : 2, "windows of the allocations");
    release(one);
    release(two);
  }

  /// Freed, and allocated again at the same address.
  void reuse() {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    int same = 0;
    const std::byte* before = nullptr;
    std::byte* at = nullptr;
    for (int i = 0; i < 12; ++i) {
      if (at == nullptr) {
        at = gpu_.allocate(kBytes);
        same += at == before ? 1 : 0;
      }
      go(fmt::format("round {} of memory that is freed", i), 9000, at, at + kBytes / 2, {1, 0});
      go("that again", 9000, at, at + kBytes / 2, {1, 0});
      // On all ranks, or on one.
      if (i % 3 == 0 || comm_.rank() == i % comm_.size()) {
        release(at);
        before = std::exchange(at, nullptr);
      }
    }
    if (at != nullptr) release(at);
    if (same == 0) tally_.count(1, "no address was used again: nothing was tested");
    // Others let go of what is gone.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto open = [&] { return counts().opened - counts().closed; };
    const std::uint64_t left = most_left();
    while (open() > left && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // Before the others open more: some of them may be threads of this process.
    if (open() > left) tally_.count(open(), "windows of memory that is gone are open");
    comm_.barrier();
    const DeviceWindows& windows = *comm_.impl().team->windows();
    const auto most = left * static_cast<std::size_t>(comm_.size());
    while (windows.mapped() > most && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (windows.mapped() > most) tally_.count(windows.mapped(), "and mapped");
  }

  /// One rank's memory cannot be shared, from the first call of a kind on: nobody's is addressed.
  void slots() {
    const bool mine = comm_.rank() == 1;
    const Memory memory = mine ? Memory::unshareable : Memory::shareable;
    std::byte* const bad = gpu_.allocate(kMost, memory);
    std::byte* const good = gpu_.allocate(kMost);
    for (int i = 0; i < 3; ++i) {
      go("rank 1's input cannot be shared", 5000, mine ? bad : good, good + kMost / 2, {0, 0});
      go("rank 1's output cannot be shared", 5000, good, (mine ? bad : good) + kMost / 2, {0, 0});
    }
    // Calls of another kind, and the same memory.
    go("another kind", 300, good, good + kMost / 2, {1, 0});
    gpu_.release(bad, memory);
    release(good);
  }

  /// One rank's memory cannot be shared, though all count on that: it is copied.
  void stages() {
    std::byte* const good = gpu_.allocate(kMost);
    go("what is agreed", 30'000, good, good + kMost / 2, {1, 0});
    for (int odd = 0; odd < comm_.size(); ++odd) {
      const bool mine = comm_.rank() == odd;
      std::byte* const bad = gpu_.allocate(kMost, Memory::unshareable);
      const std::uint64_t copies = mine ? 1 : 0;
      std::byte* const in = mine ? bad : good;
      go("an input is copied", 30'000, in + 4, good + kMost / 2, {1, copies});
      go("an output is copied", 30'000, good, in + kMost / 2 + 12, {1, copies});
      go("both are copied", 30'000, in + 8, in + kMost / 2, {1, 2 * copies});
      go("both, in place", 30'000, nullptr, in, {1, 2 * copies});
      go("smaller ones", 20'000, in + 8, in + kMost / 2, {1, 2 * copies});
      gpu_.release(bad, Memory::unshareable);
    }
    release(good);
  }

  /// Recorded once and run often, buffers that are new to all.
  void graph() {
    std::byte* const at = gpu_.allocate(kMost);
    const std::vector<std::int32_t> in = input(comm_.rank(), 2500);
    gpu_.write(at, in.data(), in.size() * 4);
    const Call call = call_for(2500, at, at + kMost / 2);
    const std::uint64_t before = counts().calls;
    gpu_.repeat(50, [&] { comm_.run(call, gpu_.stream()); });
    check("a graph", 2500, at + kMost / 2);
    if (counts().calls == before) tally_.count(1, "a graph did not go through windows");
    release(at);
  }

  /// Rank 0 says of its memory what is not true: nobody believes it, and all goes on.
  void lies() {
    if (comm_.impl().group->one_process()) return;  // there is nobody to believe it
    std::byte* const at = gpu_.allocate(kMost);
    go("before", 1000, at, at + kMost / 2, {1, 0});
    wait_until_nothing_closes();
    comm_.barrier();
    if (comm_.rank() == 0) {
      DeviceWindowBoard& board = *comm_.impl().team->windows()->board();
      const CudaExport e = comm_.impl().gpus.open(0)->share(at, kMost);
      CudaMemoryHandle larger = e.handle;
      larger.bytes *= 1000;
      CudaMemoryHandle elsewhere = e.handle;
      elsewhere.offset = 64;
      for (const CudaMemoryHandle& handle : {larger, elsewhere, CudaMemoryHandle{}}) {
        const FileDescriptor none;
        board.post({900, true, handle}, handle.kinds != 0 ? e.fd : none);
        while (board.awaited() >= 0) std::this_thread::yield();
        if (!board.refused()) tally_.count(1, "a handle that is wrong was taken");
      }
    }
    go("after", 1000, at, at + kMost / 2, {1, 0});
  }
  /// And this ends the communicator.
  void lie(std::uint32_t window) {
    DeviceWindowBoard& board = *comm_.impl().team->windows()->board();
    const CudaExport e = comm_.impl().gpus.open(0)->share(gpu_.allocate(kMost), kMost);
    board.post({window, true, e.handle}, e.fd);
  }

 private:
  struct Expected {
    std::uint64_t calls, staged;  // of the counts
  };

  /// Windows of this process that other exercises leave open: tmp, and those of ranks that are on.
  std::uint64_t most_left() const {
    const RankGroup& group = *comm_.impl().group;
    std::uint64_t ranks = 0;
    for (int r = 0; r < group.size(); ++r) ranks += group.same_process(r) ? 1 : 0;
    return 2 + 2 * ranks;
  }
  /// The thread that closes windows of memory that is gone posts on the same board.
  void wait_until_nothing_closes() {
    constexpr auto kQuiet = std::chrono::milliseconds(100);  // it looks every 20 ms
    std::uint64_t closed = counts().closed;
    auto since = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - since < kQuiet) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (closed == counts().closed) continue;
      closed = counts().closed;
      since = std::chrono::steady_clock::now();
    }
  }
  DeviceWindows::Counts& counts() { return comm_.impl().team->windows()->counts(); }
  void expect(std::uint64_t found, std::uint64_t expected, const std::string& what) {
    if (alone_ && found != expected) {
      tally_.count(1, fmt::format("{}: {} instead of {}", what, found, expected));
    }
  }
  /// After everybody's calls.
  void release(std::byte* at) {
    gpu_.synchronize();
    gpu_.release(at, Memory::shareable);
  }

  std::vector<std::int32_t> input(int rank, std::size_t count) const {
    std::vector<std::int32_t> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = static_cast<std::int32_t>(1'000'003 * static_cast<std::size_t>(rank + 1) + 31 * i +
                                          7919 * round_);
    }
    return data;
  }
  std::vector<std::int32_t> output(std::size_t count) const {
    std::vector<std::int32_t> all(reduces_ ? count : 0);
    for (int r = 0; r < comm_.size(); ++r) {
      const auto in = input(r, count);
      if (!reduces_) all.insert(all.end(), in.begin(), in.end());
      for (std::size_t i = 0; reduces_ && i < count; ++i) all[i] += in[i];
    }
    return all;
  }
  Call call_for(std::size_t count, const std::byte* in, std::byte* out) const {
    Call call;
    call.collective = reduces_ ? Collective::all_reduce : Collective::all_gather;
    call.in = in;
    call.out = out;
    call.count = count;
    call.type = DataType::int32;
    return call;
  }
  void check(const std::string& what, std::size_t count, const std::byte* out) {
    const auto expected = output(count);
    std::vector<std::int32_t> found(expected.size());
    gpu_.read(found.data(), out, found.size() * 4);
    std::size_t bad = 0;
    for (std::size_t i = 0; i < found.size(); ++i) bad += found[i] != expected[i] ? 1 : 0;
    tally_.count(bad, fmt::format("{}, {} elements", what, count));
  }

  /// One collective with fresh data; `in` null: in place.
  void go(const std::string& what, std::size_t count, std::byte* in, std::byte* out, Expected e) {
    ++round_;
    const std::vector<std::int32_t> guard(4, 0x5EED);
    const std::size_t outs = 4 * count * static_cast<std::size_t>(reduces_ ? 1 : comm_.size());
    const auto data = input(comm_.rank(), count);
    if (in == nullptr) {
      in = reduces_ ? out : out + 4 * count * static_cast<std::size_t>(comm_.rank());
    }
    gpu_.write(out + outs, guard.data(), 16);
    gpu_.write(in, data.data(), 4 * count);
    const bool first = comm_.impl().team == nullptr;
    const std::uint64_t calls = first ? 0 : counts().calls.load();
    const std::uint64_t staged = first ? 0 : counts().staged.load();
    comm_.run(call_for(count, in, out), gpu_.stream());
    check(what, count, out);
    std::vector<std::int32_t> after(4);
    gpu_.read(after.data(), out + outs, 16);
    if (after != guard) tally_.count(1, what + ": what lies behind the output has changed");
    expect(counts().calls - calls, e.calls, what + ": calls through windows");
    expect(counts().staged - staged, e.staged, what + ": copied buffers");
  }

  Communicator& comm_;
  Accelerator& gpu_;
  Tally& tally_;
  bool reduces_, alone_;
  std::size_t round_ = 0;
};

}  // namespace tutti::test
