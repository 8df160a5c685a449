// readelf reads the file's tables; the constants are read here, where it says that they lie.
#include "tools/doctor/doctor_symbols.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "tools/output_of.h"

namespace tutti {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // for readelf, with a large library

struct Reading {
  Symbols found;
  const std::function<bool(std::string_view)>& belongs;
};

/// Adds the names that are constants of their own in these bytes of the file.
void find_names(const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                Reading& reading) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  constexpr std::size_t kLongest = 64;
  std::string text;
  std::array<char, 1 << 16> piece{};
  while (bytes > 0) {
    const auto wanted = static_cast<std::streamsize>(std::min<std::uint64_t>(bytes, piece.size()));
    file.read(piece.data(), wanted);
    const std::streamsize got = file.gcount();
    if (got <= 0) return;  // the file is shorter than it says
    bytes -= static_cast<std::uint64_t>(got);
    for (const char c : std::string_view(piece.data(), static_cast<std::size_t>(got))) {
      if (c != '\0') {
        if (text.size() <= kLongest) text += c;
        continue;
      }
      if (reading.belongs(text)) reading.found.names.insert(text);
      text.clear();
    }
  }
}

/// "  [ 7] .rodata PROGBITS 0000000000002000 002000 000164 ..."
void read_section(std::string_view line, const std::string& path, Reading& reading) {
  const std::size_t bracket = line.find(']');
  if (bracket == std::string_view::npos) return;
  std::istringstream words{std::string(line.substr(bracket + 1))};
  std::string name, type, address;
  std::uint64_t offset = 0, bytes = 0;
  if (!(words >> name >> type >> address >> std::hex >> offset >> bytes)) return;
  if (type == "PROGBITS" && (name.starts_with(".rodata") || name.starts_with(".lrodata"))) {
    find_names(path, offset, bytes, reading);
  }
}

/// "    12: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND ncclAllReduce@VERSION (2)"
void read_symbol(std::string_view line, Reading& reading) {
  std::istringstream words{std::string(line)};
  std::string number, value, size, type, binding, visibility, section, name;
  if (!(words >> number >> value >> size >> type >> binding >> visibility >> section >> name)) {
    return;
  }
  name = name.substr(0, name.find('@'));
  if (!reading.belongs(name)) return;
  if (section != "UND") {
    ++reading.found.brings;
  } else {
    (binding == "WEAK" ? reading.found.weak : reading.found.needs).insert(name);
  }
}

/// " 0x0000000000000001 (NEEDED)             Shared library: [libmpi.so.12]"
void read_library(std::string_view line, Reading& reading) {
  const std::size_t begin = line.find('['), end = line.rfind(']');
  if (line.find("(NEEDED)") == std::string_view::npos || end == std::string_view::npos) return;
  if (begin < end) reading.found.libraries.emplace_back(line.substr(begin + 1, end - begin - 1));
}

}  // namespace

Symbols symbols_of(const std::string& path, const std::function<bool(std::string_view)>& belongs) {
  Reading reading{{}, belongs};
  Symbols& found = reading.found;
  if (!std::ifstream(path)) {
    found.trouble = "cannot be read";
    return found;
  }
  // A file's name shall not look like an option.
  const std::string file = path.starts_with('-') ? "./" + path : path;
  const Output tables = output_of(
      {"env", "LC_ALL=C", "readelf", "--wide", "--sections", "--dynamic", "--dyn-syms", file},
      kPatience);
  if (tables.status != 0) {
    found.trouble = tables.status == Output::kNotFound
                        ? "needs readelf to look into it, which is in the package binutils"
                        : "is no program or library (ELF) that readelf can read";
    return found;
  }
  std::istringstream lines(tables.text);
  enum { sections, dynamic, symbols } part = sections;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Dynamic section")) part = dynamic;
    if (line.starts_with("Symbol table")) part = symbols;
    if (part == sections) read_section(line, path, reading);
    if (part == dynamic) read_library(line, reading);
    if (part == symbols) read_symbol(line, reading);
  }
  std::erase_if(found.names, [&](const std::string& name) {
    return found.needs.contains(name) || found.weak.contains(name);
  });
  return found;
}

}  // namespace tutti
