// readelf (of binutils) reads the file's tables; the constants are read here, where it says that
// they lie. See doctor_nccl.h.
#include "tools/doctor/doctor_nccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "bindings/nccl/functions.h"
#include "tools/output_of.h"

namespace tutti {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // for readelf, with a large library

using Names = std::set<std::string, std::less<>>;

struct Client {
  std::string trouble;     // why nothing is known about it; "": the rest is
  Names needs;             // undefined symbols
  Names weak;              // the same, without which it can be loaded
  std::size_t brings = 0;  // symbols that it defines itself
  Names names;             // among its constants
};

/// Whether NCCL names functions so: ncclX or pncclX.
bool is_nccl_name(std::string_view text) {
  if (text.starts_with('p')) text.remove_prefix(1);
  if (!text.starts_with("nccl") || text.size() < 6) return false;
  return std::isupper(static_cast<unsigned char>(text[4])) != 0 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// Adds the NCCL names that are constants of their own in these bytes of the file.
void find_names(const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                Client& client) {
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
      if (is_nccl_name(text)) client.names.insert(text);
      text.clear();
    }
  }
}

/// "  [ 7] .rodata PROGBITS 0000000000002000 002000 000164 ..."
void read_section(std::string_view line, const std::string& path, Client& client) {
  const std::size_t bracket = line.find(']');
  if (bracket == std::string_view::npos) return;
  std::istringstream words{std::string(line.substr(bracket + 1))};
  std::string name, type, address;
  std::uint64_t offset = 0, bytes = 0;
  if (!(words >> name >> type >> address >> std::hex >> offset >> bytes)) return;
  if (type == "PROGBITS" && (name.starts_with(".rodata") || name.starts_with(".lrodata"))) {
    find_names(path, offset, bytes, client);
  }
}

/// "    12: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND ncclAllReduce@VERSION (2)"
void read_symbol(std::string_view line, Client& client) {
  std::istringstream words{std::string(line)};
  std::string number, value, size, type, binding, visibility, section, name;
  if (!(words >> number >> value >> size >> type >> binding >> visibility >> section >> name)) {
    return;
  }
  name = name.substr(0, name.find('@'));
  if (!is_nccl_name(name)) return;
  if (section != "UND") {
    ++client.brings;
  } else {
    (binding == "WEAK" ? client.weak : client.needs).insert(name);
  }
}

Client look_at(const std::string& path) {
  Client client;
  if (!std::ifstream(path)) {
    client.trouble = "cannot be read";
    return client;
  }
  // A file's name shall not look like an option.
  const std::string file = path.starts_with('-') ? "./" + path : path;
  const Output found = output_of(
      {"env", "LC_ALL=C", "readelf", "--wide", "--sections", "--dyn-syms", file}, kPatience);
  if (found.status != 0) {
    client.trouble = found.status == Output::kNotFound
                         ? "needs readelf to look into it, which is in the package binutils"
                         : "is no program or library (ELF) that readelf can read";
    return client;
  }
  std::istringstream lines(found.text);
  bool symbols = false;
  for (std::string line; std::getline(lines, line);) {
    symbols = symbols || line.starts_with("Symbol table");
    symbols ? read_symbol(line, client) : read_section(line, path, client);
  }
  std::erase_if(client.names, [&](const std::string& name) {
    return client.needs.contains(name) || client.weak.contains(name);
  });
  return client;
}

std::vector<std::string> those_of(const Names& names, bool known) {
  std::vector<std::string> chosen;
  for (const std::string& name : names) {
    if ((nccl::find_function(name) != nullptr) == known) chosen.push_back(name);
  }
  return chosen;
}

/// Those with one reason in one line.
void show_refusals(DoctorReport& report, const Names& names) {
  std::map<std::string_view, std::vector<std::string>> by_reason;
  for (const std::string& name : those_of(names, true)) {
    const std::string_view reason = nccl::find_function(name)->refusal;
    if (!reason.empty()) by_reason[reason].push_back(name);
  }
  for (const auto& [reason, refused] : by_reason) {
    report.good("refuses", fmt::format("{}: {}", fmt::join(refused, " "), reason));
  }
}

void report_client(DoctorReport& report, const std::string& path) {
  report.section(path);
  const Client client = look_at(path);
  if (!client.trouble.empty()) return report.bad("the file", client.trouble);
  if (client.brings > 0) {
    return report.good("has itself", fmt::format("{} functions of NCCL", client.brings));
  }
  report.good("needs",
              fmt::format("{} functions of NCCL", client.needs.size() + client.weak.size()));
  for (const std::string& name : those_of(client.needs, false)) {
    report.bad("lacks", name,
               "Tutti's libnccl.so.2 has no such function: the file cannot be loaded");
  }
  for (const std::string& name : those_of(client.weak, false)) {
    report.good("may lack", name + ", a weak symbol");
  }
  show_refusals(report, client.needs);
  show_refusals(report, client.weak);
  if (const auto known = those_of(client.names, true); !known.empty()) {
    report.good("may ask for", fmt::format("{}", fmt::join(known, " ")));
    show_refusals(report, client.names);
  }
  if (const auto unknown = those_of(client.names, false); !unknown.empty()) {
    report.good("not among NCCL's", fmt::format("{}", fmt::join(unknown, " ")));
  }
}

}  // namespace

void report_nccl_clients(DoctorReport& report, const std::vector<std::string>& files) {
  for (const std::string& file : files) report_client(report, file);
}

}  // namespace tutti
