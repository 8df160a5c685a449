// Reading untrusted files: files of bounded size, XML without tricks, whole numbers. Messages give
// the place of a mistake. The content never decides how much memory the reader takes.
#pragma once

#include <cstdint>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "topology/records.h"

namespace tutti::topology {

/// The most bytes that a topology file may have. The largest known file, of a rack, has 200 KiB.
constexpr std::size_t kMostBytes = std::size_t{32} << 20;

/// All of a file. Throws Error(invalid_argument) if it is a folder, unreadable, or too large.
std::string read_file(const std::string& path);

/// A parsed XML document that knows its lines.
class XmlSource {
 public:
  /// Throws Error(invalid_argument) with the line if the text is not XML, is nested too deep, or
  /// declares entities: no topology file needs them, and they let short files grow long.
  XmlSource(std::string text, std::string name);

  const pugi::xml_document& document() const { return document_; }
  const std::string& name() const { return name_; }
  std::int64_t elements() const { return elements_; }
  Origin origin(const pugi::xml_node& node) const;
  [[noreturn]] void refuse(const pugi::xml_node& at, const std::string& what) const;

 private:
  int line_of(std::ptrdiff_t offset) const;

  std::string name_;
  std::vector<std::ptrdiff_t> line_ends_;
  pugi::xml_document document_;
  std::int64_t elements_ = 0;
};

/// Attributes as numbers: nothing if one is absent; nothing and a doubt if it is no number.
class Attributes {
 public:
  /// A doubt for each attribute that is there twice: the first one counts.
  Attributes(const XmlSource& source, const pugi::xml_node& node, std::vector<Doubt>& doubts);

  std::string text(const char* name) const;
  std::optional<std::int64_t> integer(const char* name) const;  // decimal or 0x...
  std::optional<double> number(const char* name) const;
  std::optional<BusId> bus_id(const char* name) const;
  int integer_or(const char* name, int otherwise) const;

 private:
  void doubt(const char* name, const char* value, const char* expected) const;

  const XmlSource& source_;
  const pugi::xml_node& node_;
  std::vector<Doubt>& doubts_;
};

/// "16.0 GT/s PCIe", "16 GT/s", "2.5 GT/s": 16, 16, 2.5.
std::optional<double> transfers_per_second(std::string_view text);
/// For messages: ? for all that is not printable ASCII or valid UTF-8; long texts are cut.
std::string printable(std::string_view text, std::size_t most = 80);

}  // namespace tutti::topology
