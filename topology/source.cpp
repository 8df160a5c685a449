// See source.h.
#include "topology/source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/number.h"

namespace tutti::topology {
namespace {

// Real ones have less than 30: bridges in bridges.
constexpr int kMostDepth = 256;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

class Counter : public pugi::xml_tree_walker {
 public:
  bool for_each(pugi::xml_node& node) override {
    if (node.type() == pugi::node_element) ++elements;
    if (node.type() == pugi::node_doctype && std::strstr(node.value(), "<!ENTITY") != nullptr) {
      entities = true;
    }
    if (depth() > kMostDepth) {
      deep = node;
      return false;
    }
    return true;
  }
  std::int64_t elements = 0;
  bool entities = false;
  pugi::xml_node deep;
};

}  // namespace

std::string read_file(const std::string& path) {
  // Not blocking: a named pipe that nobody writes to is to be refused, not waited for.
  const int fd = above_standard(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd < 0) refuse(fmt::format("cannot open {}: {}", printable(path), std::strerror(errno)));
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    const bool folder = S_ISDIR(status.st_mode);
    close(fd);
    refuse(fmt::format("{} is {}", printable(path),
                       folder ? "a folder, not a file" : "no regular file"));
  }
  std::string text;
  char part[1 << 16];
  ssize_t got = 0;
  while (text.size() <= kMostBytes && (got = read(fd, part, sizeof part)) > 0) {
    text.append(part, static_cast<std::size_t>(got));
  }
  const int error = errno;
  close(fd);
  if (got < 0) refuse(fmt::format("cannot read {}: {}", printable(path), std::strerror(error)));
  if (text.size() > kMostBytes) {
    refuse(fmt::format("{} has more than {} MiB, so it describes no machine", printable(path),
                       kMostBytes >> 20));
  }
  return text;
}

XmlSource::XmlSource(std::string text, std::string name) : name_(std::move(name)) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') line_ends_.push_back(static_cast<std::ptrdiff_t>(i));
  }
  if (text.find('\0') != std::string::npos) {
    topology::refuse(fmt::format("{} is a binary file, not XML", name_));
  }
  const auto result = document_.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
  if (result.status == pugi::status_no_document_element) {
    topology::refuse(fmt::format("{}: expected an element such as <system>, found none", name_));
  }
  if (!result) {
    topology::refuse(
        fmt::format("{}:{}: no XML: {}", name_, line_of(result.offset), result.description()));
  }
  Counter counter;
  document_.traverse(counter);
  if (counter.entities) {
    topology::refuse(
        fmt::format("{} declares entities, which no topology needs; remove its <!DOCTYPE>", name_));
  }
  if (!counter.deep.empty()) {
    refuse(counter.deep, fmt::format("more than {} elements in each other", kMostDepth));
  }
  elements_ = counter.elements;
}

int XmlSource::line_of(std::ptrdiff_t offset) const {
  return 1 + static_cast<int>(std::ranges::lower_bound(line_ends_, offset) - line_ends_.begin());
}

Origin XmlSource::origin(const pugi::xml_node& node) const {
  return {name_, line_of(std::max<std::ptrdiff_t>(0, node.offset_debug()))};
}

void XmlSource::refuse(const pugi::xml_node& at, const std::string& what) const {
  topology::refuse(fmt::format("{}: {}", origin(at).text(), what));
}

Attributes::Attributes(const XmlSource& source, const pugi::xml_node& node,
                       std::vector<Doubt>& doubts)
    : source_(source), node_(node), doubts_(doubts) {
  for (const pugi::xml_attribute& a : node.attributes()) {
    if (node.attribute(a.name()) == a) continue;
    doubts_.push_back(
        {fmt::format("{}: <{}> has {} twice; the first one counts", source_.origin(node).text(),
                     printable(node.name()), printable(a.name()))});
  }
}

std::string Attributes::text(const char* name) const { return node_.attribute(name).value(); }

void Attributes::doubt(const char* name, const char* value, const char* expected) const {
  doubts_.push_back(
      {fmt::format("{}: {}=\"{}\" of <{}> is no {}; it is ignored", source_.origin(node_).text(),
                   name, printable(value), printable(node_.name()), expected)});
}

std::optional<std::int64_t> Attributes::integer(const char* name) const {
  const pugi::xml_attribute a = node_.attribute(name);
  const std::string_view text = trimmed(a.value());
  if (text.empty()) return {};
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const auto value = hexadecimal ? parse_number<std::int64_t>(text.substr(2), 16)
                                 : parse_number<std::int64_t>(text);
  if (!value) doubt(name, a.value(), "whole number");
  return value;
}

int Attributes::integer_or(const char* name, int otherwise) const {
  const auto value = integer(name);
  if (!value) return otherwise;
  if (*value < INT32_MIN || *value > INT32_MAX) {
    doubt(name, node_.attribute(name).value(), "number of 32 bits");
    return otherwise;
  }
  return static_cast<int>(*value);
}

std::optional<double> Attributes::number(const char* name) const {
  const pugi::xml_attribute a = node_.attribute(name);
  const std::string_view text = trimmed(a.value());
  if (text.empty()) return {};
  const auto value = parse_number<double>(text);
  if (!value) doubt(name, a.value(), "number");
  return value;
}

std::optional<BusId> Attributes::bus_id(const char* name) const {
  const pugi::xml_attribute a = node_.attribute(name);
  if (trimmed(a.value()).empty()) return {};
  const auto id = parse_bus_id(trimmed(a.value()));
  if (!id) doubt(name, a.value(), "PCI address such as 0000:3b:00.0");
  return id;
}

std::optional<double> transfers_per_second(std::string_view text) {
  text = trimmed(text);
  const std::size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string_view::npos || !trimmed(text.substr(end)).starts_with("GT/s")) return {};
  return parse_number<double>(text.substr(0, end));
}

std::string printable(std::string_view text, std::size_t most) {
  std::string safe;
  for (const char c : text.substr(0, most)) safe += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > most ? safe + "..." : safe;
}

}  // namespace tutti::topology
