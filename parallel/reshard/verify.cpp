#include "parallel/reshard/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"

namespace tutti::parallel::reshard {
namespace {

/// A reason, which ends the proof.
struct Wrong {
  std::string story;
};

/// Whether boxes, of one tensor, have an element in common; sorts them.
std::optional<std::pair<Box, Box>> twice(std::vector<const Box*>& boxes) {
  if (boxes.size() < 2 || boxes.front()->dimensions() == 0) {
    if (boxes.size() < 2) return std::nullopt;
    return std::pair(*boxes[0], *boxes[1]);
  }
  // Along the dimension in which they begin at the most places, only neighbours are compared.
  std::size_t by = 0, most = 0;
  std::vector<std::uint64_t> begins(boxes.size());
  for (std::size_t d = 0; d < boxes.front()->dimensions(); ++d) {
    std::ranges::transform(boxes, begins.begin(), [&](const Box* b) { return (*b)[d].begin; });
    std::ranges::sort(begins);
    const auto places =
        static_cast<std::size_t>(std::ranges::unique(begins).begin() - begins.begin());
    if (places > most) std::tie(most, by) = std::pair(places, d);
  }
  std::ranges::sort(boxes, {}, [&](const Box* b) { return (*b)[by].begin; });
  std::vector<const Box*> open;
  for (const Box* box : boxes) {
    std::erase_if(open, [&](const Box* b) { return (*b)[by].end <= (*box)[by].begin; });
    for (const Box* b : open) {
      if (overlap(*b, *box)) return std::pair(*b, *box);
    }
    open.push_back(box);
  }
  return std::nullopt;
}

class Proof {
 public:
  Proof(const Layout& from, const Layout& to, const Plan& plan)
      : from_(from), to_(to), plan_(plan) {}

  void run() {
    check_form();
    check_moves();
    check_targets();
  }

 private:
  void check_form() {
    if (from_.ranks != to_.ranks || plan_.hosts.size() != index(to_.ranks)) {
      throw Wrong{"the plan and the layouts are of different numbers of ranks"};
    }
    for (const int h : plan_.hosts) {
      if (h < 0 || h >= to_.ranks) throw Wrong{fmt::format("there is no host {}", h)};
    }
    if (plan_.tensors.size() != to_.tensors.size()) {
      throw Wrong{"the plan does not pair the tensors of the layouts"};
    }
    for (std::size_t t = 0; t < to_.tensors.size(); ++t) check_pair(t);
    if (plan_.moves.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw Wrong{"there are more than 2^32 moves"};
    }
    std::uint64_t next = 0;
    for (const Message& m : plan_.messages) {
      if (m.from < 0 || m.from >= to_.ranks || m.to < 0 || m.to >= to_.ranks) {
        throw Wrong{fmt::format("a message goes from rank {} to rank {}", m.from, m.to)};
      }
      if (m.begin != next || m.count == 0 || m.count > plan_.moves.size() - next) {
        throw Wrong{fmt::format(
            "a message from rank {} to rank {} has moves that are others', or none", m.from, m.to)};
      }
      next += m.count;
    }
    if (next != plan_.moves.size()) throw Wrong{"there are moves that belong to no message"};
  }

  void check_pair(std::size_t t) {
    const TensorLayout& target = to_.tensors[t];
    if (plan_.tensors[t] >= from_.tensors.size()) {
      throw Wrong{fmt::format("tensor '{}' comes from none", target.name)};
    }
    const TensorLayout& source = from_.tensors[plan_.tensors[t]];
    if (source.name != target.name || source.shape != target.shape ||
        (source.type != target.type && !(is_float(source.type) && is_float(target.type)))) {
      throw Wrong{fmt::format("tensor '{}' comes from one of another name, shape, or kind of type",
                              target.name)};
    }
  }

  std::string text_of_move(const Message& m, const Move& move) const {
    return fmt::format("the move of {} {} from rank {} to rank {}",
                       move.tensor < to_.tensors.size() ? to_.tensors[move.tensor].name : "?",
                       text_of(move.box), m.from, m.to);
  }

  void check_moves() {
    by_target_.resize(to_.tensors.size());
    for (std::size_t t = 0; t < to_.tensors.size(); ++t) {
      by_target_[t].resize(to_.tensors[t].pieces.size());
    }
    for (std::uint32_t i = 0; i < plan_.messages.size(); ++i) {
      const Message& m = plan_.messages[i];
      std::uint64_t bytes = 0;
      for (std::uint64_t n = m.begin; n < m.begin + m.count; ++n) {
        const Move& move = plan_.moves[n];
        check_ends(m, move);
        if (move.relay) check_relay(i, m, move);
        bytes += move.box.elements() * size_of(travel_type(from_, to_, plan_, move));
      }
      // What it has brought may be relayed by the messages behind it.
      for (std::uint64_t n = m.begin; n < m.begin + m.count; ++n) {
        const Move& move = plan_.moves[n];
        by_target_[move.tensor][move.target].push_back(static_cast<std::uint32_t>(n));
      }
      if (bytes != m.bytes || (m.from != m.to && bytes > plan_.most_bytes)) {
        throw Wrong{
            fmt::format("a message from rank {} to rank {} has {} bytes, and says {}; the "
                        "plan says {} at most",
                        m.from, m.to, bytes, m.bytes, plan_.most_bytes)};
      }
    }
  }

  void check_ends(const Message& m, const Move& move) const {
    if (move.tensor >= to_.tensors.size()) {
      throw Wrong{fmt::format("a move is of tensor {}, which does not exist", move.tensor)};
    }
    const TensorLayout& target = to_.tensors[move.tensor];
    const TensorLayout& source = move.relay ? target : from_.tensors[plan_.tensors[move.tensor]];
    const auto check = [&](const TensorLayout& tensor, std::uint32_t piece, int rank,
                           std::string_view side) {
      if (piece >= tensor.pieces.size() || tensor.pieces[piece].rank != rank) {
        throw Wrong{fmt::format("{}: rank {}, its {}, has no such piece", text_of_move(m, move),
                                rank, side)};
      }
      const Box& box = tensor.pieces[piece].box;
      if (box.dimensions() != move.box.dimensions() || !box.contains(move.box)) {
        throw Wrong{fmt::format("{}: the piece of its {} has {} alone", text_of_move(m, move), side,
                                text_of(box))};
      }
    };
    if (move.box.dimensions() > kMostDimensions || move.box.empty()) {
      throw Wrong{text_of_move(m, move) + " has no elements"};
    }
    check(source, move.source, m.from, "source");
    check(target, move.target, m.to, "target");
  }

  /// What is relayed has arrived before.
  void check_relay(std::uint32_t, const Message& m, const Move& move) const {
    std::vector<Box> missing{move.box};
    // The newest first: most relays are of one earlier move.
    const auto& arrived = by_target_[move.tensor][move.source];
    for (auto n = arrived.rbegin(); n != arrived.rend() && !missing.empty(); ++n) {
      const Box& box = plan_.moves[*n].box;
      if (!overlap(box, move.box)) continue;
      std::vector<Box> rest;
      for (const Box& b : missing) {
        for (const Box& part : without(b, box)) rest.push_back(part);
      }
      missing = std::move(rest);
    }
    if (!missing.empty()) {
      throw Wrong{fmt::format("{} relays {} before it has arrived there", text_of_move(m, move),
                              text_of(missing.front()))};
    }
  }

  void check_targets() {
    std::vector<const Box*> boxes;
    for (std::size_t t = 0; t < to_.tensors.size(); ++t) {
      const TensorLayout& tensor = to_.tensors[t];
      for (std::size_t p = 0; p < tensor.pieces.size(); ++p) {
        boxes.clear();
        std::uint64_t written = 0;
        for (const std::uint32_t n : by_target_[t][p]) {
          boxes.push_back(&plan_.moves[n].box);
          written += plan_.moves[n].box.elements();
        }
        const Piece& piece = tensor.pieces[p];
        if (const auto both = twice(boxes)) {
          throw Wrong{fmt::format("rank {} gets {} of tensor '{}' twice", piece.rank,
                                  text_of(intersection(both->first, both->second)), tensor.name)};
        }
        // Boxes that lie in the piece, and share no element, are all of it if they are as many.
        if (written != piece.box.elements()) {
          throw Wrong{fmt::format("rank {} gets {} of {} elements of {} of tensor '{}'", piece.rank,
                                  written, piece.box.elements(), text_of(piece.box), tensor.name)};
        }
      }
    }
  }

  const Layout& from_;
  const Layout& to_;
  const Plan& plan_;
  /// By tensor and piece of `to`: the moves into it, by number.
  std::vector<std::vector<std::vector<std::uint32_t>>> by_target_;
};

/// Boxes end in the middle of no element, so a link may carry a little more than its share.
bool is_balanced(std::uint64_t most, std::uint64_t bound) {
  constexpr std::uint64_t kGrain = 1 << 10;
  return most <= bound + bound / 20 + kGrain;
}

}  // namespace

std::uint64_t LinkLoads::most() const {
  std::uint64_t most = 0;
  for (const auto* list : {&sent, &received}) {
    for (const std::uint64_t bytes : *list) most = std::max(most, bytes);
  }
  return most;
}

std::uint64_t LinkLoads::total() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : sent) sum += bytes;
  return sum;
}

LinkLoads link_loads(const Plan& plan) {
  const std::size_t hosts =
      plan.hosts.empty() ? 0 : index(*std::ranges::max_element(plan.hosts) + 1);
  LinkLoads loads{std::vector<std::uint64_t>(hosts), std::vector<std::uint64_t>(hosts)};
  for (const Message& m : plan.messages) {
    const int from = plan.hosts[index(m.from)], to = plan.hosts[index(m.to)];
    if (from == to) continue;
    loads.sent[index(from)] += m.bytes;
    loads.received[index(to)] += m.bytes;
  }
  return loads;
}

Verdict verify(const Layout& from, const Layout& to, const Plan& plan) {
  Verdict verdict;
  try {
    Proof(from, to, plan).run();
    verdict.right = true;
    verdict.loads = link_loads(plan);
    verdict.bound = link_bound(from, to, plan.hosts);
    if (!is_balanced(verdict.loads.most(), verdict.bound)) {
      throw Wrong{fmt::format("the busiest link carries {} bytes, and {} would do",
                              verdict.loads.most(), verdict.bound)};
    }
    verdict.proved = true;
  } catch (const Wrong& wrong) {
    verdict.story = wrong.story;
  }
  return verdict;
}

void require_proof(const Layout& from, const Layout& to, const Plan& plan) {
  const Verdict verdict = verify(from, to, plan);
  if (verdict.right) return;
  throw Error(ErrorCode::unproven_plan,
              fmt::format("the reshard's plan is not proved: {}", verdict.story));
}

}  // namespace tutti::parallel::reshard
