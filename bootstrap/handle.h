// A handle is all that others need to meet a rank later: the address at which it listens, a secret
// that lets them in, and, for messages, its process. It is a plain string. The program carries it
// to them privately, because any process that has it may meet the rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/unique_id.h"

namespace tutti {

struct Handle {
  std::string host;          // its name
  std::int64_t pid = 0;      //
  std::uint64_t newest = 0;  // the number of the rank's newest reconfiguration; 0: none
  UniqueId id;               // of its meeting point

  /// "tutti2/node7/1234/3/<256 hexadecimal digits>/<checksum>".
  std::string text() const;
  /// Nothing for a text that is none, or a damaged one.
  static std::optional<Handle> from(std::string_view text);
  /// "pid 1234 on node7".
  std::string process() const;
};

}  // namespace tutti
