#include "comm/elastic_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/number.h"

namespace tutti {
namespace {

constexpr std::string_view kKindNames[] = {"offer", "wanted", "members"};

}  // namespace

std::string encode(const ElasticMessage& message) {
  std::string text =
      fmt::format("{} {}", kKindNames[static_cast<std::size_t>(message.kind)], message.number);
  for (const std::string& handle : message.handles) text += " " + handle;
  return text;
}

std::optional<ElasticMessage> decode_elastic(std::string_view text) {
  ElasticMessage message;
  const std::string_view kind = take_word(text);
  const auto* const found = std::find(std::begin(kKindNames), std::end(kKindNames), kind);
  if (found == std::end(kKindNames)) return std::nullopt;
  message.kind = static_cast<ElasticMessage::Kind>(found - std::begin(kKindNames));
  message.number = parse_number<std::uint64_t>(take_word(text)).value_or(0);
  if (message.number == 0) return std::nullopt;
  while (!text.empty()) message.handles.emplace_back(take_word(text));
  const std::size_t count = message.handles.size();
  const bool right = message.kind == ElasticMessage::Kind::offer    ? count == 1
                     : message.kind == ElasticMessage::Kind::wanted ? count == 0
                                                                    : count > 0;
  if (!right || count > kMostElasticRanks) return std::nullopt;
  return message;
}

}  // namespace tutti
