// Files and streams that a user names on the command line: read whole, unless they are endless.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace tutti {

/// All of the file `path`, or of stdin for "-". Throws Error(invalid_argument); `what` says what
/// the file should be ("plan").
std::string read_text(const std::string& path, std::string_view what);
/// To the file `path`, or to stdout for "-" and "".
void write_text_file(const std::string& path, std::string_view text);

/// What `parse` makes of `text`, which is from the file `path`; an error of its names the file.
template <class Parse>
auto parse_text_of(const std::string& path, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const Error& error) {
    throw Error(error.code(), (path == "-" ? "stdin" : path) + ": " + error.what());
  }
}

}  // namespace tutti
