// What an axis has carried, as a line of text: a test that compares two of these shows where they
// differ.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "parallel/axis.h"

namespace tutti::test {

inline std::string text_of(const parallel::Traffic& t) {
  std::string all;
  for (std::size_t c = 0; c < kCollectives; ++c) {
    const parallel::Traffic::Count& n = t.of[c];
    if (n.calls == 0) continue;
    all += fmt::format("{}: {} calls, {} sent, {} received; ", name(static_cast<Collective>(c)),
                       n.calls, n.sent, n.received);
  }
  return all;
}

}  // namespace tutti::test
