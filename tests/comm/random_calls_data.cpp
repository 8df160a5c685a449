// The data of random calls (random_calls.h): where buffers come from, what they hold, and what is
// in them afterwards.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "tests/comm/random_calls_prepared.h"

namespace tutti::test {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 18;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlack = 64;  // bytes before a buffer and after it, which nobody may touch
constexpr auto kUntouched = std::byte{0xA5};

std::uint64_t load(const std::byte* at, std::size_t width) {
  std::uint64_t v = 0;
  std::memcpy(&v, at, width);  // little endian
  return v;
}
std::uint64_t cut(std::uint64_t v, std::size_t width) {
  return width == 8 ? v : v & ((std::uint64_t{1} << 8 * width) - 1);
}

}  // namespace

std::uint64_t value_of_call(std::uint64_t call, std::size_t rank, std::size_t i) {
  return call * 0x9E3779B97F4A7C15U + rank * ((std::size_t{1} << 20) + 37) + i;
}

// --- memory ---

Block::Block(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  switch (kind) {
    case Kind::plain:
      plain_.resize(bytes);
      data_ = plain_.data();
      break;
    case Kind::window:
      data_ = static_cast<std::byte*>(allocate(bytes));
      break;
    case Kind::container:
      container_.resize(bytes);
      data_ = container_.data();
      break;
    case Kind::registered:
      bytes_ = (bytes + kPage - 1) / kPage * kPage;  // a window to the last byte
      data_ = static_cast<std::byte*>(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      if (data_ == MAP_FAILED) throw std::bad_alloc();
      register_memory(data_, bytes_);
  }
}

Block::~Block() {
  if (kind_ == Kind::window) deallocate(data_);
  if (kind_ == Kind::registered) {
    unregister_memory(data_);
    munmap(data_, bytes_);
  }
}

std::unique_ptr<Block> RandomCalls::take(std::size_t bytes, bool all_windows) {
  using Kind = Block::Kind;
  Kind kind = Kind::plain;
  if (memory_ == MemoryUse::windows) {
    kind = Kind::window;
  } else if (memory_ == MemoryUse::registered) {
    kind = Kind::registered;
  } else if (memory_ == MemoryUse::kept) {
    kind = all_windows || own_chance(2) ? Kind::window : Kind::plain;
  } else {
    const unsigned first = all_windows ? 1 : 0;
    kind = static_cast<Kind>(first + own_() % (4 - first));
  }
  if (memory_ == MemoryUse::kept) bytes = std::max(bytes, 2 * kMostBytes + 2 * kSlack);
  const auto fits = [&](const auto& block) {
    return block->kind() == kind && block->bytes() >= bytes;
  };
  const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
  if (found == kept_.end()) return std::make_unique<Block>(kind, bytes);
  std::unique_ptr<Block> block = std::move(*found);
  kept_.erase(found);
  return block;
}

void RandomCalls::give_back(std::unique_ptr<Block> block) {
  if (block == nullptr) return;
  if (memory_ == MemoryUse::kept || (memory_ == MemoryUse::any && !own_chance(4))) {
    kept_.push_back(std::move(block));
  }
  if (memory_ != MemoryUse::kept && kept_.size() > 12) kept_.erase(kept_.begin());
}

// --- a call and its result ---

std::unique_ptr<RandomCalls::Prepared> RandomCalls::prepare(Team& team, Collective collective,
                                                            std::uint32_t draw) {
  Random random(draw);
  auto prepared = std::make_unique<Prepared>();
  Prepared& p = *prepared;
  const auto n = static_cast<std::size_t>(team.comm.size());
  const auto me = static_cast<std::size_t>(team.comm.rank());
  const std::uint64_t id = p.id = (std::uint64_t{draw} << 8) + team.salt;
  constexpr std::array kTypes{DataType::uint32, DataType::uint8, DataType::uint64};
  constexpr std::array<std::size_t, 3> kWidths{4, 1, 8};
  const std::size_t type = random() % 3;
  const std::size_t width = p.width = kWidths[type];
  // All of a buffer is at most kMostBytes; small ones are the most.
  const std::size_t most = kMostBytes / width / n;
  const auto draw_count = [&] {
    return random() % 16 == 0 ? 0 : std::min(most, std::size_t{1} << random() % 17) - random() % 2;
  };
  const std::size_t count = draw_count();
  const auto root = static_cast<std::size_t>(random() % n);
  const bool in_place = random() % 4 == 0;
  const bool all_windows = random() % 4 != 0;
  constexpr std::array kOperators{ReduceKind::sum, ReduceKind::sum, ReduceKind::min,
                                  ReduceKind::max};
  const ReduceKind op = kOperators[random() % kOperators.size()];
  const auto reduced = [id, n, width, op](std::size_t i) {
    std::uint64_t all = cut(value_of_call(id, 0, i), width);
    for (std::size_t r = 1; r < n; ++r) {
      const std::uint64_t v = cut(value_of_call(id, r, i), width);
      all = op == ReduceKind::sum   ? cut(all + v, width)
            : op == ReduceKind::min ? std::min(all, v)
                                    : std::max(all, v);
    }
    return all;
  };
  // What each rank sends to each, for v-variants.
  std::vector<std::size_t> counts;
  for (std::size_t k = 0; k < n * n; ++k) counts.push_back(draw_count() / n);
  const auto sum = [](const std::vector<std::size_t>& v, std::size_t end) {
    std::size_t all = 0;
    for (std::size_t k = 0; k < end; ++k) all += v[k];
    return all;
  };

  std::size_t inputs = count;
  std::size_t place = 0;  // of the input in the output, in place
  bool can_be_in_place = true;
  p.results = count;
  switch (collective) {
    case Collective::all_reduce:
      p.expected = reduced;
      break;
    case Collective::all_gather:
      p.results = n * count;
      place = me * count;
      p.expected = [=](std::size_t i) { return value_of_call(id, i / count, i % count); };
      break;
    case Collective::reduce_scatter:
      inputs = n * count;
      can_be_in_place = false;
      p.expected = [=](std::size_t i) { return reduced(me * count + i); };
      break;
    case Collective::broadcast:
      p.expected = [=](std::size_t i) { return value_of_call(id, root, i); };
      break;
    case Collective::reduce:
      if (me != root) p.results = 0;
      can_be_in_place = me == root;
      p.expected = reduced;
      break;
    case Collective::gather:
      p.results = me == root ? n * count : 0;
      place = me * count;
      can_be_in_place = me == root;
      p.expected = [=](std::size_t i) { return value_of_call(id, i / count, i % count); };
      break;
    case Collective::scatter:
      inputs = me == root ? n * count : 0;
      can_be_in_place = false;
      p.expected = [=](std::size_t i) { return value_of_call(id, root, me * count + i); };
      break;
    case Collective::all_to_all:
      inputs = p.results = n * count;
      can_be_in_place = false;
      p.expected = [=](std::size_t i) {
        return value_of_call(id, i / count, me * count + i % count);
      };
      break;
    case Collective::all_gather_v:
      counts.resize(n);
      p.out_counts = counts;
      inputs = counts[me];
      place = sum(counts, me);
      p.results = sum(counts, n);
      p.expected = [counts](std::size_t) { return std::uint64_t{0}; };  // below
      break;
    case Collective::reduce_scatter_v:
      counts.resize(n);
      p.in_counts = counts;
      inputs = sum(counts, n);
      p.results = counts[me];
      can_be_in_place = false;
      p.expected = [reduced, before = sum(counts, me)](std::size_t i) {
        return reduced(before + i);
      };
      break;
    case Collective::all_to_all_v:
      for (std::size_t r = 0; r < n; ++r) {
        p.in_counts.push_back(counts[me * n + r]);
        p.out_counts.push_back(counts[r * n + me]);
      }
      inputs = sum(p.in_counts, n);
      p.results = sum(p.out_counts, n);
      can_be_in_place = false;
      break;
    default:  // barrier
      inputs = p.results = 0;
      can_be_in_place = false;
  }
  if (collective == Collective::all_gather_v || collective == Collective::all_to_all_v) {
    // Rank by rank, what each has put first for those before us.
    std::vector<std::uint64_t> all;
    for (std::size_t r = 0; r < n; ++r) {
      std::size_t begin = 0;
      if (collective == Collective::all_to_all_v) {
        for (std::size_t k = 0; k < me; ++k) begin += counts[r * n + k];
      }
      for (std::size_t i = 0; i < p.out_counts[r]; ++i)
        all.push_back(value_of_call(id, r, begin + i));
    }
    p.expected = [all = std::move(all)](std::size_t i) { return all[i]; };
  }

  const std::size_t shift = kSlack + width * (own_() % 16);
  const auto space = [&](std::size_t elements) {
    return elements * width + 2 * kSlack + 16 * width;
  };
  const bool same_place = in_place && can_be_in_place;
  p.out = take(space(std::max(p.results, same_place ? place + inputs : 0)), all_windows);
  std::memset(p.out->data(), static_cast<int>(kUntouched), space(p.results));
  std::byte* const out = p.out->data() + shift;
  std::byte* in = out + place * width;
  if (!same_place) {
    p.in = take(space(inputs), all_windows);
    in = p.in->data() + kSlack + width * (own_() % 16);
  }
  const bool sends = collective != Collective::broadcast || me == root;
  for (std::size_t i = 0; sends && i < inputs; ++i) {
    const std::uint64_t v = value_of_call(id, me, i);
    std::memcpy(in + i * width, &v, width);
  }
  p.team = &team;
  p.call = {.collective = collective,
            .in = in,
            .out = out,
            .count = count,
            .type = kTypes[type],
            .op = {op},
            .root = static_cast<int>(root),
            .in_counts = p.in_counts,
            .out_counts = p.out_counts};
  if (is_v(collective)) p.call.count = 0;
  if (collective == Collective::barrier) p.call = {.collective = Collective::barrier};
  return prepared;
}

std::unique_ptr<RandomCalls::Prepared> RandomCalls::prepare_any(Team& team) {
  constexpr std::array kCollectives{
      Collective::all_reduce, Collective::all_gather,       Collective::reduce_scatter,
      Collective::broadcast,  Collective::reduce,           Collective::gather,
      Collective::scatter,    Collective::all_to_all,       Collective::all_gather_v,
      Collective::barrier,    Collective::reduce_scatter_v, Collective::all_to_all_v};
  const Collective collective = kCollectives[same_() % kCollectives.size()];
  const auto draw = static_cast<std::uint32_t>(same_());
  if (!team.comm) return nullptr;
  return prepare(team, collective, draw);
}

void RandomCalls::check(const Prepared& p) const {
  if (p.call.collective == Collective::barrier) return;
  const auto* const out = static_cast<const std::byte*>(p.call.out);
  const auto fail = [&](std::size_t i, std::uint64_t is, std::uint64_t should) {
    throw std::runtime_error(
        fmt::format("step {}: {} of rank {} of {} (count {}, {} bytes each, root {}): element {} "
                    "of {} is {:#x} "
                    "instead of {:#x}",
                    steps_, name(p.call.collective), p.team->comm.rank(), p.team->comm.size(),
                    p.call.count, p.width, p.call.root, i, p.results, is, should));
  };
  for (std::size_t i = 0; i < p.results; ++i) {
    const std::uint64_t is = load(out + i * p.width, p.width);
    const std::uint64_t should = cut(p.expected(i), p.width);
    if (is != should) fail(i, is, should);
  }
  // What lies before and after it is as it was.
  for (std::size_t i = 0; i < kSlack; ++i) {
    const std::byte before = out[-1 - static_cast<std::ptrdiff_t>(i)];
    const std::byte after = out[p.results * p.width + i];
    if (before != kUntouched) fail(SIZE_MAX, load(&before, 1), load(&kUntouched, 1));
    if (after != kUntouched) fail(p.results, load(&after, 1), load(&kUntouched, 1));
  }
}

}  // namespace tutti::test
