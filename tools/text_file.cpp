#include "tools/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include "core/error.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

std::string read_all(std::istream& stream, const std::string& name, std::string_view what) {
  constexpr std::size_t kMost = std::size_t{1} << 28;
  std::string text;
  for (char part[1 << 16]; stream.read(part, sizeof part), stream.gcount() > 0;) {
    text.append(part, static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kMost)
      refuse(fmt::format("{} has more than 256 MiB; is it a {}?", name, what));
  }
  if (stream.bad()) refuse(fmt::format("cannot read {}: {}", name, std::strerror(errno)));
  return text;
}

}  // namespace

std::string read_text(const std::string& path, std::string_view what) {
  if (path == "-") return read_all(std::cin, "stdin", what);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) refuse(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  return read_all(stream, path, what);
}

void write_text_file(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
    throw_system_error("cannot write the output");
  }
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw_system_error(fmt::format("cannot write {}", path));
}

}  // namespace tutti
