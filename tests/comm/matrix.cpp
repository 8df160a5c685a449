#include "tests/comm/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "bench/perf/benchmark.h"
#include "bench/perf/buffer.h"
#include "bench/perf/data.h"
#include "tests/comm/uneven.h"

namespace tutti::test {
namespace {

using perf::Buffer;
using perf::Data;
using Setup = perf::CallSetup;

constexpr std::size_t kGuardBytes = 256;

bool has_blocks(Collective c, bool out) {
  return (out ? out_blocks(c, 2, 0, 0) : in_blocks(c, 2, 0, 0)) > 1;
}

perf::Shape shape(Collective c, std::size_t count, DataType type, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (c == Collective::all_to_all_v) {
    std::size_t sum = 0;
    for (int to = 0; to < ranks; ++to) sum += perf::all_to_all_v_count(0, to, count, type, ranks);
    return {count, sum, sum};
  }
  return {count, has_blocks(c, false) ? count * n : count, has_blocks(c, true) ? count * n : count};
}

class Bench {
 public:
  Bench(Communicator& comm, const Matrix& matrix, std::size_t bytes)
      : comm_(comm),
        matrix_(matrix),
        send_(bytes + 2 * kGuardBytes + 64, matrix.window_memory),
        receive_(bytes + 2 * kGuardBytes + 64, matrix.window_memory) {}

  void run(const Setup& setup, std::optional<ReduceKind> kind) {
    const Data data({setup.type, kind, setup.ranks, ++seed_});
    const std::size_t guard = kGuardBytes / size_of(setup.type);
    const perf::Expectation expected = perf::expectation(setup, guard);
    std::byte* send = start(send_, setup.type);
    std::byte* receive = start(receive_, setup.type);
    perf::paint(data, expected.send, send - kGuardBytes);
    perf::paint(data, expected.receive_before, receive - kGuardBytes);
    perf::BoundCall bound(setup, data.op(setup.rank));
    const std::span<const Call> calls = bound.on(send, receive);
    if (calls.size() == 1) {
      comm_.run(calls.front());
    } else {
      group([&] {
        for (const Call& call : calls) comm_.run(call);
      });
    }
    count(setup, kind,
          perf::count_wrong(data, expected.send, send - kGuardBytes) +
              perf::count_wrong(data, expected.receive_after, receive - kGuardBytes));
  }

  /// all_gather_v and reduce_scatter_v, packed and in place.
  void run_uneven(const Setup& setup, std::optional<ReduceKind> kind) {
    const Data data({setup.type, kind, setup.ranks, ++seed_});
    const UnevenCall u = uneven_call(setup, kGuardBytes / size_of(setup.type));
    std::byte* s = start(send_, setup.type);
    std::byte* r = start(receive_, setup.type);
    perf::paint(data, u.images.send, s - kGuardBytes);
    perf::paint(data, u.images.receive_before, r - kGuardBytes);
    std::byte* in = (setup.in_place ? r : s) + u.in_offset * size_of(setup.type);
    std::byte* out = r + u.out_offset * size_of(setup.type);
    if (setup.collective == Collective::all_gather_v) {
      comm_.all_gather_v(in, out, u.counts, {}, setup.type);
    } else {
      comm_.reduce_scatter_v(in, u.counts, {}, out, setup.type, data.op(setup.rank));
    }
    count(setup, kind,
          perf::count_wrong(data, u.images.send, s - kGuardBytes) +
              perf::count_wrong(data, u.images.receive_after, r - kGuardBytes));
  }

  Tally tally;

 private:
  std::byte* start(const Buffer& b, DataType type) const {
    return b.data() + kGuardBytes + matrix_.misalign * size_of(type);
  }

  void count(const Setup& setup, std::optional<ReduceKind> kind, std::size_t wrong) {
    ++tally.calls;
    if (wrong == 0) return;
    ++tally.wrong;
    if (!tally.first.empty()) return;
    tally.first = fmt::format("rank {} of {}: {} {} {} x {}, root {}, {}: {} wrong elements",
                              setup.rank, setup.ranks, name(setup.collective),
                              kind ? name(*kind) : "", name(setup.type), setup.shape.count,
                              setup.root, setup.in_place ? "in place" : "out of place", wrong);
  }

  Communicator& comm_;
  const Matrix& matrix_;
  Buffer send_, receive_;
  std::uint64_t seed_ = 0;
};

template <class T>
std::vector<T> all_unless(const std::vector<T>& chosen, int number) {
  if (!chosen.empty()) return chosen;
  std::vector<T> all;
  for (int i = 0; i < number; ++i) all.push_back(static_cast<T>(i));
  return all;
}

}  // namespace

std::vector<std::size_t> boundary_sizes(const Options& options) {
  std::set<std::size_t> sizes = {0, 1, 2, 3, 7, 13, 16, 31, 100, 1000};
  const std::size_t slot = options.slot_bytes > 0 ? options.slot_bytes : std::size_t{64} << 10;
  for (const std::size_t boundary :
       {std::size_t{48}, std::size_t{64}, std::size_t{4096}, slot, 2 * slot, std::size_t{8} << 10,
        std::size_t{16} << 10, std::size_t{32} << 10, std::size_t{128} << 10,
        std::size_t{256} << 10}) {
    for (const std::size_t off :
         {boundary - 8, boundary - 1, boundary, boundary + 1, boundary + 8}) {
      sizes.insert(off);
    }
  }
  return {sizes.begin(), sizes.end()};
}

Tally run_matrix(Communicator& comm, const Matrix& matrix) {
  const int n = comm.size();
  std::size_t most = 0;
  for (const std::size_t b : matrix.bytes) most = std::max(most, b);
  // all_to_all_v and the uneven counts use up to twice the block.
  Bench bench(comm, matrix, (most + 16) * static_cast<std::size_t>(n) * 3);
  int root = 0;
  std::uint64_t cases = 0;
  for (const Collective c : all_unless(matrix.collectives, kCollectives)) {
    if (c == Collective::barrier) continue;
    const bool v = c == Collective::all_gather_v || c == Collective::reduce_scatter_v;
    std::vector<std::optional<ReduceKind>> kinds{std::nullopt};
    if (is_reduction(c)) {
      kinds.clear();
      for (const ReduceKind k : all_unless(matrix.kinds, kReduceKinds)) kinds.emplace_back(k);
    }
    for (const DataType type : all_unless(matrix.types, kDataTypes)) {
      for (const auto kind : kinds) {
        std::size_t last = SIZE_MAX;
        for (const std::size_t bytes : matrix.bytes) {
          const std::size_t elements = (bytes + size_of(type) - 1) / size_of(type);
          if (elements == last) continue;
          last = elements;
          for (const bool in_place : {false, true}) {
            if (in_place && !has_in_place(c)) continue;
            if (cases++ % matrix.every != 0) continue;
            Setup setup;
            setup.collective = c;
            setup.shape = shape(c, elements, type, n);
            setup.type = type;
            setup.ranks = n;
            setup.rank = comm.rank();
            setup.root = is_rooted(c) ? matrix.root.value_or(root++ % n) : 0;
            setup.in_place = in_place;
            if (v) {
              bench.run_uneven(setup, kind);
            } else {
              bench.run(setup, kind);
            }
          }
        }
      }
    }
  }
  return bench.tally;
}

}  // namespace tutti::test
