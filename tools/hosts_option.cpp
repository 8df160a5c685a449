#include "tools/hosts_option.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/number.h"

namespace tutti {
namespace {

constexpr int kMostRanks = 1'000'000;

std::optional<int> number(std::string_view text) {
  const auto x = parse_number<int>(text);
  return x && *x >= 1 && *x <= kMostRanks ? x : std::nullopt;
}

/// Ranks of each host; none if `text` says nothing of the kind.
std::vector<int> sizes_from(std::string_view text) {
  if (const std::size_t x = text.find('x'); x != std::string_view::npos) {
    const auto hosts = number(text.substr(0, x));
    const auto each = number(text.substr(x + 1));
    if (!hosts || !each || *hosts > kMostRanks / *each) return {};
    return std::vector<int>(static_cast<std::size_t>(*hosts), *each);
  }
  std::vector<int> sizes;
  int all = 0;
  for (;;) {
    const std::size_t comma = text.find(',');
    const auto size = number(text.substr(0, comma));
    if (!size || *size > kMostRanks - all) return {};
    sizes.push_back(*size);
    all += *size;
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

void HostsOption::add_to(CLI::App& command) {
  command
      .add_option("--hosts", text_,
                  "Hosts and ranks of each, as 2x4, or the ranks of each, as 4,4,2 [one host]")
      ->type_name("HxR");
  command.add_flag("--in-turn", in_turn_,
                   "Ranks are on the hosts in turn (else: one host after the other)");
}

std::vector<int> HostsOption::of_ranks(int ranks) const {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  if (!is_given()) {
    if (in_turn_) refuse("--in-turn says how ranks are on hosts; say which hosts with --hosts");
    return std::vector<int>(static_cast<std::size_t>(ranks), 0);
  }
  std::vector<int> left = sizes_from(text_);
  if (left.empty()) {
    refuse(
        fmt::format("--hosts {}: say 2x4 for 2 hosts with 4 ranks each, or 4,4,2 for the ranks "
                    "of each host",
                    text_));
  }
  std::vector<int> of;
  const int most = std::ranges::max(left);
  if (in_turn_) {
    for (int i = 0; i < most; ++i) {
      for (std::size_t h = 0; h < left.size(); ++h) {
        if (i < left[h]) of.push_back(static_cast<int>(h));
      }
    }
  } else {
    for (std::size_t h = 0; h < left.size(); ++h) {
      of.insert(of.end(), static_cast<std::size_t>(left[h]), static_cast<int>(h));
    }
  }
  if (ranks > 0 && of.size() != static_cast<std::size_t>(ranks)) {
    refuse(fmt::format("--hosts {} has {} ranks, but --ranks says {}; one of the two is enough",
                       text_, of.size(), ranks));
  }
  return of;
}

}  // namespace tutti
