#include "collectives/text/text.h"

#include <fmt/format.h>

#include <iterator>

#include "collectives/text/size.h"
#include "core/error.h"
#include "core/line.h"

namespace tutti {
namespace {

void put_span(std::string& text, std::uint32_t first, std::uint32_t count) {
  auto end = std::back_inserter(text);
  if (count == 1) {
    fmt::format_to(end, "[{}]", first);
  } else {
    fmt::format_to(end, "[{}:{}]", first, std::uint64_t{first} + count);
  }
}

void put_memory(std::string& text, const Operand& o, std::uint32_t count) {
  text += name(o.space);
  put_span(text, o.chunk, count);
  if (o.is_remote()) fmt::format_to(std::back_inserter(text), "@{}", o.rank);
}

void put_operand(std::string& text, const Operand& o, std::string_view link_name,
                 std::uint32_t count, std::uint32_t lane) {
  if (!o.is_link()) return put_memory(text, o, count);
  auto end = std::back_inserter(text);
  fmt::format_to(end, "{}({})", link_name, o.rank);
  if (o.channel != lane) fmt::format_to(end, ".{}", o.channel);
}

void put_step(std::string& text, const RankPlan& rank, std::uint32_t lane, const Step& step) {
  const auto put_side = [&](std::span<const Operand> side, std::string_view separator,
                            std::string_view link_name) {
    if (side.empty()) text += "()";
    for (std::size_t i = 0; i < side.size(); ++i) {
      if (i != 0) text += separator;
      put_operand(text, side[i], link_name, step.count, lane);
    }
  };
  put_side(rank.destinations(step), ", ", "to");
  text += step.completes ? " <= " : " <- ";
  put_side(rank.sources(step), " + ", "from");

  const StepSize size{step.shape_space, step.shape_chunk, step.count};
  if (implied_size(rank.destinations(step), rank.sources(step), step.count) != size) {
    text += " as ";
    text += name(size.space);
    put_span(text, size.chunk, size.count);
  }
}

void put_header(std::string& text, const PlanHeader& h) {
  if (!is_word(h.algorithm)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cannot write a plan whose algorithm is named '{}': a name is one word "
                            "of at most 64 letters, digits, '_', '-' and '.'",
                            h.algorithm));
  }
  auto end = std::back_inserter(text);
  fmt::format_to(end, "tutti plan 1\n{} {}  ranks {}", name(h.collective), h.algorithm, h.ranks);
  if (is_rooted(h.collective)) fmt::format_to(end, "  root {}", h.root);
  fmt::format_to(end, "  pieces {}  slots {}  lanes {}", h.pieces, h.slots, h.lanes);
  if (h.widest != 1) fmt::format_to(end, "  widest {}", h.widest);
  if (h.format != Format::plain) fmt::format_to(end, "  {}", name(h.format));
  text += '\n';
}

void put_rank(std::string& text, const RankPlan& rank) {
  fmt::format_to(std::back_inserter(text), "rank {}", rank.rank);
  if (rank.tmp_chunks != 0) {
    fmt::format_to(std::back_inserter(text), "  tmp {}", rank.tmp_chunks);
  }
  text += '\n';
  for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane) {
    if (rank.lanes[lane].empty()) continue;
    fmt::format_to(std::back_inserter(text), "  lane {}\n", lane);
    for (const Step& step : rank.lanes[lane]) {
      text += "    ";
      put_step(text, rank, static_cast<std::uint32_t>(lane), step);
      text += '\n';
    }
  }
}

}  // namespace

std::optional<StepSize> implied_size(std::span<const Operand> destinations,
                                     std::span<const Operand> sources, std::uint32_t count) {
  for (const auto side : {destinations, sources}) {
    for (const Operand& o : side) {
      if (o.is_link() || o.is_remote() || o.space == Space::tmp) continue;
      return StepSize{o.space, o.chunk, count};
    }
  }
  if (!destinations.empty() && !sources.empty()) return std::nullopt;
  // A signal or a wait has no data; a span on one of its operands is kept all the same, for the
  // verifier to complain about.
  for (const auto side : {destinations, sources}) {
    for (const Operand& o : side) {
      if (!o.is_link()) return StepSize{Space::out, 0, count};
    }
  }
  return StepSize{Space::out, 0, 0};
}

std::string_view name(Space memory) {
  switch (memory) {
    case Space::in:
      return "in";
    case Space::out:
      return "out";
    case Space::tmp:
      return "tmp";
    case Space::link:
      break;
  }
  return "?";
}

std::string_view name(Format format) {
  switch (format) {
    case Format::plain:
      return "plain";
    case Format::compressed:
      return "compressed";
    case Format::wide:
      return "wide";
  }
  return "?";
}

std::string to_text(const Plan& plan) {
  std::string text;
  put_header(text, plan.header);
  for (const RankPlan& rank : plan.ranks) put_rank(text, rank);
  return text;
}

void write_text(const PlanParts& plan, const std::function<void(std::string_view)>& write) {
  std::string text;
  put_header(text, plan.header);
  for (int rank = 0; rank < plan.header.ranks; ++rank) {
    write(text);
    text.clear();
    put_rank(text, plan.part(rank));
  }
  write(text);
}

std::string to_text(const RankPlan& rank) {
  std::string text;
  put_header(text, rank.header);
  put_rank(text, rank);
  return text;
}

std::string to_text(const RankPlan& rank, std::uint32_t lane, const Step& step) {
  std::string text;
  put_step(text, rank, lane, step);
  return text;
}

std::string to_text(const Operand& memory, std::uint32_t count) {
  std::string text;
  put_memory(text, memory, count);
  return text;
}

}  // namespace tutti
