// Numbers of things, in sentences.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace tutti {

/// "1 rank", "2 ranks", "3 batches", "4 mixes".
inline std::string counted(std::integral auto n, std::string_view what) {
  return fmt::format("{} {}{}", n, what,
                     n == 1                                        ? ""
                     : what.ends_with("ch") || what.ends_with("x") ? "es"
                                                                   : "s");
}

}  // namespace tutti
