// The name that a mistyped word was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The one of `names` that `word` resembles: a few letters are missing, too many, changed or
/// swapped, or one is the beginning of the other. Underscores and hyphens do not count. "": none
/// does.
std::string_view nearest_name(std::string_view word, const std::vector<std::string_view>& names);

/// " (did you mean 'ring'?)", or "" where no name resembles the word.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names);

}  // namespace tutti
