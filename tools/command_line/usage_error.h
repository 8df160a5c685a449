// Describes an error of a program's command line in words; the parser's own words say how often
// things are "required", and call words values that are out of a range.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace tutti {

/// An option that `command` does not have; and which one was meant.
std::string unknown_option_text(const CLI::App& command, std::string_view word);

/// `command`: the one whose command line it is.
std::string usage_error(const CLI::App& command, const CLI::Error& error);

}  // namespace tutti
