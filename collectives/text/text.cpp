#include "collectives/text/text.h"

#include <fmt/format.h>

#include <iterator>

#include "collectives/text/size.h"

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
