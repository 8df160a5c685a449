// The page of settings, which only `tutti settings` writes: no part of the library.
#pragma once

#include <string>

namespace tutti {

/// docs/settings.md, whole.
std::string settings_markdown();

}  // namespace tutti
