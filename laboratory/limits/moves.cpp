// Plain loops; see moves.h.
#include "laboratory/limits/moves.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
// The loader picks the widest version that the machine has.
#define TUTTI_WIDEST [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define TUTTI_WIDEST
#endif

namespace tutti::peers {
namespace {

/// A cache line of floats, which the compiler maps to the machine's registers.
using Line [[gnu::vector_size(64)]] = float;

/// The range of a job that this rank does if all ranks share it: multiples of a cache line.
struct Range {
  std::size_t begin, end;
};
Range share_of(int rank, int ranks, std::size_t bytes) {
  const auto boundary = [&](int r) {
    const std::size_t lines = (bytes + sizeof(Line) - 1) / sizeof(Line);
    return std::min(bytes, lines * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks) *
                               sizeof(Line));
  };
  return {boundary(rank), boundary(rank + 1)};
}

[[gnu::always_inline]] inline void sum_line(const Move& move, std::size_t at, Line& sum) {
  std::memcpy(&sum, move.sources[0] + at, sizeof sum);
  for (std::size_t s = 1; s < move.sources.size(); ++s) {
    Line more;
    std::memcpy(&more, move.sources[s] + at, sizeof more);
    sum += more;
  }
}

TUTTI_WIDEST void run_cached(const Move& move, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Line)) {
    Line sum;
    sum_line(move, at, sum);
    for (std::byte* destination : move.destinations) {
      std::memcpy(destination + at, &sum, sizeof sum);
    }
  }
}

#if defined(__x86_64__)
void run_streaming(const Move& move, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Line)) {
    Line sum;
    sum_line(move, at, sum);
    __m128i quarters[4];
    std::memcpy(quarters, &sum, sizeof sum);
    for (std::byte* destination : move.destinations) {
      auto* to = reinterpret_cast<__m128i*>(destination + at);
      for (int q = 0; q < 4; ++q) _mm_stream_si128(to + q, quarters[q]);
    }
  }
  _mm_sfence();  // streaming stores are not ordered by the release that follows
}
#endif

void run_tail(const Move& move, std::size_t at) {
  if (move.sources.size() == 1) {
    for (std::byte* destination : move.destinations) {
      std::memcpy(destination + at, move.sources[0] + at, move.bytes - at);
    }
    return;
  }
  for (; at < move.bytes; at += sizeof(float)) {
    float sum = 0;
    for (const std::byte* source : move.sources) {
      float value;
      std::memcpy(&value, source + at, sizeof value);
      sum += value;
    }
    for (std::byte* destination : move.destinations) {
      std::memcpy(destination + at, &sum, sizeof sum);
    }
  }
}

std::vector<int> all_ranks(const Job& job) {
  std::vector<int> ranks;
  for (int r = 0; r < job.ranks; ++r) ranks.push_back(r);
  return ranks;
}

}  // namespace

std::vector<Move> own_result(const Job& job, const Address& in, const Address& out) {
  const std::size_t bytes = job.bytes();
  const std::size_t mine = static_cast<std::size_t>(job.rank) * bytes;
  std::byte* to = out(job.rank);
  std::vector<const std::byte*> inputs;
  for (const int r : all_ranks(job)) inputs.push_back(in(r));

  switch (job.collective) {
    case Collective::reduce:
      if (job.rank != 0) return {};
      [[fallthrough]];
    case Collective::all_reduce:
      return {{{to}, inputs, bytes}};
    case Collective::reduce_scatter:
      for (const std::byte*& input : inputs) input += mine;
      return {{{to}, inputs, bytes}};
    case Collective::broadcast:
      if (job.rank == 0) return {};
      return {{{to}, {inputs[0]}, bytes}};
    case Collective::send_recv:
      return {{{to}, {inputs[static_cast<std::size_t>(1 - job.rank)]}, bytes}};
    default: {  // all_gather, all_to_all
      const std::size_t offset = job.collective == Collective::all_to_all ? mine : 0;
      std::vector<Move> moves;
      for (const std::byte* input : inputs) {
        moves.push_back({{to + moves.size() * bytes}, {input + offset}, bytes});
      }
      return moves;
    }
  }
}

std::vector<Move> fair_share(const Job& job, const Address& in, const Address& out) {
  Move move;
  switch (job.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      for (const int r : all_ranks(job)) move.sources.push_back(in(r));
      break;
    case Collective::broadcast:
      move.sources.push_back(in(0));
      break;
    default:
      return own_result(job, in, out);
  }
  for (const int r : all_ranks(job)) {
    const bool receives = job.collective == Collective::all_reduce ||
                          (job.collective == Collective::reduce) == (r == 0);
    if (receives) move.destinations.push_back(out(r));
  }
  const Range share = share_of(job.rank, job.ranks, job.bytes());
  for (std::byte*& destination : move.destinations) destination += share.begin;
  for (const std::byte*& source : move.sources) source += share.begin;
  move.bytes = share.end - share.begin;
  return {move};
}

void run(const Move& move, bool streaming) {
  const std::size_t whole_lines = move.bytes / sizeof(Line) * sizeof(Line);
#if defined(__x86_64__)
  if (streaming) {
    run_streaming(move, whole_lines);
    return run_tail(move, whole_lines);
  }
#endif
  run_cached(move, whole_lines);
  run_tail(move, whole_lines);
}

}  // namespace tutti::peers
