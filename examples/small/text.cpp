#include "text.h"

#include <charconv>
#include <sstream>
#include <stdexcept>

namespace small {
namespace {

constexpr Collective kAll[] = {Collective::all_reduce, Collective::all_gather,
                               Collective::reduce_scatter};
constexpr std::uint32_t kMostRanks =
    64;  // of a text; so that a short one cannot ask for much memory
constexpr std::uint32_t kMostChunks = 4096;
constexpr std::uint32_t kMostSlots = 1024;

std::string to_text(const Operand& o, const char* link) {
  if (o.is_link()) return std::string(link) + "(" + std::to_string(o.peer) + ")";
  return (o.space == Space::in ? "in[" : "out[") + std::to_string(o.chunk) + "]";
}

std::string to_text(const std::vector<Operand>& side, const char* separator, const char* link) {
  std::string text;
  for (const Operand& o : side) text += (text.empty() ? "" : separator) + to_text(o, link);
  return text.empty() ? "()" : text;
}

/// Reads a text from its first line to its last, word by word.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Plan plan() {
    next_line();
    for (const char* w : {"tutti", "plan", "1"}) expect(w);
    next_line();
    Plan plan;
    plan.collective = collective(word());
    plan.algorithm = word();
    const std::uint32_t ranks = number_after("ranks", kMostRanks);
    plan.pieces = number_after("pieces", kMostChunks);
    plan.slots = number_after("slots", kMostSlots);
    for (const char* w : {"lanes", "1"}) expect(w);
    if (ranks == 0) fail("a plan has at least one rank");
    next_line();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (number_after("rank", kMostRanks) != rank) fail("expected rank " + std::to_string(rank));
      next_line();
      number_after("lane", 0);
      auto& steps = plan.steps.emplace_back();
      while (next_line() && line_.find('<') != std::string::npos) {
        steps.push_back(step());
      }
    }
    if (!line_.empty()) fail("expected the end, and not '" + line_ + "'");
    return plan;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("line " + std::to_string(number_) + " of the plan: " + what);
  }
  /// Goes to the next line that has something. False, and an empty line, at the end.
  bool next_line() {
    while (std::getline(text_, line_)) {
      ++number_;
      words_ = std::istringstream(line_);
      if (!(words_ >> std::ws).eof()) return true;
    }
    line_.clear();
    words_ = std::istringstream();
    return false;
  }
  std::string word() {
    std::string w;
    if (!(words_ >> w)) fail("it ends too early");
    return w;
  }
  void expect(const std::string& wanted) {
    if (const std::string w = word(); w != wanted)
      fail("expected '" + wanted + "', not '" + w + "'");
  }
  std::uint32_t number(std::string_view digits, std::uint32_t most) const {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value > most) {
      fail("expected a number up to " + std::to_string(most) + ", not '" + std::string(digits) +
           "'");
    }
    return value;
  }
  std::uint32_t number_after(const char* label, std::uint32_t most) {
    expect(label);
    return number(word(), most);
  }
  Collective collective(const std::string& wanted) const {
    for (Collective c : kAll) {
      if (name(c) == wanted) return c;
    }
    fail("no collective here is named '" + wanted + "'");
  }
  /// "in[3]", "out[0]", and `link` with a rank: "to(1)".
  Operand operand(const std::string& w, const std::string& link) const {
    const auto between = [&](const std::string& begin, char end) -> std::string_view {
      const bool is = w.starts_with(begin) && w.back() == end;
      return is ? std::string_view(w).substr(begin.size(), w.size() - begin.size() - 1) : "";
    };
    if (auto chunk = between("in[", ']'); !chunk.empty()) return in(number(chunk, kMostChunks));
    if (auto chunk = between("out[", ']'); !chunk.empty()) return out(number(chunk, kMostChunks));
    if (auto peer = between(link + "(", ')'); !peer.empty()) {
      return to(static_cast<int>(number(peer, kMostRanks)));
    }
    fail("'" + w + "' is none of in[c], out[c] and " + link + "(r)");
  }
  Step step() {
    Step step;
    std::string w;
    do {
      w = word();
      const bool more = w.ends_with(',');
      if (more) w.pop_back();
      step.destinations.push_back(operand(w, "to"));
      if (!more) break;
    } while (true);
    w = word();
    if (w != "<-" && w != "<=") fail("expected '<-' or '<=', not '" + w + "'");
    step.completes = w == "<=";
    step.sources.push_back(operand(word(), "from"));
    while (words_ >> w) {
      if (w != "+") fail("expected '+', not '" + w + "'");
      step.sources.push_back(operand(word(), "from"));
    }
    return step;
  }

  std::istringstream text_;
  std::string line_;
  std::istringstream words_;
  int number_ = 0;  // of the line
};

}  // namespace

std::string name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
  }
  throw std::invalid_argument("no such collective");
}

std::string to_text(const Step& step) {
  return to_text(step.destinations, ", ", "to") + (step.completes ? " <= " : " <- ") +
         to_text(step.sources, " + ", "from");
}

std::string to_text(const Plan& plan) {
  std::ostringstream text;
  text << "tutti plan 1\n"
       << name(plan.collective) << ' ' << plan.algorithm << "  ranks " << plan.ranks()
       << "  pieces " << plan.pieces << "  slots " << plan.slots << "  lanes 1\n";
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    text << "rank " << rank << "\n  lane 0\n";
    for (const Step& step : plan.steps[static_cast<std::size_t>(rank)]) {
      text << "    " << to_text(step) << '\n';
    }
  }
  return text.str();
}

Plan plan_from_text(const std::string& text) { return Reader(text).plan(); }

}  // namespace small
