// The collectives as the *_perf programs see them; see benchmark.h.
#include "bench/perf/benchmark.h"

#include <utility>

namespace tutti::perf {

namespace {

// Whether a rank's larger buffer consists of one block for every rank.
bool has_blocks(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

std::size_t round_down_to_16_bytes(std::size_t count, DataType type) {
  const std::size_t multiple = 16 / size_of(type);
  return count / multiple * multiple;
}

int previous(const CallSetup& setup) { return (setup.rank + setup.ranks - 1) % setup.ranks; }
int next(const CallSetup& setup) { return (setup.rank + 1) % setup.ranks; }

// Where the data for `to` starts in the input of `from`.
std::size_t all_to_all_v_offset(int from, int to, const CallSetup& setup) {
  std::size_t offset = 0;
  for (int rank = 0; rank < to; ++rank) {
    offset += all_to_all_v_count(from, rank, setup.shape.count, setup.type, setup.ranks);
  }
  return offset;
}

bool is_root(const CallSetup& setup) { return setup.rank == setup.root; }

bool has_input(const CallSetup& setup) {
  return is_root(setup) ||
         (setup.collective != Collective::broadcast && setup.collective != Collective::scatter);
}

// The result of the call, as patches of the receive buffer. Where the call has none (reduce and
// gather away from the root), nothing may change.
std::vector<Patch> result_of(const CallSetup& setup) {
  const std::size_t count = setup.shape.count;
  const std::size_t base = setup.in_place ? in_place_output(setup) : 0;
  std::vector<Patch> patches;
  switch (setup.collective) {
    case Collective::all_reduce:
      patches.push_back({Content::reduction, 0, base, count, 0});
      break;
    case Collective::reduce:
      if (is_root(setup)) patches.push_back({Content::reduction, 0, base, count, 0});
      break;
    case Collective::reduce_scatter:
      patches.push_back(
          {Content::reduction, 0, base, count, static_cast<std::uint64_t>(setup.rank) * count});
      break;
    case Collective::broadcast:
      patches.push_back({Content::input, setup.root, base, count, 0});
      break;
    case Collective::scatter:
      patches.push_back({Content::input, setup.root, base, count,
                         static_cast<std::uint64_t>(setup.rank) * count});
      break;
    case Collective::gather:
      if (!is_root(setup)) break;
      [[fallthrough]];
    case Collective::all_gather:
      for (int rank = 0; rank < setup.ranks; ++rank) {
        patches.push_back(
            {Content::input, rank, base + static_cast<std::size_t>(rank) * count, count, 0});
      }
      break;
    case Collective::all_to_all:
      for (int rank = 0; rank < setup.ranks; ++rank) {
        patches.push_back({Content::input, rank, base + static_cast<std::size_t>(rank) * count,
                           count, static_cast<std::uint64_t>(setup.rank) * count});
      }
      break;
    case Collective::all_to_all_v: {
      std::size_t at = base;
      for (int rank = 0; rank < setup.ranks; ++rank) {
        const std::size_t part =
            all_to_all_v_count(rank, setup.rank, count, setup.type, setup.ranks);
        patches.push_back(
            {Content::input, rank, at, part, all_to_all_v_offset(rank, setup.rank, setup)});
        at += part;
      }
      break;
    }
    default:  // send_recv
      patches.push_back({Content::input, previous(setup), base, count, 0});
      break;
  }
  return patches;
}

}  // namespace

std::string_view program_name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce_perf";
    case Collective::all_gather:
      return "all_gather_perf";
    case Collective::reduce_scatter:
      return "reduce_scatter_perf";
    case Collective::broadcast:
      return "broadcast_perf";
    case Collective::reduce:
      return "reduce_perf";
    case Collective::gather:
      return "gather_perf";
    case Collective::scatter:
      return "scatter_perf";
    case Collective::all_to_all:
      return "alltoall_perf";
    case Collective::all_to_all_v:
      return "alltoallv_perf";
    case Collective::send_recv:
      return "sendrecv_perf";
    default:
      return "";
  }
}

Shape shape_of(Collective collective, std::size_t bytes, DataType type, int ranks) {
  const std::size_t elements = bytes / size_of(type);
  if (!has_blocks(collective)) return {elements, elements, elements};
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t count = round_down_to_16_bytes(elements / n, type);
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {count, count, count * n};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {count, count * n, count};
    case Collective::all_to_all_v: {
      std::size_t sum = 0;  // the same on all ranks: the distances are
      for (int to = 0; to < ranks; ++to) sum += all_to_all_v_count(0, to, count, type, ranks);
      return {count, sum, sum};
    }
    default:
      return {count, count * n, count * n};
  }
}

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  if (collective == Collective::all_reduce) return 2 * (n - 1) / n;
  return has_blocks(collective) ? (n - 1) / n : 1;
}

std::size_t all_to_all_v_count(int from, int to, std::size_t count, DataType type, int ranks) {
  if (ranks == 1) return count;
  const auto distance = static_cast<std::size_t>((to - from + ranks) % ranks);
  // 2 * distance / (ranks - 1) averages to 1. Divided first: `count` may be large.
  const auto steps = static_cast<std::size_t>(ranks) - 1;
  const std::size_t part = count / steps * (2 * distance) + count % steps * (2 * distance) / steps;
  return round_down_to_16_bytes(part, type);
}

std::size_t in_place_input(const CallSetup& setup) {
  const bool inside =
      setup.collective == Collective::all_gather || setup.collective == Collective::gather;
  return inside ? static_cast<std::size_t>(setup.rank) * setup.shape.count : 0;
}

std::size_t in_place_output(const CallSetup& setup) {
  const bool inside =
      setup.collective == Collective::reduce_scatter || setup.collective == Collective::scatter;
  return inside ? static_cast<std::size_t>(setup.rank) * setup.shape.count : 0;
}

Expectation expectation(const CallSetup& setup, std::size_t guard) {
  std::vector<Patch> input;
  if (has_input(setup)) {
    const std::size_t at = setup.in_place ? in_place_input(setup) : 0;
    input.push_back({Content::input, setup.rank, at, setup.shape.in, 0});
  }
  std::vector<Patch> before = setup.in_place ? input : std::vector<Patch>{};
  std::vector<Patch> after = before;
  for (const Patch& patch : result_of(setup)) after.push_back(patch);
  if (setup.in_place) input.clear();

  const auto image = [&](std::size_t elements, std::vector<Patch> patches) {
    for (Patch& patch : patches) patch.at += guard;
    return Image{elements + 2 * guard, std::move(patches)};
  };
  const std::size_t receive = setup.in_place ? setup.shape.largest() : setup.shape.out;
  return {image(setup.in_place ? 0 : setup.shape.in, std::move(input)),
          image(receive, std::move(before)), image(receive, std::move(after))};
}

BoundCall::BoundCall(const CallSetup& setup, ReduceOp op) : in_place_(setup.in_place) {
  if (in_place_) {
    in_offset_ = in_place_input(setup) * size_of(setup.type);
    out_offset_ = in_place_output(setup) * size_of(setup.type);
  }
  Call call;
  call.collective = setup.collective;
  call.count = setup.shape.count;
  call.type = setup.type;
  call.op = op;
  call.compressed = setup.compressed;
  if (is_rooted(setup.collective)) call.root = setup.root;
  if (setup.collective == Collective::all_to_all_v) {
    for (int rank = 0; rank < setup.ranks; ++rank) {
      in_counts_.push_back(
          all_to_all_v_count(setup.rank, rank, call.count, setup.type, setup.ranks));
      out_counts_.push_back(
          all_to_all_v_count(rank, setup.rank, call.count, setup.type, setup.ranks));
    }
    call.count = 0;
    call.in_counts = in_counts_;
    call.out_counts = out_counts_;
  }
  calls_.push_back(call);
  if (setup.collective == Collective::send_recv) {
    calls_.push_back(call);
    calls_[0].sends = true;
    calls_[0].peer = next(setup);
    calls_[1].peer = previous(setup);
  }
}

std::span<const Call> BoundCall::on(std::byte* send, std::byte* receive) {
  const std::byte* const in = (in_place_ ? receive : send) + in_offset_;
  std::byte* const out = receive + out_offset_;
  calls_.front().in = in;
  calls_.back().out = out;
  return calls_;
}

}  // namespace tutti::perf
