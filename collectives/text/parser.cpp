// Reads a plan's text. The text may come from anyone: every number is bounded before anything is
// allocated by it, and what the parser itself allocates grows with the text alone.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "collectives/text/size.h"
#include "collectives/text/text.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr std::uint64_t kLargest32 = std::numeric_limits<std::uint32_t>::max();

/// Walks through one line.
class Line {
 public:
  Line(std::string_view text, std::size_t number) : rest_(text), number_(number) { skip_space(); }

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  /// Takes `token` if it comes next.
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    skip_space();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}'", token));
  }
  /// The letters, digits and marks that come next; may be empty.
  std::string_view word() {
    std::size_t n = 0;
    while (n < rest_.size() && is_plan_name(rest_.substr(n, 1))) ++n;
    const std::string_view w = rest_.substr(0, n);
    rest_.remove_prefix(n);
    skip_space();
    return w;
  }
  std::uint32_t number(std::string_view what, std::uint64_t least, std::uint64_t most) {
    return static_cast<std::uint32_t>(wide_number(what, least, most));
  }
  std::uint64_t wide_number(std::string_view what, std::uint64_t least, std::uint64_t most) {
    std::uint64_t value = 0;
    std::size_t n = 0;
    for (; n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9'; ++n) {
      value = value * 10 + static_cast<std::uint64_t>(rest_[n] - '0');
      if (value > most) break;
    }
    if (n == 0 || value < least || value > most) {
      fail(fmt::format("{} ({} to {})", what, least, most));
    }
    rest_.remove_prefix(n);
    skip_space();
    return value;
  }
  void expect_end() {
    if (!at_end()) fail("the end of the line");
  }

  [[noreturn]] void fail(std::string_view expected) const { fail_at(expected, rest_); }
  [[noreturn]] void fail_at(std::string_view expected, std::string_view found) const {
    complain(fmt::format("expected {}, found {}", expected, quoted(found)));
  }
  [[noreturn]] void complain(std::string_view what) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("plan text, line {}: {}", number_, what));
  }

 private:
  /// The beginning of what was found: short, and fit to print whatever the text consists of.
  static std::string quoted(std::string_view found) {
    constexpr std::size_t kShown = 24;
    if (found.empty()) return "the end of the line";
    std::string shown = "'";
    for (const char c : found.substr(0, kShown)) shown += c >= ' ' && c <= '~' ? c : '?';
    return shown + (found.size() > kShown ? "...'" : "'");
  }
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }

  std::string_view rest_;
  std::size_t number_;
};

/// Chunks first, first + 1, ... first + count - 1.
struct Span {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Plan parse() {
    if (text_.size() > TextLimits::bytes) {
      throw Error(ErrorCode::invalid_argument, "a plan's text has 4 GiB at most");
    }
    expect_line("'tutti plan 1'", [](Line& line) {
      for (const std::string_view word : {"tutti", "plan", "1"}) line.expect(word);
      line.expect_end();
    });
    expect_line("a collective and an algorithm", [this](Line& line) { parse_header(line); });
    for (std::string_view content; next_line(content);) {
      Line line(content, line_number_);
      if (line.take("rank ") || line.take("rank\t")) {
        parse_rank(line);
      } else if (line.take("lane ") || line.take("lane\t")) {
        parse_lane(line);
      } else {
        parse_step(line);
      }
    }
    if (plan_.ranks.size() != static_cast<std::size_t>(header().ranks)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("plan text, line {}: expected 'rank {}', found the end of the text "
                              "(the header says ranks {})",
                              line_number_ + 1, plan_.ranks.size(), header().ranks));
    }
    return std::move(plan_);
  }

 private:
  const PlanHeader& header() const { return plan_.header; }

  /// The next line that has more than a comment; false at the end of the text.
  bool next_line(std::string_view& content) {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      content = text_.substr(at_, end - at_);
      at_ = end + 1;
      ++line_number_;
      content = content.substr(0, content.find('#'));
      const std::size_t last = content.find_last_not_of(" \t\r");
      if (last == std::string_view::npos) continue;
      content = content.substr(0, last + 1);
      return true;
    }
    return false;
  }

  template <typename Parse>
  void expect_line(std::string_view expected, Parse parse) {
    std::string_view content;
    if (!next_line(content)) Line("", line_number_ + 1).fail(expected);
    Line line(content, line_number_);
    parse(line);
  }

  void parse_header(Line& line) {
    PlanHeader& h = plan_.header;
    const std::string_view rest = line.rest();
    const auto collective = parse_collective(line.word());
    if (!collective) line.fail_at("a collective (all_reduce, ...)", rest);
    h.collective = *collective;
    const std::string_view algorithm = line.word();
    if (!is_plan_name(algorithm)) line.fail("an algorithm's name, one word of at most 64 letters");
    h.algorithm = algorithm;
    line.expect("ranks");
    h.ranks = static_cast<int>(line.number("the number of ranks", 1, TextLimits::ranks));
    if (is_rooted(h.collective)) {
      line.expect("root");
      h.root = static_cast<int>(line.number("a rank", 0, most_rank()));
    }
    line.expect("pieces");
    h.pieces = line.number("the number of pieces", 1, TextLimits::chunks);
    line.expect("slots");
    h.slots = line.number("the number of slots", 1, TextLimits::slots);
    line.expect("lanes");
    h.lanes = line.number("the number of lanes", 1, TextLimits::lanes);
    if (line.take("widest")) {
      h.widest = line.number("the number of chunks of the widest message", 0, TextLimits::chunks);
    }
    line.expect_end();
    if (std::uint64_t{h.lanes} * static_cast<std::uint64_t>(h.ranks) >
        TextLimits::lanes_of_all_ranks) {
      line.complain(fmt::format("{} ranks of {} lanes are more than {} lanes in all", h.ranks,
                                h.lanes, TextLimits::lanes_of_all_ranks));
    }
  }

  void parse_rank(Line& line) {
    const std::size_t next = plan_.ranks.size();
    const std::string_view rest = line.rest();
    if (line.number("a rank", 0, most_rank()) != next) {
      line.fail_at(fmt::format("rank {} (ranks stand in order, each once)", next), rest);
    }
    RankPlan rank;
    rank.header = header();
    rank.rank = static_cast<int>(next);
    rank.lanes.resize(header().lanes);
    if (line.take("tmp")) {
      rank.tmp_chunks = line.number("the number of tmp chunks", 0, TextLimits::chunks);
    }
    line.expect_end();
    const std::uint64_t blocks =
        std::uint64_t{in_blocks(header().collective, header().ranks, rank.rank, header().root)} +
        out_blocks(header().collective, header().ranks, rank.rank, header().root);
    chunks_ += blocks * header().pieces + rank.tmp_chunks;
    if (chunks_ > TextLimits::chunks_of_all_ranks) {
      line.complain(fmt::format("in, out and tmp of ranks 0 to {} have more than {} chunks in all",
                                next, TextLimits::chunks_of_all_ranks));
    }
    plan_.ranks.push_back(std::move(rank));
    lane_.reset();
  }

  void parse_lane(Line& line) {
    if (plan_.ranks.empty()) line.complain("a lane before the first rank");
    const std::uint32_t least = lane_ ? *lane_ + 1 : 0;
    const std::string_view rest = line.rest();
    const std::uint32_t lane = line.number("a lane", 0, header().lanes - 1);
    if (lane < least) line.fail_at("a later lane (lanes stand in order, each once)", rest);
    line.expect_end();
    lane_ = lane;
  }

  void parse_step(Line& line) {
    if (plan_.ranks.empty()) line.fail("'rank 0'");
    if (!lane_) line.fail("'rank', or 'lane' before the first step");
    RankPlan& rank = plan_.ranks.back();
    span_.reset();
    Step step;
    step.first_operand = static_cast<std::uint32_t>(rank.operands.size());
    step.destinations = parse_side(line, rank, ",", "to", "a destination: in[, out[, tmp[ or to(");
    if (line.take("<=")) {
      step.completes = true;
    } else if (!line.take("<-")) {
      line.fail("',', '<-' or '<='");
    }
    step.sources = parse_side(line, rank, "+", "from", "a source: in[, out[, tmp[ or from(");
    const auto implied =
        implied_size(rank.destinations(step), rank.sources(step), span_ ? span_->count : 0);
    StepSize size = implied.value_or(StepSize{});
    if (line.take("as")) {
      if (line.take("in")) {
        size.space = Space::in;
      } else if (line.take("out")) {
        size.space = Space::out;
      } else {
        line.fail("in[ or out[");
      }
      const Span span = parse_span(line);
      size.chunk = span.first;
      size.count = span.count;
    } else if (!implied) {
      line.fail(
          "'as in[chunk]' or 'as out[chunk]' (a step without an own in or out operand must "
          "say how much it moves)");
    }
    line.expect_end();
    step.shape_space = size.space;
    step.shape_chunk = size.chunk;
    step.count = size.count;
    rank.lanes[*lane_].push_back(step);
  }

  /// Appends a side's operands and returns how many they are.
  std::uint16_t parse_side(Line& line, RankPlan& rank, std::string_view separator,
                           std::string_view link_name, std::string_view expected) {
    if (line.take("(")) {
      line.expect(")");
      return 0;
    }
    std::uint16_t n = 0;
    do {
      if (n == std::numeric_limits<std::uint16_t>::max()) {
        line.complain("a step has more than 65,535 operands on one side");
      }
      rank.operands.push_back(parse_operand(line, rank.rank, link_name, expected));
      ++n;
    } while (line.take(separator));
    return n;
  }

  Operand parse_operand(Line& line, int self, std::string_view link_name,
                        std::string_view expected) {
    const std::string_view rest = line.rest();
    const std::string_view word = line.word();
    Operand o;
    if (word == link_name) {
      o.space = Space::link;
      line.expect("(");
      o.rank = static_cast<std::int32_t>(line.number("a rank", 0, most_rank()));
      line.expect(")");
      o.channel = static_cast<std::uint8_t>(*lane_);
      if (line.take(".")) {
        o.channel = static_cast<std::uint8_t>(line.number("a channel", 0, TextLimits::lanes - 1));
      }
      return o;
    }
    if (word == "in") {
      o.space = Space::in;
    } else if (word == "out") {
      o.space = Space::out;
    } else if (word == "tmp") {
      o.space = Space::tmp;
    } else {
      line.fail_at(expected, rest);
    }
    o.chunk = parse_span(line).first;
    if (line.take("@")) {
      const auto owner = static_cast<std::int32_t>(line.number("a rank", 0, most_rank()));
      if (owner != self) o.rank = owner;
    }
    return o;
  }

  /// [chunk] or [first:past the end]; all spans of a step are equally long.
  Span parse_span(Line& line) {
    line.expect("[");
    const std::string_view rest = line.rest();
    Span span{line.number("a chunk", 0, kLargest32), 1};
    if (line.take(":")) {
      span.count = static_cast<std::uint32_t>(
          line.wide_number("the chunk past the end", span.first, span.first + kLargest32) -
          span.first);
    }
    if (span_ && span_->count != span.count) {
      line.fail_at(fmt::format("{} chunks, as in the step's other operands", span_->count), rest);
    }
    line.expect("]");
    span_ = span;
    return span;
  }

  std::uint64_t most_rank() const { return static_cast<std::uint64_t>(header().ranks) - 1; }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_number_ = 0;
  Plan plan_;
  std::uint64_t chunks_ = 0;           // of all ranks so far
  std::optional<std::uint32_t> lane_;  // of the current rank
  std::optional<Span> span_;           // of the current step
};

}  // namespace

Plan plan_from_text(std::string_view text) { return Parser(text).parse(); }

}  // namespace tutti
