// What a program or library needs of others, as its file says: for `tutti doctor --nccl-client` and
// `--mpi`.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

using Names = std::set<std::string, std::less<>>;

/// Of the names that belong to the interface in question.
struct Symbols {
  std::string trouble;                 // why nothing is known about the file; "": the rest is
  std::vector<std::string> libraries;  // that it is linked with
  Names needs;                         // undefined symbols
  Names weak;                          // the same, without which it can be loaded
  std::size_t brings = 0;              // symbols that it defines itself
  Names names;                         // among its constants, for which it may ask with dlsym()
};

/// Reads the file's tables with readelf (of binutils). `belongs`: whether a name is the
/// interface's.
Symbols symbols_of(const std::string& path, const std::function<bool(std::string_view)>& belongs);

}  // namespace tutti
