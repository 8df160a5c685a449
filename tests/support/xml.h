// Drawings under test: whether they are well-formed XML.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

/// The error in `xml`, or "". It knows the XML of the drawings: elements, attributes in double
/// quotes, references; and insists that all of it is right.
inline std::string xml_error(std::string_view xml) {
  std::vector<std::string> open;
  bool root_closed = false;
  for (std::size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const auto end = xml.find(';', at);
      if (end == xml.npos || end - at > 8) return "a bare &";
      at = end + 1;
    } else if (xml[at] == '>') {
      return "a bare >";
    } else if (xml[at] != '<') {
      if (open.empty() && !std::isspace(static_cast<unsigned char>(xml[at]))) {
        return "text outside of the root";
      }
      ++at;
    } else {
      bool quoted = false;
      std::size_t end = at + 1;
      for (; end < xml.size() && (quoted || xml[end] != '>'); ++end) {
        if (xml[end] == '"') quoted = !quoted;
        if (xml[end] == '<') return "a < inside of a tag";
      }
      if (end == xml.size()) return "an unfinished tag";
      const std::string_view tag = xml.substr(at + 1, end - at - 1);
      const bool closes = tag.starts_with('/');
      const std::string name(tag.substr(closes, tag.find_first_of(" /\n", 1) - closes));
      if (closes) {
        if (open.empty() || open.back() != tag.substr(1)) return "</" + name + "> does not match";
        open.pop_back();
      } else if (!tag.ends_with('/')) {
        if (root_closed) return "a second root";
        open.push_back(name);
      }
      root_closed = open.empty();
      at = end + 1;
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

}  // namespace tutti::test
