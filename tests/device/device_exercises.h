// What a rank does with buffers in a GPU's memory, and counts of it that is wrong: collectives,
// graphs and messages, on whatever accelerator.h stands for.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/data.h"
#include "comm/communicator.h"
#include "tests/device/accelerator.h"

namespace tutti::test {

inline constexpr std::size_t kMost = std::size_t{4} << 20;  // bytes of a buffer

/// What was wrong.
struct Tally {
  std::size_t elements = 0;
  std::string first;  // in words

  void count(std::size_t wrong, const std::string& what) {
    if (wrong > 0 && first.empty()) first = fmt::format("{}: {} wrong elements", what, wrong);
    elements += wrong;
  }
};

class DeviceRank {
 public:
  DeviceRank(Communicator& comm, Accelerator& gpu, Tally& tally)
      : comm_(comm),
        gpu_(gpu),
        tally_(tally),
        send_(gpu.allocate(kMost)),
        receive_(gpu.allocate(kMost)) {
    gpu.adopt(comm);
  }

  // --- Collectives -------------------------------------------------------------------------------

  /// Every collective, four types, three operators, in and out of place; all bits of both buffers.
  void matrix() {
    int root = 0;
    for (int c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      if (collective == Collective::barrier || collective == Collective::send_recv) continue;
      if (is_v(collective) && collective != Collective::all_to_all_v) continue;
      for (const DataType type :
           {DataType::int8, DataType::int64, DataType::bfloat16, DataType::float32}) {
        for (const ReduceKind kind :
             {ReduceKind::sum, ReduceKind::pre_multiplied_sum, ReduceKind::avg}) {
          if (!is_reduction(collective) && kind != ReduceKind::sum) break;
          for (const std::size_t bytes : {8, 1000, 40'000, 300'008}) {
            const bool in_place = has_in_place(collective) && (bytes / 8 + root) % 2 == 1;
            run(collective, type, kind, bytes, root++ % comm_.size(), in_place);
          }
        }
      }
    }
  }

  /// The sum of `count` int32s: `times` times, as a graph. All of them the same.
  void graph(int times, std::size_t count) {
    std::vector<std::int32_t> data(count, comm_.rank() + 1);
    gpu_.write(send_, data.data(), count * 4);
    comm_.run(sum(count), gpu_.stream());  // so that everything is allocated
    gpu_.repeat(times, [&] { comm_.run(sum(count), gpu_.stream()); });
    check_sum(count, "a graph");
  }
  void graphs() {
    graph(100, 1000);
    graph(gpu_.many_launches(), 50'000);
  }

  Call sum(std::size_t elements) const {
    Call call;
    call.collective = Collective::all_reduce;
    call.in = send_;
    call.out = receive_;
    call.count = elements;
    call.type = DataType::int32;
    return call;
  }
  /// Of inputs that are rank + 1 everywhere.
  void check_sum(std::size_t elements, const std::string& what) {
    std::vector<std::int32_t> data(elements);
    gpu_.read(data.data(), receive_, elements * 4);
    std::size_t bad = 0;
    for (const std::int32_t x : data) bad += x != comm_.size() * (comm_.size() + 1) / 2 ? 1 : 0;
    tally_.count(bad, what);
  }
  void run_sum(std::size_t elements, const std::string& what) {
    const std::vector<std::int32_t> data(elements, comm_.rank() + 1);
    gpu_.write(send_, data.data(), elements * 4);
    comm_.run(sum(elements), gpu_.stream());
    check_sum(elements, what);
  }

  // --- Messages ----------------------------------------------------------------------------------

  /// Ranks 0 and 1 talk, while no other rank has called anything.
  void pair() {
    if (comm_.rank() == 0) send(1, 0, 5000);
    if (comm_.rank() == 1) receive(0, 0, 5000);
  }
  void ring() {
    for (const std::size_t bytes : {1, 1000, 65536, 65537, 3'000'000}) pass_on(bytes, bytes);
  }
  /// To the next rank, from the one before: `bytes`, all zeros from `zeros` on.
  void pass_on(std::size_t bytes, std::size_t zeros) {
    const int n = comm_.size();
    const int next = (comm_.rank() + 1) % n;
    const int previous = (comm_.rank() + n - 1) % n;
    paint(send_, comm_.rank(), next, bytes, zeros);
    group([&] {
      comm_.run(message(true, next, send_, bytes), gpu_.stream());
      comm_.run(message(false, previous, receive_, bytes), gpu_.stream());
    });
    compare(receive_, previous, comm_.rank(), bytes, zeros);
  }
  /// Sizes about those of slots, messages that are zeros at their end or all over, and sums; in an
  /// order in which slots are used anew for less.
  void boundaries() {
    for (const std::size_t at : {std::size_t{131'072}, std::size_t{32'768}, std::size_t{64}}) {
      for (const std::size_t slots : {9, 4, 1}) {
        for (const std::size_t bytes : {slots * at - 1, slots * at, slots * at + 1}) {
          for (const std::size_t zeros : {bytes, bytes / 2, std::size_t{0}, bytes - 1}) {
            pass_on(bytes, zeros);
          }
          run_sum(bytes / 4, "a sum");
        }
      }
    }
  }
  /// Everybody to everybody, itself included.
  void all_to_all() {
    const int n = comm_.size();
    const std::size_t most = kMost / static_cast<std::size_t>(n) / 64 * 64;
    const auto bytes = [&](int from, int to) {
      return std::min<std::size_t>(most,
                                   1 + 30'000 * static_cast<std::size_t>((from + 2 * to) % n));
    };
    const auto at = [&](std::byte* buffer, int peer) {
      return buffer + most * static_cast<std::size_t>(peer);
    };
    for (int p = 0; p < n; ++p) paint(at(send_, p), comm_.rank(), p, bytes(comm_.rank(), p));
    group([&] {
      for (int p = 0; p < n; ++p) {
        comm_.run(message(true, p, at(send_, p), bytes(comm_.rank(), p)), gpu_.stream());
        comm_.run(message(false, p, at(receive_, p), bytes(p, comm_.rank())), gpu_.stream());
      }
    });
    for (int p = 0; p < n; ++p) compare(at(receive_, p), p, comm_.rank(), bytes(p, comm_.rank()));
  }
  void send(int to, int number, std::size_t bytes) {
    paint(send_, comm_.rank() + number, to, bytes);
    comm_.run(message(true, to, send_, bytes), gpu_.stream());
  }
  void receive(int from, int number, std::size_t bytes) {
    comm_.run(message(false, from, receive_, bytes), gpu_.stream());
    compare(receive_, from + number, comm_.rank(), bytes);
  }

 private:
  void run(Collective collective, DataType type, ReduceKind kind, std::size_t bytes, int root,
           bool in_place) {
    const int n = comm_.size();
    perf::CallSetup setup;
    setup.collective = collective;
    setup.shape = perf::shape_of(collective, bytes, type, n);
    setup.type = type;
    setup.ranks = n;
    setup.rank = comm_.rank();
    setup.root = is_rooted(collective) ? root : 0;
    setup.in_place = in_place;
    const bool reduces = is_reduction(collective);
    const perf::Data data(
        {type, reduces ? std::optional(kind) : std::nullopt, n, static_cast<std::uint64_t>(root)});
    const std::size_t element = size_of(type);
    const std::size_t guard = 256 / element;
    const perf::Expectation expected = perf::expectation(setup, guard);
    std::vector<std::byte> image;
    const auto paint = [&](const perf::Image& i, std::byte* to) {
      image.resize(i.elements * element);
      perf::paint(data, i, image.data());
      gpu_.write(to, image.data(), image.size());
    };
    const auto bad = [&](const perf::Image& i, const std::byte* from) {
      image.resize(i.elements * element);
      gpu_.read(image.data(), from, image.size());
      return perf::count_wrong(data, i, image.data());
    };
    paint(expected.send, send_);
    paint(expected.receive_before, receive_);
    Call call;
    call.collective = collective;
    call.in = (in_place ? receive_ + perf::in_place_input(setup) * element : send_) + 256;
    call.out = receive_ + (in_place ? perf::in_place_output(setup) * element : 0) + 256;
    call.count = setup.shape.count;
    call.type = type;
    call.op = data.op(comm_.rank());
    call.root = setup.root;
    std::vector<std::size_t> ins, outs;
    for (int p = 0; p < n && collective == Collective::all_to_all_v; ++p) {
      ins.push_back(perf::all_to_all_v_count(comm_.rank(), p, setup.shape.count, type, n));
      outs.push_back(perf::all_to_all_v_count(p, comm_.rank(), setup.shape.count, type, n));
    }
    call.in_counts = ins;
    call.out_counts = outs;
    comm_.run(call, gpu_.stream());
    const std::size_t elements = bad(expected.send, send_) + bad(expected.receive_after, receive_);
    tally_.count(elements, fmt::format("{} {} {} x {}, root {}, {}", name(collective),
                                       reduces ? name(kind) : "", name(type), setup.shape.count,
                                       root, in_place ? "in place" : "out of place"));
  }

  static Call message(bool sends, int peer, std::byte* buffer, std::size_t bytes) {
    Call call;
    call.collective = Collective::send_recv;
    if (sends) {
      call.in = buffer;
    } else {
      call.out = buffer;
    }
    call.count = bytes;
    call.peer = peer;
    call.sends = sends;
    return call;
  }
  static std::vector<std::uint8_t> pattern(int from, int to, std::size_t bytes,
                                           std::size_t zeros = kMost) {
    std::vector<std::uint8_t> data(bytes);
    for (std::size_t i = 0; i < std::min(bytes, zeros); ++i) {
      data[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + bytes +
                                          static_cast<std::size_t>(50 * from + 13 * to));
    }
    return data;
  }
  void paint(std::byte* at, int from, int to, std::size_t bytes, std::size_t zeros = kMost) {
    gpu_.write(at, pattern(from, to, bytes, zeros).data(), bytes);
  }
  void compare(const std::byte* at, int from, int to, std::size_t bytes,
               std::size_t zeros = kMost) {
    const auto expected = pattern(from, to, bytes, zeros);
    std::vector<std::uint8_t> data(bytes);
    gpu_.read(data.data(), at, bytes);
    std::size_t bad = 0;
    for (std::size_t i = 0; i < bytes; ++i) bad += data[i] != expected[i] ? 1 : 0;
    tally_.count(bad,
                 fmt::format("a message of {} bytes from rank {} to rank {}", bytes, from, to));
  }

  Communicator& comm_;
  Accelerator& gpu_;
  Tally& tally_;
  std::byte* send_;
  std::byte* receive_;
};

}  // namespace tutti::test
