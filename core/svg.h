// The common parts of all drawings.
#pragma once

#include <string>
#include <string_view>

namespace tutti::drawing {

/// `text` in a form for an SVG's text and attributes.
inline std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return safe;
}

}  // namespace tutti::drawing
