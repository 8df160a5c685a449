#include "tests/parallel/reshard_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "core/convert.h"

namespace tutti::parallel::reshard::test {
namespace {

using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t n) { return random() % n; }
bool one_in(Random& random, std::uint64_t n) { return below(random, n) == 0; }

std::vector<int> some_ranks(Random& random, int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::ranges::shuffle(all, random);
  all.resize(1 + below(random, all.size()));
  return all;
}

/// Sizes that multiply up to `n`, in any number of factors.
std::vector<int> random_mesh(Random& random, int n) {
  std::vector<int> mesh;
  while (n > 1) {
    std::vector<int> divisors;
    for (int d = 2; d <= n; ++d) {
      if (n % d == 0) divisors.push_back(d);
    }
    mesh.push_back(divisors[below(random, divisors.size())]);
    n /= mesh.back();
  }
  if (mesh.empty()) mesh.push_back(1);
  return mesh;
}

std::vector<std::uint64_t> random_shares(Random& random, std::uint64_t size, int shares) {
  std::vector<std::uint64_t> cuts{0, size};
  for (int i = 1; i < shares; ++i) cuts.push_back(below(random, size + 1));
  std::ranges::sort(cuts);
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 1; i < cuts.size(); ++i) sizes.push_back(cuts[i] - cuts[i - 1]);
  return sizes;
}

void add_on_mesh(Random& random, Layout& layout, const Tensor& tensor,
                 const std::vector<int>& ranks) {
  Sharding s{random_mesh(random, static_cast<int>(ranks.size())), {}, ranks};
  std::set<int> cut;
  for (const int size : s.mesh) {
    const int d = static_cast<int>(below(random, tensor.shape.size() + 1)) - 1;
    s.placements.push_back({d, {}});
    // Of a dimension that is cut once the shares may have any size.
    if (d >= 0 && cut.insert(d).second && one_in(random, 3)) {
      s.placements.back().sizes =
          random_shares(random, tensor.shape[static_cast<std::size_t>(d)], size);
    }
  }
  add_sharded(layout, tensor, s);
}

/// Cuts the box at random; each part goes to a rank or a few, and now and then a larger box around
/// it, which others have, too.
void add_boxes(Random& random, Layout& layout, const Tensor& tensor, const Box& box,
               const std::vector<int>& ranks, int depth) {
  const std::size_t d = below(random, box.dimensions());
  if (depth > 0 && box[d].size() > 1 && !one_in(random, 4)) {
    Box low = box, high = box;
    low[d].end = high[d].begin = box[d].begin + 1 + below(random, box[d].size() - 1);
    add_boxes(random, layout, tensor, low, ranks, depth - 1);
    return add_boxes(random, layout, tensor, high, ranks, depth - 1);
  }
  const std::uint64_t copies = 1 + below(random, std::min<std::size_t>(ranks.size(), 3));
  for (std::uint64_t c = 0; c < copies; ++c) {
    const int rank = ranks[below(random, ranks.size())];
    Box larger = box;
    if (one_in(random, 4)) {
      for (std::size_t i = 0; i < larger.dimensions(); ++i) {
        larger[i].begin -= below(random, larger[i].begin + 1);
        larger[i].end += below(random, tensor.shape[i] - larger[i].end + 1);
      }
    }
    // Each piece in a buffer of its own; its dimensions in any order, with gaps.
    std::vector<std::size_t> order(box.dimensions());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (one_in(random, 3)) std::ranges::shuffle(order, random);
    std::vector<std::uint64_t> strides(box.dimensions());
    std::uint64_t distance = one_in(random, 4) ? 2 : 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = distance;
      distance *= larger[order[i]].size() + below(random, 3);
    }
    add_piece(layout, tensor, rank, larger,
              fmt::format("{}.{}", tensor.name, layout.tensor(tensor).pieces.size()),
              below(random, 3) * size_of(tensor.type), strides);
  }
}

/// Two halves of a dimension in turns, as fused gate and up projections are: rows of both in turns.
void add_in_turns(Layout& layout, const Tensor& tensor, const std::vector<int>& ranks) {
  const std::uint64_t half = tensor.shape.front() / 2;
  const Box whole = Box::whole(tensor.shape);
  Strides strides = packed_strides(whole);
  const std::uint64_t row = strides[0];
  strides[0] = 2 * row;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (std::ranges::count(ranks, ranks[r]) > 1) continue;
    for (const std::uint64_t part : {0, 1}) {
      Box box = whole;
      box[0] = {part * half, part * half + half};
      add_piece(layout, tensor, ranks[r], box, tensor.name, part * row * size_of(tensor.type),
                std::span(strides).first(box.dimensions()));
    }
  }
}

void add_random(Random& random, Layout& layout, const Tensor& tensor,
                const std::vector<int>& ranks) {
  const std::size_t dimensions = tensor.shape.size();
  switch (below(random, 7)) {
    case 0:
      return add_replicated(layout, tensor, ranks);
    case 1: {
      const auto d = below(random, dimensions);
      std::vector<int> owners;
      for (std::uint64_t i = 0; i < tensor.shape[d]; ++i) {
        owners.push_back(ranks[below(random, ranks.size())]);
      }
      return add_owned(layout, tensor, static_cast<int>(d), owners);
    }
    case 2:
      return add_unit(layout, tensor.name + ".unit", std::span(&tensor, 1), ranks,
                      one_in(random, 2) ? parallel::Layout::flat : parallel::Layout::by_parameter,
                      1 + below(random, 9));
    case 3:
      return add_boxes(random, layout, tensor, Box::whole(tensor.shape), ranks, 4);
    case 4:
      if (tensor.shape.front() % 2 == 0) return add_in_turns(layout, tensor, ranks);
      [[fallthrough]];
    default:
      return add_on_mesh(random, layout, tensor, ranks);
  }
}

constexpr DataType kFloats[] = {DataType::float32, DataType::bfloat16, DataType::float16,
                                DataType::float8_e4m3, DataType::float64};

}  // namespace

Case random_case(std::uint64_t seed) {
  Random random(seed);
  Case c;
  const int ranks = 1 + static_cast<int>(below(random, 16));
  c.from.ranks = c.to.ranks = ranks;
  std::vector<int> holders = some_ranks(random, ranks), needers = some_ranks(random, ranks);
  if (one_in(random, 3)) {  // two jobs
    std::erase_if(needers, [&](int r) { return std::ranges::count(holders, r) > 0; });
    if (needers.empty()) needers = holders;
  } else if (one_in(random, 3)) {
    needers = holders;
  }
  const std::uint64_t hosts = 1 + below(random, 4);
  for (int r = 0; r < ranks; ++r) {
    c.options.hosts.push_back(static_cast<int>(below(random, hosts)));
  }
  // Without gaps in the numbers.
  std::map<int, int> numbers;
  for (int& h : c.options.hosts)
    h = numbers.emplace(h, static_cast<int>(numbers.size())).first->second;
  c.options.message_bytes = std::uint64_t{1} << (4 + below(random, 12));
  c.options.host_message_bytes = std::uint64_t{1} << (4 + below(random, 12));
  const std::uint64_t tensors = 1 + below(random, 3);
  for (std::uint64_t t = 0; t < tensors; ++t) {
    Tensor tensor{fmt::format("t{}", t), DataType::bfloat16, {}};
    const std::uint64_t dimensions = 1 + below(random, 4);
    for (std::uint64_t d = 0; d < dimensions; ++d) {
      tensor.shape.push_back(1 + below(random, dimensions < 3 ? 40 : 9));
    }
    Tensor target = tensor;
    if (one_in(random, 4)) {
      tensor.type = target.type = one_in(random, 2) ? DataType::int64 : DataType::uint8;
    } else {
      tensor.type = kFloats[below(random, 5)];
      target.type = one_in(random, 2) ? tensor.type : kFloats[below(random, 5)];
    }
    add_random(random, c.from, tensor, holders);
    add_random(random, c.to, target, needers);
  }
  return c;
}

RankMemory::RankMemory(const Layout& layout, int rank) {
  for (const std::uint64_t bytes : layout.bytes_of(rank)) {
    buffers.emplace_back(bytes, kGap);
    pointers.push_back(bytes == 0 ? nullptr : buffers.back().data());
    sources.push_back(pointers.back());
  }
}

std::vector<std::byte> value_of(const Tensor& tensor, std::uint64_t number, std::uint64_t version) {
  std::uint64_t hash = (number + 1) * 0x9E3779B97F4A7C15u + version * 0xD1B54A32D192ED03u;
  for (const char c : tensor.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  hash ^= hash >> 29;
  std::vector<std::byte> value(size_of(tensor.type));
  if (is_float(tensor.type)) {
    const float f = (static_cast<float>(hash % 200'000) - 100'000) / 1024;
    convert(&f, DataType::float32, value.data(), tensor.type, 1);
  } else {
    std::memcpy(value.data(), &hash, value.size());
  }
  return value;
}

std::vector<std::byte> arrived(const std::vector<std::byte>& value, DataType from, DataType to) {
  if (from == to) return value;
  std::vector<std::byte> result(size_of(to));
  convert(value.data(), from, result.data(), to, 1);
  return result;
}

void fill(const Layout& layout, int rank, std::uint64_t version, RankMemory& memory) {
  for (const TensorLayout& t : layout.tensors) {
    for (const Piece& p : t.pieces) {
      if (p.rank != rank) continue;
      each_element(t, p, p.box, [&](std::uint64_t number, std::uint64_t place) {
        const auto value = value_of(t, number, version);
        std::ranges::copy(value, memory.buffers[p.buffer].data() + place);
      });
    }
  }
}

std::string wrong(const Layout& from, const Layout& to, int rank, std::uint64_t version,
                  const RankMemory& memory) {
  RankMemory expected(to, rank);
  for (const TensorLayout& t : to.tensors) {
    const TensorLayout& source = from.tensors[static_cast<std::size_t>(from.find(t.name))];
    for (const Piece& p : t.pieces) {
      if (p.rank != rank) continue;
      each_element(t, p, p.box, [&](std::uint64_t number, std::uint64_t place) {
        const auto value = arrived(value_of(source, number, version), source.type, t.type);
        std::ranges::copy(value, expected.buffers[p.buffer].data() + place);
      });
    }
  }
  for (std::size_t b = 0; b < expected.buffers.size(); ++b) {
    const auto [is, should] = std::ranges::mismatch(memory.buffers[b], expected.buffers[b]);
    if (is == memory.buffers[b].end()) continue;
    return fmt::format("rank {}, buffer '{}', byte {}: {:02x} instead of {:02x}", rank,
                       to.buffers[b], is - memory.buffers[b].begin(), std::to_integer<int>(*is),
                       std::to_integer<int>(*should));
  }
  return "";
}

std::string judge(const Layout& from, const Layout& to, const Plan& plan) {
  const auto ranks = static_cast<std::size_t>(to.ranks);
  if (plan.hosts.size() != ranks || plan.tensors.size() != to.tensors.size()) return "its form";
  // Which elements each piece of `to` has, by their numbers.
  std::vector<std::vector<std::set<std::uint64_t>>> has(to.tensors.size());
  for (std::size_t t = 0; t < to.tensors.size(); ++t) {
    has[t].resize(to.tensors[t].pieces.size());
    if (plan.tensors[t] >= from.tensors.size() ||
        from.tensors[plan.tensors[t]].name != to.tensors[t].name) {
      return "a tensor comes from another one";
    }
  }
  std::uint64_t next = 0;
  for (const Message& m : plan.messages) {
    if (m.begin != next || m.count == 0 || next + m.count > plan.moves.size()) return "its moves";
    next += m.count;
    std::uint64_t bytes = 0;
    std::vector<std::tuple<std::size_t, std::size_t, std::uint64_t>> news;
    for (const Move& move : plan.moves_of(m)) {
      if (move.tensor >= to.tensors.size()) return "no such tensor";
      const TensorLayout& target = to.tensors[move.tensor];
      const TensorLayout& source = move.relay ? target : from.tensors[plan.tensors[move.tensor]];
      if (move.source >= source.pieces.size() || move.target >= target.pieces.size()) {
        return "no such piece";
      }
      const Piece& origin = source.pieces[move.source];
      const Piece& goal = target.pieces[move.target];
      if (origin.rank != m.from || goal.rank != m.to) return "a piece of another rank";
      if (move.box.empty() || move.box.dimensions() != target.shape.size()) return "no elements";
      for (std::size_t d = 0; d < move.box.dimensions(); ++d) {
        for (const Piece* p : {&origin, &goal}) {
          if (move.box[d].begin < p->box[d].begin || move.box[d].end > p->box[d].end) {
            return "a box outside of a piece";
          }
        }
      }
      const DataType a = from.tensors[plan.tensors[move.tensor]].type, b = target.type;
      bytes += move.box.elements() * std::min(size_of(a), size_of(b));
      bool there = true;
      each_element(target, goal, move.box, [&](std::uint64_t number, std::uint64_t) {
        if (move.relay && !has[move.tensor][move.source].contains(number)) there = false;
        news.emplace_back(move.tensor, move.target, number);
      });
      if (!there) return "a relay of what is not there";
    }
    if (bytes != m.bytes || (m.from != m.to && bytes > plan.most_bytes)) return "its bytes";
    for (const auto& [t, piece, number] : news) {
      if (!has[t][piece].insert(number).second) return "an element is written twice";
    }
  }
  if (next != plan.moves.size()) return "moves without a message";
  for (std::size_t t = 0; t < to.tensors.size(); ++t) {
    for (std::size_t p = 0; p < to.tensors[t].pieces.size(); ++p) {
      if (has[t][p].size() != to.tensors[t].pieces[p].box.elements()) return "elements are missing";
    }
  }
  return "";
}

}  // namespace tutti::parallel::reshard::test
