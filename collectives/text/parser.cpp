// Reads a plan's text. The text may come from anyone: every number is bounded before anything is
// allocated by it, and what the parser itself allocates grows with the text alone.
#include <fmt/format.h>

#include <limits>

#include "collectives/text/size.h"
#include "collectives/text/text.h"
#include "core/error.h"
#include "core/line.h"

namespace tutti {
namespace {

constexpr std::uint64_t kLargest32 = std::numeric_limits<std::uint32_t>::max();

/// Chunks first, first + 1, ... first + count - 1.
struct Span {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : lines_(text, "plan text") {}

  Plan parse() {
    Line first = lines_.expect_next("'tutti plan 1'");
    for (const std::string_view word : {"tutti", "plan", "1"}) first.expect(word);
    first.expect_end();
    Line header_line = lines_.expect_next("a collective and an algorithm");
    parse_header(header_line);
    while (std::optional<Line> next = lines_.next()) {
      Line& line = *next;
      if (line.take("rank ") || line.take("rank\t")) {
        parse_rank(line);
      } else if (line.take("lane ") || line.take("lane\t")) {
        parse_lane(line);
      } else {
        parse_step(line);
      }
    }
    if (plan_.ranks.size() != static_cast<std::size_t>(header().ranks)) {
      lines_.at_end().complain(
          fmt::format("expected 'rank {}', found the end of the text (the header says ranks {})",
                      plan_.ranks.size(), header().ranks));
    }
    return std::move(plan_);
  }

 private:
  const PlanHeader& header() const { return plan_.header; }

  void parse_header(Line& line) {
    PlanHeader& h = plan_.header;
    const std::string_view rest = line.rest();
    const auto collective = parse_collective(line.word());
    if (!collective) line.fail_at("a collective (all_reduce, ...)", rest);
    h.collective = *collective;
    const std::string_view algorithm = line.word();
    if (!is_word(algorithm)) line.fail("an algorithm's name, one word of at most 64 letters");
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
    if (line.take(name(Format::compressed))) {
      h.format = Format::compressed;
    } else if (line.take(name(Format::wide))) {
      h.format = Format::wide;
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

  Lines lines_;
  Plan plan_;
  std::uint64_t chunks_ = 0;           // of all ranks so far
  std::optional<std::uint32_t> lane_;  // of the current rank
  std::optional<Span> span_;           // of the current step
};

}  // namespace

Plan plan_from_text(std::string_view text) {
  if (text.size() > TextLimits::bytes) {
    throw Error(ErrorCode::invalid_argument, "a plan's text has 4 GiB at most");
  }
  return Parser(text).parse();
}

}  // namespace tutti
