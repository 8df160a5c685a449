// A text as JSON has it.
#pragma once

#include <string>

namespace tutti::parallel {

/// Quoted and escaped, with U+FFFD for what is not UTF-8: the names of parameters may have any
/// bytes.
std::string json_text(const std::string& text);

}  // namespace tutti::parallel
